# SPDX-License-Identifier: MIT
"""Pooling beside PyTorch's: windows at random, memory formats, NaN, gradients, errors."""

import math

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICES, DTYPES, assert_close
from hypothesis import assume, given

import ogive
import ogive.torch as ot


@st.composite
def windows(draw, dilated):
    """Dims, kernel_size, stride, padding, dilation and a shape that they fit."""
    dims = draw(st.integers(1, 3))
    size, stride, padding, dilation, extents = [], [], [], [], []
    for _ in range(dims):
        size.append(draw(st.integers(1, 4)))
        stride.append(draw(st.integers(1, 4)))
        dilation.append(draw(st.integers(1, 3 if dilated else 1)))
        span = (size[-1] - 1) * dilation[-1] + 1
        padding.append(draw(st.integers(0, size[-1] // 2)))
        extents.append(draw(st.integers(max(1, span - 2 * padding[-1]), span + 9)))
    batch = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    return dims, size, stride, padding, dilation, batch + extents


def layouts(x):
    """The same values, side by side in another order."""
    yield x
    if x.dim() == 4:
        yield x.contiguous(memory_format=torch.channels_last)
    yield x.transpose(-1, 0).contiguous().transpose(-1, 0)


def compare(function, reference, x, exact):
    """Values in every layout, and the gradient."""
    want = reference(x)
    for each in layouts(x):
        got = function(each)
        if exact:
            assert got.shape == want.shape and torch.equal(got.nan_to_num(), want.nan_to_num())
        else:
            assert_close(got, want)
    if x.dtype != torch.float64:
        return
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    grad = torch.randn(want.shape, dtype=x.dtype, device=x.device)
    torch.testing.assert_close(torch.autograd.grad(function(mine), mine, grad),
                               torch.autograd.grad(reference(theirs), theirs, grad))


@pytest.mark.parametrize("device", DEVICES)
@given(windows(True), st.booleans(), st.sampled_from(DTYPES), st.integers(0, 1000))
def test_maxima(device, window, ceil_mode, dtype, seed):
    dims, size, stride, padding, dilation, shape = window
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).round()  # with ties
    x = x.to(device, dtype)

    def of(module):
        return lambda t: getattr(module, f"max_pool{dims}d")(t, size, stride, padding, dilation,
                                                             ceil_mode)
    try:
        seen = of(F)(x).isfinite().all()
    except RuntimeError:  # nothing fits: as here
        with pytest.raises(ValueError):
            of(ot)(x)
        return
    assume(seen)  # PyTorch's gradient of a window of padding alone writes beyond its tensor
    compare(of(ot), of(F), x, True)


@pytest.mark.parametrize("device", DEVICES)
@given(windows(False), st.booleans(), st.booleans(), st.sampled_from([None, 7]),
       st.sampled_from([torch.float32, torch.float64]), st.integers(0, 1000))
def test_means(device, window, ceil_mode, include, divisor, dtype, seed):
    dims, size, stride, padding, _, shape = window
    assume(dims < 3 or all(a >= b for a, b in zip(shape[-3:], size)))  # PyTorch refuses these
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)
    more = (divisor,) if dims > 1 else ()

    def of(module):
        return lambda t: getattr(module, f"avg_pool{dims}d")(t, size, stride, padding, ceil_mode,
                                                             include, *more)
    try:
        of(F)(x)
    except RuntimeError:
        with pytest.raises(ValueError):
            of(ot)(x)
        return
    compare(of(ot), of(F), x, False)


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("shape, sizes", [((3, 4), 2), ((2, 3, 6, 8), (2, 4)),
                                          ((2, 2, 4, 6, 3), (2, 3, 1)), ((1, 5, 7, 7), 1),
                                          ((2, 3, 13, 10), 7), ((2, 3, 1, 4), (7, 9)),
                                          ((2, 300), 101), ((2, 3, 5, 4), (None, 3)),
                                          ((2, 3, 5, 4), (2, None))])
def test_adaptive(kind, shape, sizes, device):
    dims = len(shape) - (1 if len(shape) == 2 else 2)
    x = torch.randn(shape, dtype=torch.float64, device=device)
    name = f"adaptive_{kind}_pool{dims}d"
    compare(lambda t: getattr(ot, name)(t, sizes), lambda t: getattr(F, name)(t, sizes), x, False)


@pytest.mark.parametrize("device", DEVICES)
@given(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 24)), min_size=1, max_size=3),
       st.sampled_from(["avg", "max"]), st.sampled_from(DTYPES), st.integers(0, 1000))
def test_parts(device, cut, kind, dtype, seed):
    x = torch.randn([2, 3, *(extent for extent, _ in cut)],
                    generator=torch.Generator().manual_seed(seed))
    x = (x.round() if kind == "max" else x).to(device, dtype)  # with ties
    sizes, name = [size for _, size in cut], f"adaptive_{kind}_pool{len(cut)}d"
    compare(lambda t: getattr(ot, name)(t, sizes), lambda t: getattr(F, name)(t, sizes), x,
            kind == "max")


@pytest.mark.parametrize("shape", [(3, 70), (2, 3, 9), (2, 3, 9, 8), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_all_at_once(kind, shape, device):
    """One window that sees all is a mean, or a maximum, with its bits; PyTorch's within rounding."""
    dims = max(1, len(shape) - 2)
    over, places = tuple(range(-dims, 0)), shape[-dims:]
    for dtype in DTYPES:
        x = torch.randn(shape, generator=torch.Generator().manual_seed(dims)).to(device, dtype)
        for last in False, True:
            if last and len(shape) < 4:
                continue
            if last:
                x = x.to(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[len(shape)])
            want = (ot.mean if kind == "avg" else ot.amax)(x, over, keepdim=True)
            assert torch.equal(getattr(ot, f"adaptive_{kind}_pool{dims}d")(x, 1), want)
            assert torch.equal(getattr(ot, f"{kind}_pool{dims}d")(x, places), want)
        if dtype not in (torch.float32, torch.float64):  # PyTorch's CPU lacks some of halves
            continue
        for name, size in (f"adaptive_{kind}_pool{dims}d", 1), (f"{kind}_pool{dims}d", places):
            compare(lambda t: getattr(ot, name)(t, size), lambda t: getattr(F, name)(t, size), x,
                    kind == "max")
    x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)

    def twice(t):
        return t * getattr(ot, f"adaptive_{kind}_pool{dims}d")(t * t, 1)

    assert torch.autograd.gradcheck(twice, x) and torch.autograd.gradgradcheck(twice, x)


def test_no_parts(device):
    """PyTorch gives something empty, but has no gradient of it."""
    x = torch.randn(2, 3, 5, 4, device=device, requires_grad=True)
    y = ot.adaptive_avg_pool2d(x, (0, 3))
    assert y.shape == F.adaptive_avg_pool2d(x, (0, 3)).shape == (2, 3, 0, 3)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros_like(x))


def test_parts_twice(device):
    x = torch.randn(2, 5, 7, dtype=torch.float64, device=device, requires_grad=True)
    for name in "avg", "max":
        def of(t, function=getattr(ot, f"adaptive_{name}_pool2d")):
            return function(t * t, (3, 4))
        assert torch.autograd.gradcheck(of, x) and torch.autograd.gradgradcheck(of, x)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_norms(dims, device):
    x = torch.rand((2, 3) + (7,) * dims, dtype=torch.float64, device=device) + 0.1
    name = f"lp_pool{dims}d"
    for p in (1, 2, 3.0):
        compare(lambda t: getattr(ot, name)(t, p, 2), lambda t: getattr(F, name)(t, p, 2), x, False)


def test_nan_and_infinity(device):
    x = torch.randn(1, 1, 6, 6, dtype=torch.float64, device=device)
    x[0, 0, 1, 2] = x[0, 0, 2, 1] = math.nan
    x[0, 0, 4, 4], x[0, 0, 5, 1] = math.inf, -math.inf
    compare(lambda t: ot.max_pool2d(t, 3, 1, 1), lambda t: F.max_pool2d(t, 3, 1, 1), x, True)
    assert ot.max_pool2d(x, 3, 1, 1).isnan().equal(F.max_pool2d(x, 3, 1, 1).isnan())


def test_second_order(device):
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64, device=device, requires_grad=True)
    for function in (lambda t: ot.avg_pool2d(t, 2, 1, 1, count_include_pad=False) ** 2,
                     lambda t: ot.max_pool2d(t, 3, 2, 1) ** 2):
        assert torch.autograd.gradcheck(function, (x,))
        assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("text, message", [
    ("max_pool2d(x, 0)", "kernel_size is 0, expected 1 or more"),
    ("max_pool2d(x, (1, 2, 3))", "kernel_size has 3 entries, expected 1 or 2"),
    ("max_pool2d(x, 3, padding=2)", "at most half"),
    ("max_pool2d(x, 9)", "a window spans 9 elements"),
    ("max_pool3d(x, 2)", "expected 5 dims"),
    ("avg_pool2d(x, 2, divisor_override=0)", "divisor_override is 0"),
    ("max_pool2d(x, 2, return_indices=true)", "return_indices must be false"),
    ("adaptive_avg_pool2d(x, (2, -1))", "output_size is -1, expected 0 or more"),
    ("max_pool2d(x, (2, None))", "kernel_size holds None, expected integers"),
    ("max_pool2d(x, 'a')", "an integer or a list of integers"),
])
def test_errors(text, message):
    with pytest.raises((ValueError, NotImplementedError), match=message):
        ogive.compile(text)(torch.randn(3, 4, 4) if "3d" in text else torch.randn(1, 3, 4, 4))
