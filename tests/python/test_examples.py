# SPDX-License-Identifier: MIT
"""The examples beside their references, and the code in README.md and docs/pytorch.md as
it stands there."""

import importlib.util
import pathlib
import re

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELBENCH = ROOT / "examples" / "kernelbench"
KINDS = ("formula", "emitted")


def load(path):
    spec = importlib.util.spec_from_file_location("example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class MatmulSigmoidSum(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.linear = nn.Linear(input_size, hidden_size)

    def forward(self, x):
        return torch.sum(torch.sigmoid(self.linear(x)), dim=1, keepdim=True)


class GemmSigmoidScalingResidualAdd(nn.Module):
    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.gemm = nn.Linear(input_size, hidden_size)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        z = self.gemm(x)
        return torch.sigmoid(z) * self.scaling_factor + z


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


# file -> reference, arguments, shape of the input (the real ones are some GB)
PROBLEMS = {
    "level1/21_Sigmoid.py": (lambda: Function(torch.sigmoid), (), (64, 1024)),
    "level1/28_HardSigmoid.py": (lambda: Function(F.hardsigmoid), (), (64, 1024)),
    "level2/56_Matmul_Sigmoid_Sum.py": (MatmulSigmoidSum, (256, 200), (33, 256)),
    "level2/70_Gemm_Sigmoid_Scaling_ResidualAdd.py":
        (GemmSigmoidScalingResidualAdd, (256, 200, 2.0), (33, 256)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_examples_are_here(kind):
    folder = KERNELBENCH / kind
    assert sorted(str(p.relative_to(folder)) for p in folder.glob("*/*.py")) == sorted(PROBLEMS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_kernelbench(name, kind, device):
    if kind == "emitted" and torch.device(device).type != "cpu":
        pytest.skip("minutes of nvcc: scripts/test-gpu --emitted")
    reference, arguments, shape = PROBLEMS[name]
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
