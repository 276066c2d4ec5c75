# SPDX-License-Identifier: MIT
"""The examples beside their references, and the code in README.md and docs/pytorch.md as
it stands there."""

import ast
import importlib.util
import pathlib
import re
import textwrap

import pytest
import torch
import torch.nn.functional as F

import ogive
import ogive.torch as ot

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
    """Code, and what it prints where the text says so."""
    found = re.findall(r"^```python\n(.*?)^```\n(?:\nprints\n\n((?:    [^\n]*\n)+))?", path.read_text(),
                       re.M | re.S)
    return [pytest.param(*each, id=f"{path.name}-{i}") for i, each in enumerate(found)]


@pytest.mark.parametrize("code, printed",
                         [*blocks(ROOT / "README.md"), *blocks(ROOT / "docs" / "pytorch.md")])
def test_documentation_runs(code, printed, capsys):
    torch.manual_seed(0)
    exec(compile(code, "documentation", "exec"), {"__name__": "documentation"})
    if printed:
        assert capsys.readouterr().out == textwrap.dedent(printed)


def rows(path):
    """What stands as code in the lines of "you wrote | you write now"."""
    found = []
    table = path.read_text().partition("| you wrote | you write now |\n|---|---|\n")[2]
    for line in table.partition("\n\n")[0].splitlines():
        wrote, writes = (re.findall("`(.*?)`", cell) for cell in line.strip("|").split(" | "))
        if wrote:
            found.append(pytest.param("; ".join(wrote), "; ".join(writes), id=wrote[0]))
    return found


def value(code, space):
    *statements, last = ast.parse(code).body
    exec(compile(ast.Module(statements, []), "table", "exec"), space)
    return eval(compile(ast.Expression(last.value), "table", "eval"), space)


@pytest.mark.parametrize("wrote, writes", rows(ROOT / "docs" / "pytorch.md"))
def test_what_you_wrote_and_write_now(wrote, writes):
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.linear, model.gemm = torch.nn.Linear(8, 6), torch.nn.Linear(8, 6)
    space = {"torch": torch, "F": F, "ogive": ogive, "ot": ot, "self": model,
             "x": torch.randn(5, 8)}
    torch.testing.assert_close(value(writes, space), value(wrote, space))
