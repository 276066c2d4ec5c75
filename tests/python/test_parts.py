# SPDX-License-Identifier: MIT
"""narrow, unfold and glu: PyTorch's values and gradients, in any layout, on every device; the backend."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import ogive
import ogive.torch as ot
from conftest import DEVICES

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def close(got, want, dtype):
    half = dtype in (torch.float16, torch.bfloat16)
    assert got.shape == want.shape and got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=2e-2 if half else 1e-5, atol=2e-2 if half else 1e-5)


def in_layout(x, layout):
    """x with other strides: transposed, with gaps, or seen from an offset."""
    if layout == 1 and x.dim() > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == 2:
        return torch.stack([x, x], -1)[..., 1]
    if layout == 3 and x.dim() > 0:
        return torch.cat([x, x], 0)[x.shape[0]:]
    return x


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data(), st.sampled_from(FLOATS),
       st.integers(0, 3), st.integers(0, 10**6))
def test_narrow(device, shape, draw, dtype, layout, seed):
    dim = draw.draw(st.integers(-len(shape), len(shape) - 1))
    start = draw.draw(st.integers(-shape[dim], shape[dim]))
    length = draw.draw(st.integers(0, -start if start < 0 else shape[dim] - start))
    torch.manual_seed(seed)
    x = torch.randn(shape, dtype=dtype, device=device).requires_grad_()
    of = f"{dim}, {start}, {length}"
    for text, function in (
            (f"narrow(x, {of})", lambda x: x.narrow(dim, start, length)),
            (f"z = narrow(x * 2, {of}); z * sigmoid(z)",
             lambda x: (x * 2).narrow(dim, start, length) * torch.sigmoid(
                 (x * 2).narrow(dim, start, length)))):
        f = ogive.compile(text)
        got, want = f(in_layout(x, layout)), function(in_layout(x, layout))
        close(got, want, dtype)
        grad = torch.randn_like(want)
        close(torch.autograd.grad(got, x, grad)[0], torch.autograd.grad(want, x, grad)[0], dtype)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data(), st.sampled_from(FLOATS),
       st.integers(0, 3), st.integers(0, 10**6))
def test_unfold(device, shape, draw, dtype, layout, seed):
    dim = draw.draw(st.integers(-len(shape), len(shape) - 1))
    size, step = draw.draw(st.integers(0, shape[dim])), draw.draw(st.integers(1, 4))
    torch.manual_seed(seed)
    x = torch.randn(shape, dtype=dtype, device=device).requires_grad_()
    for text, function in (
            (f"unfold(x, {dim}, {size}, {step})", lambda x: x.unfold(dim, size, step)),
            (f"sum(unfold(x * 2, {dim}, size={size}, step={step}), -1)",
             lambda x: (x * 2).unfold(dim, size, step).sum(-1))):
        got, want = ogive.compile(text)(in_layout(x, layout)), function(in_layout(x, layout))
        close(got, want, dtype)
        grad = torch.randn_like(want)
        close(torch.autograd.grad(got, x, grad)[0], torch.autograd.grad(want, x, grad)[0], dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape,dim", [((4, 6), -1), ((4, 6), 0), ((2, 4, 6), 1), ((8,), 0),
                                       ((3, 4, 5, 2), 1), ((0, 4), 1), ((64, 1026), 1)])
def test_glu(shape, dim, dtype, device):
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=dtype, device=device).requires_grad_()
    for layout in range(4):
        got, want = ot.glu(in_layout(x, layout), dim), F.glu(in_layout(x, layout), dim)
        close(got, want, dtype)
        grad = torch.randn_like(want)
        close(torch.autograd.grad(got, x, grad)[0], torch.autograd.grad(want, x, grad)[0], dtype)


def test_second_derivatives(device):
    x = torch.randn(3, 4, dtype=torch.float64, device=device).requires_grad_()
    for text in ("glu(x)", "glu(sin(x), 1)", "narrow(x, 1, 1, 2) * narrow(x, 1, 2, 2)",
                 "narrow(x, 0, 0, 2) @ t(narrow(x, 0, 1, 2))", "unfold(sin(x), 1, 3, 1) ** 2",
                 "unfold(unfold(x, 0, 2, 1), 1, 2, 2) ** 2"):
        assert torch.autograd.gradgradcheck(ogive.compile(text), (x,))


@pytest.mark.parametrize("text,shape,message", [
    ("narrow(x, 1, 3, 4)", (3, 6), "length is 4, but dim 1 of the input, which has shape (3, 6)"),
    ("narrow(x, 2, 0, 1)", (3, 6), "dim 2 is out of range"),
    ("narrow(x, 0, -4, 4)", (3, 6), "start is -4"), ("narrow(x, 0, 4, 0)", (3, 6), "start is 4"),
    ("narrow(x, 0, 0, -1)", (3, 6), "length is -1"),
    ("narrow(x, 0, 0.5, 1)", (3,), "start is 0.5, expected an integer"),
    ("unfold(x, 1, 7, 1)", (3, 6), "unfold: a window spans 7 elements, but the input has 6"),
    ("unfold(x, 2, 1, 1)", (3, 6), "dim 2 is out of range"),
    ("unfold(x, 0, 1, 0)", (3, 6), "step is 0, expected an integer of 1 or more"),
    ("unfold(x, 0, 1.5, 1)", (3, 6), "size is 1.5, expected an integer of 0 or more"),
    ("unfold(x, 0, 1, 1)", (), "unfold: the input has no dims"),
    ("glu(x)", (3, 5), "has 5 elements, expected a multiple of 2"),
    ("glu(x)", (), "the input has no dims")])
def test_refused(text, shape, message):
    with pytest.raises(ValueError) as caught:
        ogive.compile(text)(torch.zeros(shape))
    assert message in str(caught.value)


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_backend(level, data):
    """glu becomes part of a formula; narrow stays a view, of which results share the memory."""
    def function(x, w):
        z = F.glu(F.linear(x, w) * 2, -1) + 1
        part = x.narrow(1, 2, 4)
        return z, part, torch.sigmoid(part) * 2 - 1

    x, w = data(5, 8).requires_grad_(), data(6, 8).requires_grad_()
    got = torch.compile(function, backend=ot.backend, options={"level": level})(x, w)
    want = function(x, w)
    assert got[1].data_ptr() == want[1].data_ptr()
    for a, b in zip((*got, *torch.autograd.grad([each.sum() for each in got], (x, w))),
                    (*want, *torch.autograd.grad([each.sum() for each in want], (x, w)))):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        assert a.stride() == b.stride()
    if level == "torch":
        assert "glu" in ot.explain(function, x, w).partition("left: ")[0]
