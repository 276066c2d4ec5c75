# SPDX-License-Identifier: MIT
"""Every function of the language against PyTorch's CPU function of that name.

Specials, kinks, neighbours of both, subnormals and random values, in all four
dtypes; reductions and norms over every dim, with NaN, infinities and empty
rows. Classes (NaN, infinite, sign of zero) must agree, values within what both
sides' rounding allows.

Where PyTorch's own value is poor, its float64 value decides: it underflows early
(sigmoid below -88.7), cancels (gelu's left tail, tanhshrink near 0), rounds
intermediate results of half types, gives NaN for gelu(inf) in float32.
"""
import itertools

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES

import ogive

inf, nan = float("inf"), float("nan")

# formula over x (and y) -> the same in PyTorch
unary = {
    "sigmoid(x)": torch.sigmoid, "hardsigmoid(x)": F.hardsigmoid, "relu(x)": F.relu,
    "relu6(x)": F.relu6, "leaky_relu(x)": F.leaky_relu,
    "leaky_relu(x, 0.25)": lambda x: F.leaky_relu(x, 0.25),
    "leaky_relu(x, -0.5)": lambda x: F.leaky_relu(x, -0.5),
    "elu(x)": F.elu, "elu(x, 0.5)": lambda x: F.elu(x, 0.5), "selu(x)": F.selu,
    "celu(x)": F.celu, "celu(x, 2.0)": lambda x: F.celu(x, 2.0), "silu(x)": F.silu,
    "gelu(x)": F.gelu, "gelu(x, approximate='tanh')": lambda x: F.gelu(x, approximate="tanh"),
    "mish(x)": F.mish, "softplus(x)": F.softplus,
    "softplus(x, 2, 10)": lambda x: F.softplus(x, 2, 10), "logsigmoid(x)": F.logsigmoid,
    "hardtanh(x)": F.hardtanh, "hardtanh(x, -2, 0.5)": lambda x: F.hardtanh(x, -2, 0.5),
    "hardswish(x)": F.hardswish, "softsign(x)": F.softsign, "tanhshrink(x)": F.tanhshrink,
    "softshrink(x)": F.softshrink, "hardshrink(x)": F.hardshrink,
    "softshrink(x, 1.5)": lambda x: F.softshrink(x, 1.5),
    "hardshrink(x, 0)": lambda x: F.hardshrink(x, 0.0),
    "threshold(x, 0.5, 20)": lambda x: F.threshold(x, 0.5, 20),
    "exp(x)": torch.exp, "expm1(x)": torch.expm1, "log(x)": torch.log, "log1p(x)": torch.log1p,
    "tanh(x)": torch.tanh, "erf(x)": torch.erf, "sqrt(x)": torch.sqrt, "rsqrt(x)": torch.rsqrt,
    "square(x)": torch.square, "reciprocal(x)": torch.reciprocal, "abs(x)": torch.abs,
    "neg(x)": torch.neg, "-x": torch.neg,
    "clamp(x, -1, 1)": lambda x: torch.clamp(x, -1, 1),
    "clamp(x, min=0.5)": lambda x: torch.clamp(x, min=0.5),
    "clamp(x, max=0.5)": lambda x: torch.clamp(x, max=0.5),
    "clamp(x, 2, 1)": lambda x: torch.clamp(x, 2, 1),
    "where(x > 0, x, -2)": lambda x: torch.where(x > 0, x, -2.0),
    "where(x != x, 0, x)": lambda x: torch.where(x != x, 0.0, x),
}
for p in (2, 3, 0.5, -0.5, -1, -2, 1, 0, 1.5, -2.5, 7, 10, -3, 0.1):
    unary[f"x ** {p}"] = lambda x, p=p: torch.pow(x, p)
binary = {
    "x + y": torch.add, "x - y": torch.sub, "x * y": torch.mul, "x / y": torch.div,
    "minimum(x, y)": torch.minimum, "maximum(x, y)": torch.maximum,
}
for sign, name in (("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge"), ("==", "eq"),
                   ("!=", "ne")):
    binary[f"where(x {sign} y, x, y)"] = lambda x, y, name=name: torch.where(
        getattr(torch, name)(x, y), x, y)


def rows(dim, keepdim):
    """Reductions over dim, in both languages."""
    d = ", ".join(filter(None, [f"dim={dim}" if dim is not None else "",
                                "keepdim=true" if keepdim else ""]))
    d = ", " + d if d else ""
    kw = {"dim": dim, "keepdim": keepdim}
    for name in ("sum", "mean"):
        yield f"{name}(x{d})", lambda x, name=name: getattr(torch, name)(x, **kw)
    for name in ("amax", "amin"):
        yield f"{name}(x{d})", lambda x, name=name: getattr(torch, name)(
            x, dim=() if dim is None else dim, keepdim=keepdim)
    for name in ("var", "std"):
        yield f"{name}(x{d})", lambda x, name=name: getattr(torch, name)(x, **kw)
        yield (f"{name}(x{d}, correction=0)",
               lambda x, name=name: getattr(torch, name)(x, correction=0, **kw))
    if dim is not None:
        yield f"logsumexp(x{d})", lambda x: torch.logsumexp(x, **kw)
    if isinstance(dim, int) and not keepdim:
        yield f"softmax(x, {dim})", lambda x: torch.softmax(x, dim)
        yield f"softmin(x, {dim})", lambda x: F.softmin(x, dim)
        yield f"log_softmax(x, {dim})", lambda x: torch.log_softmax(x, dim)


def special_values(dtype):
    info = torch.finfo(dtype)
    points = [0.0, 0.5, 1, 1.5, 2, 3, 6, 10, 20, 88.0, 88.7, 89, 103.9, 104, 150, 709, 745, 746,
              1e-3, 1e-5, 1e-7, 1e-20, 1e-38, 1e-39, 1e-44, 4.0, 5, 8, 9, 12, 0.25, 2.5,
              0.0625, 1e10, info.max, info.tiny, info.smallest_normal, inf]
    values = torch.tensor(points + [-p for p in points] + [nan], dtype=torch.float64).to(dtype)
    up = torch.nextafter(values, torch.tensor(inf, dtype=dtype))
    down = torch.nextafter(values, torch.tensor(-inf, dtype=dtype))
    generator = torch.Generator().manual_seed(1)
    random = (torch.randn(4000, generator=generator, dtype=torch.float64) * 4).to(dtype)
    return torch.cat([values, up, down, random])


def agree(got, want, ulps, slack):
    """Element by element: within ulps of want's last place, or within slack; zeros
    by their sign, NaN as NaN."""
    a, b = got.double(), want.double()
    info = torch.finfo(got.dtype)
    place = (b.abs() * info.eps).clamp(min=info.smallest_normal * info.eps)
    near = (a - b).abs() <= torch.maximum(ulps * place, slack)
    signs = (a.signbit() == b.signbit()) | (slack > 0) & (a * b == 0)
    return (a == b) & signs | a.isnan() & b.isnan() | near & signs


def compare(text, inputs, want, failures, ulps, exact=None):
    """exact: want in float64, decides where PyTorch's dtype does worse."""
    got = torch.empty_like(want, memory_format=torch.contiguous_format)
    try:
        ogive.compile(text)(*inputs, out=got)
    except (RuntimeError, ValueError) as error:
        failures.append(f"{text} {inputs[0].dtype} {tuple(inputs[0].shape)}: {error}")
        return
    info = torch.finfo(want.dtype)
    slack = torch.zeros_like(want, dtype=torch.float64)
    good = agree(got, want, ulps, slack)
    if exact is not None:  # a function of one x, that may cancel or underflow
        if want.shape == inputs[0].shape:
            slack = (inputs[0].double().abs() * 2**-52).clamp(max=1e-3)
        slack = slack.clamp(min=1e3 * info.smallest_normal * info.eps)
        good |= agree(got, exact.to(want.dtype), ulps, slack)
    if not bool(good.all()):
        at = tuple((~good).nonzero()[0].tolist())
        shown = [f"{x[at].item()!r}" for x in inputs if x.shape == want.shape]
        failures.append(f"{text} {inputs[0].dtype} {tuple(inputs[0].shape)} at {at}"
                        f" of {shown}: got {got[at].item()!r}, PyTorch {want[at].item()!r}"
                        f" ({int((~good).sum())} of {good.numel()})")


@pytest.mark.parametrize("dtype", DTYPES)
def test_pointwise(dtype, failures):
    x = special_values(dtype)
    for text, function in unary.items():
        # float16 and bfloat16 differ by PyTorch's extra roundings.
        ulps = 4 if dtype in (torch.float16, torch.bfloat16) else 16
        compare(text, [x], function(x.clone()), failures, ulps, function(x.double()))
    some = x[:230:2]
    a, b = torch.meshgrid(some, some, indexing="ij")
    a, b = a.contiguous(), b.contiguous()
    for text, function in binary.items():
        compare(text, [a, b], function(a, b), failures, 2)
    for other in DTYPES:
        y = torch.linspace(-3, 3, x.numel()).to(other)
        compare("x * y", [x, y], x * y, failures, 2)


def variants_of(x):
    yield x
    yield x.abs() * 1e3
    for special in (nan, inf, -inf):
        if x.numel() > 1:
            y = x.clone()
            y.view(-1)[1] = special
            yield y
    yield torch.full_like(x, -inf)


SHAPES = [(7,), (3, 5), (4, 1, 6), (2, 3, 4, 5), (33, 70), (0, 3), (3, 0), (1,), ()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions(dtype, shape, failures):
    generator = torch.Generator().manual_seed(2 + len(shape))
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    dims = [None] + list(range(-1, len(shape))) + ([(0, 1)] if len(shape) > 1 else [])
    if len(shape) > 2:
        dims += [(0, 2), (-1, 0), (1, 2)]
    for y, dim, keepdim in itertools.product(variants_of(x), dims, (False, True)):
        for text, function in rows(dim, keepdim):
            try:
                want = function(y)
            except (RuntimeError, IndexError):
                continue  # an empty amax: refused here too
            scale = 1e4 if "var" in text or "std" in text or "sum(" in text \
                or "mean" in text else 200
            compare(text, [y], want, failures, scale, function(y.double()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(dtype, failures):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 6, 10, generator=generator, dtype=torch.float64).to(dtype)
    w = torch.randn(10, generator=generator, dtype=torch.float64).to(dtype)
    b = torch.randn(10, generator=generator, dtype=torch.float64).to(dtype)
    big = 1e5
    compare("layer_norm(x, 10)", [x], F.layer_norm(x, (10,)), failures, big)
    compare("layer_norm(x, (6, 10))", [x], F.layer_norm(x, (6, 10)), failures, big)
    compare("layer_norm(x, 10, w, b, 0.1)", [x, w, b], F.layer_norm(x, (10,), w, b, 0.1),
            failures, big)
    compare("rms_norm(x, 10)", [x], F.rms_norm(x, (10,)), failures, 64)
    compare("rms_norm(x, 10, w, 0.1)", [x, w], F.rms_norm(x, (10,), w, 0.1), failures, 64)
