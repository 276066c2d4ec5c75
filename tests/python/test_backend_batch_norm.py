# SPDX-License-Identifier: MIT
"""torch.compile(backend="ogive") of batch_norm in training: results, gradients, running values and
counts of batches are eager mode's."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import ogive
from ogive import torch as ot

LEVELS = ["torch", "aten"]
LAST = torch.channels_last
CASES = {
    "rows": (nn.BatchNorm1d(6), (9, 6), None),
    "1d": (nn.BatchNorm1d(6), (5, 6, 7), None),
    "2d": (nn.BatchNorm2d(6, momentum=0.3, eps=1e-3), (3, 6, 5, 4), None),
    "2d, channels last": (nn.BatchNorm2d(6), (3, 6, 5, 4), LAST),
    "3d": (nn.BatchNorm3d(6, affine=False), (2, 6, 3, 4, 5), None),
    "without running values": (nn.BatchNorm2d(6, track_running_stats=False), (3, 6, 5, 4), None),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def near(got, want, tolerance):
    assert got.dtype == want.dtype and got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=tolerance,
                               atol=tolerance * max(1.0, float(want.detach().float().abs().max())))


def check(model, x, level, tolerance=1e-5, steps=2):
    """Several steps of training, then an evaluation."""
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend=ot.backend, options={"level": level}, fullgraph=True)
    for step in range(steps):
        mine, theirs = (torch.add(x, step).requires_grad_() for _ in range(2))
        got, want = compiled(mine), model(theirs)
        near(got, want, tolerance)
        for each in got, want:
            each.float().sin().sum().backward()
        near(mine.grad, theirs.grad, 10 * tolerance)
    for one, two in zip(other.parameters(), model.parameters()):
        near(one.grad, two.grad, 10 * tolerance)
    for one, two in zip(other.buffers(), model.buffers()):
        near(one, two, tolerance)
    with torch.no_grad():
        near(compiled.eval()(x), model.eval()(x), tolerance)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_training(case, dtype, level, device):
    norm, shape, layout = CASES[case]
    model = nn.Sequential(copy.deepcopy(norm), nn.SiLU()).to(device)
    x = (torch.randn(shape) * 2 + 1).to(device, memory_format=layout or torch.contiguous_format)
    if dtype == torch.float64:
        model.double()
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    check(model, x.to(dtype), level, tolerance)
    if dtype == torch.bfloat16:  # running values of halves, too
        check(copy.deepcopy(model).train().to(dtype), x.to(dtype), level, tolerance)


class Residual(nn.Module):
    """The order of its norms is not that of what reads them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.short = nn.BatchNorm2d(8)

    def forward(self, x):
        h = torch.sigmoid(self.second(torch.tanh(self.first(x)) * 2))
        return F.relu(h + self.short(x))


@pytest.mark.parametrize("level", LEVELS)
def test_several(level):
    check(Residual(), torch.randn(2, 8, 5, 5), level)
    check(nn.Sequential(nn.Linear(160, 24), nn.BatchNorm1d(24), nn.SiLU()), torch.randn(16, 160), level)


def test_one_formula_each():
    text = ot.explain(Residual(), torch.randn(2, 8, 5, 5))
    assert "8 in 1 formula, 3 left" in text, text


def test_shared_running_values_are_left():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            return torch.tanh(self.norm(torch.relu(self.norm(x)) * 3))

    x = torch.randn(8, 4)
    assert "which others read or write" in ot.explain(Twice(), x)
    check(Twice(), x, "torch")


def test_running_values_that_are_read():
    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            before = self.norm.running_mean * 2
            y = torch.relu(self.norm(x))
            return y + before + self.norm.running_var

    for level in LEVELS:
        check(Reading(), torch.randn(8, 4), level)


@pytest.mark.parametrize("level", LEVELS)
def test_without_gradients(level):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())
    other, x = copy.deepcopy(model), torch.randn(8, 4)
    with torch.no_grad():
        got = torch.compile(other, backend=ot.backend, options={"level": level})(x)
        near(got, model(x), 1e-5)
    for one, two in zip(other.buffers(), model.buffers()):
        near(one, two, 1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_one_value_a_channel(level):
    model = torch.compile(nn.BatchNorm1d(4), backend=ot.backend, options={"level": level})
    with pytest.raises(RuntimeError, match="Expected more than 1 value per channel"):
        model(torch.randn(1, 4))


def test_autocast():
    model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU())
    other, x = copy.deepcopy(model), torch.randn(9, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near(torch.compile(other, backend=ot.backend)(x), model(x), 2e-2)
    for one, two in zip(other.buffers(), model.buffers()):
        near(one, two, 2e-2)


def test_gradient_of_one_of_several_results():
    """Others are no part of it, and what only they read has zeros."""
    formula = ogive.compile("x * y, y + z")
    x, y, z = (torch.randn(5, requires_grad=True) for _ in range(3))
    first, _ = formula(x, y, z)
    got = torch.autograd.grad(first.sum(), (x, y, z))
    for one, two in zip(got, (y, x, torch.zeros(5))):
        torch.testing.assert_close(one, two)
