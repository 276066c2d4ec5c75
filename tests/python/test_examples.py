# SPDX-License-Identifier: MIT
"""The examples beside their references, and the code in README.md and docs/pytorch.md as
it stands there."""

import importlib.util
import pathlib
import re

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELBENCH = ROOT / "examples" / "kernelbench"
KINDS = ("formula", "emitted")


def load(path):
    spec = importlib.util.spec_from_file_location("example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROBLEMS = load(KERNELBENCH / "reference.py").problems


@pytest.mark.parametrize("kind", KINDS)
def test_all_examples_are_here(kind):
    folder = KERNELBENCH / kind
    assert sorted(str(p.relative_to(folder)) for p in folder.glob("*/*.py")) == sorted(PROBLEMS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_kernelbench(name, kind, device):
    if kind == "emitted" and torch.device(device).type != "cpu":
        pytest.skip("minutes of nvcc: scripts/test-gpu --emitted")
    reference, _, _, arguments, shape = PROBLEMS[name]  # the real sizes are some GB
    torch.manual_seed(5)
    want_model = reference(*arguments).to(device)
    torch.manual_seed(5)
    model = load(KERNELBENCH / kind / name).ModelNew(*arguments).to(device)
    assert list(model.state_dict()) == list(want_model.state_dict())
    for x in (torch.rand(shape, device=device), torch.randn(shape, device=device) * 4):
        x.requires_grad_()
        before = x.detach().clone()
        want, got = want_model(x), model(x)
        # 1e-4 is the benchmark's own bound; its inputs never leave [0, 1).
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        assert torch.equal(x, before)
        parameters = [x, *model.parameters()]
        wanted = [x, *want_model.parameters()]
        for a, b in zip(torch.autograd.grad(got.sum(), parameters),
                        torch.autograd.grad(want.sum(), wanted)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    text = (KERNELBENCH / kind / name).read_text()
    assert not re.search(r"\b(pass|try|except)\b", text)  # words that the benchmark refuses


def blocks(path):
    found = re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.M | re.S)
    return [pytest.param(code, id=f"{path.name}-{i}") for i, code in enumerate(found)]


@pytest.mark.parametrize("code", [*blocks(ROOT / "README.md"), *blocks(ROOT / "docs" / "pytorch.md")])
def test_documentation_runs(code):
    torch.manual_seed(0)
    exec(compile(code, "documentation", "exec"), {"__name__": "documentation"})
