# SPDX-License-Identifier: MIT
"""Factors of products on a GPU, and what float64 makes of them: for bench/gpu_products.py,
bench/gpu_errors.py and tests/gpu/products.py."""
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


def different(a, b):
    """Elements whose bits differ, NaNs apart."""
    both_nan = a.isnan() & b.isnan()
    a, b = a.contiguous(), b.contiguous()
    bits = torch.int32 if a.dtype == torch.float32 else torch.int16
    return int(((a.view(bits) != b.view(bits)) & ~both_nan).sum())
