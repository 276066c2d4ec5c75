# SPDX-License-Identifier: MIT
"""Gradients against PyTorch's autograd on the CPU.

Every function of the language, at its kinks and edges, at infinities and NaN and
at random points; reductions with ties and NaN over every dim; broadcasting; norms;
products of every rank. float32 and float64 must agree in class (NaN, infinite) and
in value; half types with PyTorch's float64 gradient at the same inputs, rounded.
"""
import itertools

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES
from test_values import binary, inf, nan, rows, unary

import ogive

halves = (torch.float16, torch.bfloat16)
# x**-0.5 is rsqrt(x) here, in PyTorch's derivative a power;
# hardswish's has a formula of its own for NaN; hardsigmoid's takes 1/6 in float32.
excepted = {"x ** -0.5": lambda x: x == -inf,
            "hardswish(x)": torch.isnan, "hardsigmoid(x)": lambda x: x.double() == x
            if x.dtype == torch.float64 else x != x}


def differentiate(function, inputs, grads):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    results = function(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    if grads is None:
        return [torch.zeros_like(r) for r in results]
    return torch.autograd.grad(results, leaves, [g.to(r.dtype) for g, r in zip(grads, results)],
                               allow_unused=True, materialize_grads=True)


def near(got, want, exact, ulps, eps):
    """Element by element: the class is PyTorch's, the value within ulps of the larger
    of itself and of the tensor's typical size, or of the float64 gradient."""
    a, b, c = got.double(), want.double(), exact.double().to(got.dtype).double()
    eps = max(eps, torch.finfo(got.dtype).eps)
    finite = c[c.isfinite()].abs()
    scale = (finite.median() or finite.max()) if finite.numel() else 0.0
    room = ulps * eps * (c.abs() + scale + torch.finfo(got.dtype).tiny)
    return (a == b) | (a == c) | a.isnan() & (b.isnan() | c.isnan()) | ((a - c).abs() <= room) | (
        (a - b).abs() <= room)


def check(found, text, function, inputs, ulps=32, eps=0.0):
    letters = "xyzwbv"[:len(inputs)]
    generator = torch.Generator().manual_seed(len(text))
    dtype = inputs[0].dtype
    shapes = differentiate(function, inputs, None)
    grads = [torch.rand(r.shape, generator=generator, dtype=torch.float64).add(0.5).to(r.dtype)
             for r in shapes]
    want = differentiate(function, inputs, grads)
    exact = differentiate(function, [x.double() for x in inputs], [g.double() for g in grads])
    label = f"{text} {dtype} {[tuple(x.shape) for x in inputs]}"
    try:
        got = ogive.compile(text).gradient(*letters)(*inputs, *grads)
    except (RuntimeError, ValueError) as error:
        found.append(f"{label}: {error}")
        return
    got = got if isinstance(got, tuple) else (got,)
    for name, x, g, w, e in zip(letters, inputs, got, want, exact, strict=True):
        good = near(g, e.to(dtype) if dtype in halves else w, e, ulps, eps)
        if text in excepted:
            good |= excepted[text](x)
        if not bool(good.all()):
            at = tuple((~good).nonzero()[0].tolist())
            found.append(f"{label} by {name} at {at} = {x[at].item()!r}: got {g[at].item()!r}, "
                         f"PyTorch {w[at].item()!r}, in float64 {e[at].item()!r} "
                         f"({int((~good).sum())} of {good.numel()})")


def points(dtype):
    """Kinks, edges and specials; random values."""
    some = [0.0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6, 10, 20, 0.01, 1e-3, 1e-5, 30, inf]
    values = torch.tensor(some + [-p for p in some] + [nan], dtype=torch.float64).to(dtype)
    generator = torch.Generator().manual_seed(5)
    return torch.cat([values, (torch.randn(500, generator=generator) * 3).to(dtype)])


def test_pointwise(failures):
    for dtype in DTYPES:
        x = points(dtype)
        for text, function in unary.items():
            check(failures, text, function, [x], 64)
        a, b = (t.contiguous() for t in torch.meshgrid(x[:60], x[:60], indexing="ij"))
        for text, function in binary.items():
            check(failures, text, function, [a, b])
        both = {"x * y + x / y": lambda x, y: x * y + x / y,
                "sigmoid(x) * tanh(y)": lambda x, y: torch.sigmoid(x) * torch.tanh(y),
                "maximum(x, y) - minimum(x, x)":
                    lambda x, y: torch.maximum(x, y) - torch.minimum(x, x)}
        for text, function in both.items():
            check(failures, text, function, [x[33:], x.flip(0)[:-33]], 64)
        for other in DTYPES:
            y = torch.linspace(-3, 3, 40).to(other)
            check(failures, "x * y", torch.mul, [x[33:73], y])
            check(failures, "float16(x) * y", lambda x, y: x.to(torch.float16) * y, [x[33:73], y], 2,
                  eps=2**-10)  # PyTorch rounds the gradient to float16 too


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions(failures):
    generator = torch.Generator().manual_seed(6)
    for dtype, shape in itertools.product(DTYPES, [(7,), (3, 5), (4, 1, 6), (2, 3, 4), (33, 70), (1,),
                                                   ()]):
        x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        variants = [x, torch.round(x), torch.zeros_like(x)]  # ties
        if x.numel() > 1:
            for special in (nan, inf, -inf):
                y = x.clone()
                y.view(-1)[1] = special
                variants.append(y)
        dims = [None] + list(range(-1, len(shape))) + ([(0, 1)] if len(shape) > 1 else [])
        for y, dim, keepdim in itertools.product(variants, dims, (False, True)):
            for text, function in rows(dim, keepdim):
                if not bool(y.isfinite().all()) and ("var" in text or "std" in text):
                    continue  # NaN in other places: PyTorch's own formula
                check(failures, text, function, [y], 1000)


def test_broadcasting(failures):
    generator = torch.Generator().manual_seed(7)
    formulas = {"x * y": torch.mul, "x - y": torch.sub, "x / y": torch.div,
                "maximum(x, y)": torch.maximum,
                "where(x > y, x, y * 2)": lambda x, y: torch.where(x > y, x, y * 2),
                "sigmoid(x) * y + x": lambda x, y: torch.sigmoid(x) * y + x,
                "x + y, x * y": lambda x, y: (x + y, x * y)}
    shapes = [((3, 4), (4,)), ((3, 4), (3, 1)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)), ((4,), ()),
              ((), (4,)), ((1, 1, 4), (4,)), ((4,), (1, 1, 4)), ((2, 1, 3), (5, 1)), ((0, 3), (3,)),
              ((300, 200), (200,)), ((300, 200), (300, 1))]
    for dtype, (a, b) in itertools.product(DTYPES, shapes):
        x = torch.randn(a, generator=generator, dtype=torch.float64).to(dtype)
        y = torch.randn(b, generator=generator, dtype=torch.float64).to(dtype)
        for text, function in formulas.items():
            check(failures, text, function, [x, y], 200)
        check(failures, "t(x) * 2" if x.dim() <= 2 else "transpose(x, 0, -1) * 2",
              lambda x: (x.t() if x.dim() <= 2 else x.transpose(0, -1)) * 2, [x])


def test_norms(failures):
    generator = torch.Generator().manual_seed(8)
    for dtype in DTYPES:
        x, w, b = (torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)
                   for s in ((4, 6, 10), (10,), (10,)))
        check(failures, "layer_norm(x, 10)", lambda x: F.layer_norm(x, (10,)), [x], 300)
        check(failures, "layer_norm(x, (6, 10))", lambda x: F.layer_norm(x, (6, 10)), [x], 300)
        check(failures, "layer_norm(x, 10, y, z, 0.1)", lambda x, y, z: F.layer_norm(x, (10,), y, z, 0.1),
              [x, w, b], 300)
        check(failures, "rms_norm(x, 10)", lambda x: F.rms_norm(x, (10,)), [x], 300)
        check(failures, "rms_norm(x, 10, y, 0.1)", lambda x, y: F.rms_norm(x, (10,), y, 0.1), [x, w], 300)


def test_products(failures):
    generator = torch.Generator().manual_seed(9)
    linears = [((3, 4), (2, 4), (2,)), ((4,), (2, 4), (2,)), ((2, 3, 4), (5, 4), (5,)),
               ((2, 3, 4), (4,), ()), ((4,), (4,), ()), ((64, 100), (50, 100), (50,)),
               ((3, 1), (1, 1), (1,)), ((0, 4), (2, 4), (2,)), ((3, 0), (2, 0), (2,))]
    matmuls = [((3, 4), (4, 2)), ((4,), (4,)), ((4,), (4, 2)), ((3, 4), (4,)), ((2, 3, 4), (4,)),
               ((4,), (2, 4, 3)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)),
               ((2, 3, 4), (1, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)),
               ((40, 70), (70, 30)), ((5, 40, 70), (70, 30))]

    def make(shapes, dtype):
        return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    for dtype in DTYPES:
        ulps = 2 if dtype in halves else 300  # of a half type: it is rounded once
        for shapes in linears:
            x, w, b = make(shapes, dtype)
            v, = make(shapes[1:2], dtype)
            check(failures, "linear(x, y)", F.linear, [x, w], ulps)
            check(failures, "linear(x, y, z)", F.linear, [x, w, b], ulps)
            check(failures, "sum(sigmoid(linear(x, y, z)), dim=-1)",
                  lambda x, y, z: torch.sigmoid(F.linear(x, y, z)).sum(-1), [x, w, b], ulps)
            check(failures, "a = linear(x, y, z); a + 2.0 * sigmoid(a)", lambda x, y, z: F.linear(x, y, z) + 2
                  * torch.sigmoid(F.linear(x, y, z)), [x, w, b], ulps)
            check(failures, "silu(linear(x, y, z)) * linear(x, w)",
                  lambda x, y, z, w: F.silu(F.linear(x, y, z)) * F.linear(x, w), [x, w, b, v], ulps)
        for shapes in matmuls:
            x, y = make(shapes, dtype)
            check(failures, "x @ y", torch.matmul, [x, y], ulps)
            check(failures, "tanh(x) @ sigmoid(y)", lambda x, y: torch.tanh(x) @ torch.sigmoid(y), [x, y],
                  ulps)
        q, k, v = make([(2, 3, 4), (2, 5, 4), (2, 5, 6)], dtype)
        check(failures, "softmax(x @ transpose(y, -2, -1) * 0.5, -1) @ z",
              lambda x, y, z: torch.softmax(x @ y.transpose(-2, -1) * 0.5, -1) @ z, [q, k, v], ulps)
        x, w = make([(7, 5), (3, 7)], dtype)
        check(failures, "linear(x, y)", F.linear, [x.t(), w[:, ::1]], ulps)  # strided operands
        check(failures, "x @ y", torch.matmul, [x.t(), w.t()], ulps)
