# SPDX-License-Identifier: MIT
"""Norms and deviations of rows as large or small as float32 has them, whose squares overflow or
vanish: values and gradients beside PyTorch's in float64."""

import pytest
import torch
import torch.nn.functional as F

import ogive.torch as ot

EXPONENTS = (-140, -120, -80, -50, -46, -30, 0, 40, 54, 56, 64, 80, 100, 112)


def make(rows_like, dims, dtype, wide):
    """A tensor whose rows, over dims, are each of another magnitude."""
    generator = torch.Generator().manual_seed(len(rows_like) + sum(rows_like) + wide)
    kept = [1 if d in dims else size for d, size in enumerate(rows_like)]
    count = 1
    for size in kept:
        count *= size
    x = torch.randn(rows_like, generator=generator, dtype=torch.float64)
    if wide:
        x = x * 2.0 ** torch.randint(-30, 1, rows_like, generator=generator)
    powers = torch.tensor([EXPONENTS[i % len(EXPONENTS)] for i in range(count)]).reshape(kept)
    return (x * 2.0 ** powers.double()).to(dtype)


CASES = {
    "std": (lambda f, x: f.std(x, 1), lambda x: x.std(1), (28, 33), (1,)),
    "std long": (lambda f, x: f.std(x, 1), lambda x: x.std(1), (14, 70001), (1,)),
    "std columns": (lambda f, x: f.std(x, 0), lambda x: x.std(0), (300, 14), (0,)),
    "norm": (lambda f, x: f.norm(x, dim=1), lambda x: x.norm(dim=1), (28, 1025), (1,)),
    "layer_norm": (lambda f, x: f.layer_norm(x, (40,)), lambda x: F.layer_norm(x, (40,)),
                   (28, 40), (1,)),
    "layer_norm long": (lambda f, x: f.layer_norm(x, (70001,)),
                        lambda x: F.layer_norm(x, (70001,)), (14, 70001), (1,)),
    "rms_norm": (lambda f, x: f.rms_norm(x, (40,), eps=1e-6),
                 lambda x: F.rms_norm(x, (40,), eps=1e-6), (28, 40), (1,)),
    "batch_norm": (lambda f, x: f.batch_norm(x, None, None, training=True),
                   lambda x: F.batch_norm(x, None, None, training=True), (6, 14, 50), (0, 2)),
    "instance_norm": (lambda f, x: f.instance_norm(x), F.instance_norm, (2, 14, 9, 8), (2, 3)),
    "group_norm": (lambda f, x: f.group_norm(x, 14), lambda x: F.group_norm(x, 14),
                   (3, 14, 30), (2,)),
}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values(name, dtype, wide):
    ours, theirs, shape, dims = CASES[name]
    x = make(shape, dims, dtype, wide)
    got, want = ours(ot, x).double(), theirs(x.double())
    least = {torch.float32: 2.0**-149, torch.bfloat16: 2.0**-133}[dtype]
    unit = {torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    slack = unit * want.abs() + (least if name.split()[0] in ("std", "norm") else unit)
    assert want.isfinite().all() and got.isfinite().all()
    assert ((got - want).abs() <= slack).all()


@pytest.mark.parametrize("name", [n for n in CASES if "long" not in n])
def test_gradients(name):
    ours, theirs, shape, dims = CASES[name]
    x = make(shape, dims, torch.float32, False)
    mine, right = x.clone().requires_grad_(), x.double().requires_grad_()
    y, want = ours(ot, mine), theirs(right)
    grad = torch.randn(want.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y.backward(grad.float())
    want.backward(grad)
    wanted = right.grad
    # Of a row, by its largest; subnormal ones have few bits.
    largest = wanted.abs().amax(dims, keepdim=True)
    off = (mine.grad.double() - wanted).abs()
    holds = (off <= 2e-4 * largest + 2.0**-140) | (largest > 1e38)
    assert holds.all()


def test_specials():
    std = [(ot.std(torch.tensor(x)).item(), torch.tensor(x).double().std().item())
           for x in ([1e-30, 2e-30, 0, 0], [1e30, 1, 2, 3], [3e38, 0, 1])]
    assert all(abs(got / want - 1) < 1e-6 for got, want in std)
    y = ot.layer_norm(torch.tensor([0, 3e38, 0]), (3,))
    assert torch.allclose(y, torch.tensor([-0.70710678, 1.41421356, -0.70710678]))
    assert ot.std(torch.zeros(5)).item() == 0 and ot.norm(torch.zeros(5)).item() == 0
    assert ot.norm(torch.tensor([float("inf"), 1.0])).item() == float("inf")
    assert ot.norm(torch.tensor([float("nan"), 1e30])).isnan()
    assert ot.var(torch.full((2,), 1e30) * torch.tensor([1.0, -1.0])).item() == float("inf")
    many = torch.full((1000,), 2.0**63) * (1 - 2 * (torch.arange(1000) % 2))
    assert abs(ot.var(many).item() / many.double().var().item() - 1) < 1e-6
    assert torch.equal(ot.layer_norm(torch.full((2, 4), 7.0), (4,)), torch.zeros(2, 4))
