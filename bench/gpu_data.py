# SPDX-License-Identifier: MIT
"""Factors of products on a GPU, and what float64 makes of them: for bench/gpu_products.py,
bench/gpu_errors.py, tests/gpu/products.py and tests/gpu/hard_products.py."""
import os

import torch


def random(*shape):
    return torch.randn(*shape, device="cuda")


def lay_out(order, *shape):
    """Random numbers of this shape whose dims lie in memory in this order, the last fastest."""
    t = random(*[shape[d] for d in order])
    return t.permute([order.index(d) for d in range(len(shape))])


def fill(kind, x, w):
    torch.manual_seed(sum(map(ord, kind)))
    k = x.shape[1]
    r = k ** -0.5
    x.normal_()
    w.normal_().mul_(r)
    if kind == "uniform":
        x.uniform_(0, 1)
        w.uniform_(-r, r)
    elif kind == "positive":
        x.uniform_(0, 1)
        w.uniform_(0, r)
    elif kind == "lognormal(3)":
        x.mul_(torch.randn_like(x).mul_(3).exp_())
        w.mul_(torch.randn_like(w).mul_(3).exp_())
    elif kind == "rows 2^+-20":
        for t in (x, w):
            t.mul_(torch.exp2(torch.randint(-20, 21, (t.shape[0], 1), device="cuda").float()))
    elif kind.startswith("columns"):
        c = int(kind.split("^")[1])
        e = torch.randint(-c, c + 1, (1, k), device="cuda").float()
        x.mul_(torch.exp2(-e))
        w.mul_(torch.exp2(e))
    elif kind == "x outlier":
        x[:, 77 % k] = 4096.0
        w[:, 77 % k] *= 2.0 ** -12
    elif kind == "w outlier":
        w[:, 77 % k] = 4096.0
        x[:, 77 % k] = 0


def product64(x, w):
    """x w^T and |x| |w|^T in float64."""
    xd, wd = x.double(), w.double()
    return xd @ wd.t(), xd.abs() @ wd.abs().t()


def find_power(most):
    """The greatest power of two that is no more than most; of 0 it is 0."""
    return torch.ldexp(torch.ones_like(most), torch.frexp(most)[1] - 1) * (most > 0)


def weigh_pairs(y, by, least):
    """The weights of rows y, scaled, whose lo is stored times `by`: elements below `least` are small."""
    hi = y.half().double()
    lost = (y - hi - ((y - hi) * by).half().double() / by).abs() * 2.0 ** 34
    small = (y.abs() < least) & (y != 0)
    return (small * (lost.floor() + (lost > 0) + (y.abs() < 2.0 ** -14))).sum(-1, keepdim=True)


def weigh_rows(x, widens):
    """What undoes the scale of each row of x; the row's weight; is it wide? pairs.cuh defines them."""
    power = find_power(x.abs().amax(-1, keepdim=True).double())
    y = x.double() / torch.where(power > 0, power, 1.0) * 2.0 ** 14
    weight = weigh_pairs(y, 1, 2.0 ** -4)
    wide = weight >= 2.0 ** 17 if widens else torch.zeros_like(weight, dtype=torch.bool)
    return power * 2.0 ** -14, torch.where(wide, weigh_pairs(y, 2048, 2.0 ** -14), weight), wide


def weigh_columns(w):
    """Of each row of w the greatest magnitude, and its weight: that of the quarters of 64 k with a
    small element."""
    blocks = torch.nn.functional.pad(w, (0, -w.shape[-1] % 64)).abs()
    blocks = blocks.reshape(*w.shape[:-1], -1, 4, 4, 4)  # block, step, quarter, k of it
    power = find_power(blocks.amax((-3, -2, -1), keepdim=True).clamp(min=2.0 ** -112))
    small = (blocks < power * 2.0 ** -18) & (blocks >= 2.0 ** -133)
    quarters = small.any(-1).any(-2).sum((-2, -1))
    return w.abs().amax(-1), 2 * 16 * 514 * quarters


def find_marked(x, w, exact, widens=os.environ.get("OGIVE_PRODUCT") != "mma"):
    """Which elements of exact = x w^T a product by pairs of float16 computes again, up to those whose
    error decides: docs/accuracy.md has the test. x is finite, and no row too small to be held."""
    undo, weight, wide = weigh_rows(x, widens)
    most, weights = weigh_columns(w)
    limit = most.double().unsqueeze(-2) * (weight + weights.unsqueeze(-2) * (1.0 + wide))
    z = exact.abs() * 2.0 ** 14
    return (z < limit * undo) | ((z < x.shape[-1] * 2.0 ** -84 * undo) & (exact != 0))


def round_tf32(x):
    """To the nearest number of 10 bits after the point, away from 0 from the middle."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1fff).view(torch.float32)


def different(a, b):
    """Elements whose bits differ, NaNs apart."""
    both_nan = a.isnan() & b.isnan()
    a, b = a.contiguous(), b.contiguous()
    bits = torch.int32 if a.dtype == torch.float32 else torch.int16
    return int(((a.view(bits) != b.view(bits)) & ~both_nan).sum())
