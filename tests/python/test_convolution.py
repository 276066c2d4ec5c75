# SPDX-License-Identifier: MIT
"""Convolutions beside PyTorch's: windows at random, memory formats, gradients, errors."""

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICES, DTYPES
from hypothesis import given, settings

import ogive
import ogive.torch as ot


@st.composite
def convolutions(draw):
    """Dims, keyword arguments, and the shapes of an input and a weight that they fit."""
    dims = draw(st.integers(1, 3))
    most = 4 if dims < 3 else 2
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 4))
    options = {"stride": [], "padding": [], "dilation": []}
    taps, extents = [], []
    for _ in range(dims):
        taps.append(draw(st.integers(1, most)))
        options["stride"].append(draw(st.integers(1, 3)))
        options["dilation"].append(draw(st.integers(1, 3)))
        options["padding"].append(draw(st.integers(0, 3)))
        span = (taps[-1] - 1) * options["dilation"][-1] + 1
        extents.append(draw(st.integers(max(1, span - 2 * options["padding"][-1]), span + 5)))
    batch = [draw(st.integers(0, 3))] if draw(st.booleans()) else []
    return dims, groups, options, batch, channels, filters, taps, extents


def make(seed, device, dtype, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)
            for shape in shapes]


def check(name, tensors, options):
    """Values against PyTorch's of float64, and gradients of float64."""
    want = getattr(F, name)(*[t.cpu().double() for t in tensors], **options)
    scale = getattr(F, name)(*[t.cpu().double().abs() for t in tensors], **options)
    unit = {torch.float64: 1e-14, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
    for each in (tensors, [t.transpose(-1, 0).contiguous().transpose(-1, 0) for t in tensors]):
        got = getattr(ot, name)(*each, **options)
        assert got.shape == want.shape and got.dtype == tensors[0].dtype
        assert ((got.cpu().double() - want).abs() <= unit[got.dtype] * scale + 1e-7).all()
    if tensors[0].dtype != torch.float64:
        return
    mine = [t.clone().requires_grad_() for t in tensors]
    theirs = [t.cpu().clone().requires_grad_() for t in tensors]
    grad = torch.randn(want.shape, dtype=want.dtype)
    got = torch.autograd.grad(getattr(ot, name)(*mine, **options), mine, grad.to(mine[0].device))
    want = torch.autograd.grad(getattr(F, name)(*theirs, **options), theirs, grad)
    for a, b in zip(got, want):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("device", DEVICES)
@given(convolutions(), st.booleans(), st.sampled_from(DTYPES), st.integers(0, 1000))
def test_convolutions(device, convolution, has_bias, dtype, seed):
    dims, groups, options, batch, channels, filters, taps, extents = convolution
    tensors = make(seed, device, dtype, (*batch, channels, *extents),
                   (filters, channels // groups, *taps), (filters,))
    check(f"conv{dims}d", tensors[:2 + has_bias], dict(options, groups=groups))


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None)
@given(convolutions(), st.booleans(), st.integers(0, 2), st.sampled_from(DTYPES),
       st.integers(0, 1000))
def test_transposed(device, convolution, has_bias, more, dtype, seed):
    dims, groups, options, batch, channels, filters, taps, extents = convolution
    extents = [min(extent, 5) for extent in extents]
    options["output_padding"] = [min(more, max(s, d) - 1) for s, d in zip(
        options["stride"], options["dilation"])]
    tensors = make(seed, device, dtype, (*batch, channels, *extents),
                   (channels, filters // groups, *taps), (filters,))
    options["groups"] = groups
    try:
        getattr(F, f"conv_transpose{dims}d")(*[t.cpu().double() for t in tensors], **options)
    except RuntimeError:  # nothing is left: as here
        with pytest.raises(ValueError):
            getattr(ot, f"conv_transpose{dims}d")(*tensors, **options)
        return
    check(f"conv_transpose{dims}d", tensors[:2 + has_bias], options)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name(padding, device):
    x, w = make(1, device, torch.float64, (2, 3, 8, 9), (4, 3, 4, 3))
    check("conv2d", [x, w], {"padding": padding, "dilation": (1, 2)})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{"padding": 2000, "dilation": 1000},
                                     {"padding": "same", "dilation": 1000},
                                     {"padding": 5000, "dilation": 3, "stride": 7}])
def test_windows_far_outside(options, dtype, device):
    """All of a line may be padding, and more than it has."""
    check("conv1d", make(8, device, dtype, (2, 3, 4), (5, 3, 5)), options)
    check("conv1d", make(9, device, dtype, (3, 4), (3, 1, 5)), dict(options, groups=3))


def test_memory_formats(device):
    x, w = make(2, device, torch.float32, (2, 8, 6, 7), (5, 8, 3, 3))
    want = ot.conv2d(x, w, padding=1)
    for a in (x, x.contiguous(memory_format=torch.channels_last)):
        for b in (w, w.contiguous(memory_format=torch.channels_last)):
            assert ot.conv2d(a, b, padding=1).equal(want)


def test_a_result_does_not_depend_on_the_batch(device):
    x, w, b = make(3, device, torch.float32, (5, 40, 9, 10), (33, 40, 3, 3), (33,))
    want = ot.conv2d(x, w, b, 1, 1)
    for i in range(5):
        assert ot.conv2d(x[i:i + 1], w, b, 1, 1).equal(want[i:i + 1])
        assert ot.conv2d(x[i], w, b, 1, 1).equal(want[i])


def test_tails(device):
    x, w, b = make(4, device, torch.float64, (2, 3, 9, 10), (4, 3, 3, 3), (4,))
    f = ogive.compile("sum(tanh(max_pool2d(relu(conv2d(x, w, b, padding=1)), 2)), dim=1)")
    want = F.max_pool2d(F.conv2d(x, w, b, padding=1).relu(), 2).tanh().sum(1)
    torch.testing.assert_close(f(x, w, b), want)


@pytest.mark.parametrize("name, shape, groups", [("conv2d", (4, 2, 2, 3), 2),
                                                 ("conv_transpose2d", (4, 3, 2, 3), 1)])
def test_second_order(name, shape, groups, device):
    x, w = make(5, device, torch.float64, (2, 4, 4, 5), shape)
    x.requires_grad_()
    w.requires_grad_()

    def function(x, w):
        return getattr(ot, name)(x, w, None, 2, 1, groups=groups) ** 2

    assert torch.autograd.gradcheck(function, (x, w))
    assert torch.autograd.gradgradcheck(function, (x, w))


def test_strides_beyond_the_result(device):
    """No time is spent on phases' taps that are not there."""
    x, w = make(10, device, torch.float64, (1, 2, 1, 1), (2, 3, 3, 3))
    check("conv_transpose2d", [x, w], {"stride": 5, "dilation": 2})
    want = ot.conv_transpose2d(x, w, stride=5, dilation=2)
    assert ot.conv_transpose2d(x, w, stride=2**29 - 1, dilation=2).equal(want)


def test_a_weight_read_before_it_is_copied(device):
    """A transposed convolution copies its weight, which what comes first cannot read."""
    x, w, y = make(11, device, torch.float64, (2, 3, 5), (3, 4, 2), (2, 6))
    f = ogive.compile("sum(w @ y) + sum(conv_transpose1d(x, w))")
    torch.testing.assert_close(f(w, y, x), (w @ y).sum() + F.conv_transpose1d(x, w).sum())


def test_infinite_weights_meet_no_holes(device):
    """Between the elements that a stride moves apart nothing is multiplied."""
    x = torch.ones(1, 1, 4, device=device)
    w = torch.tensor([[[1.0, float("inf")]]], device=device)
    assert ot.conv_transpose1d(x, w, stride=2).equal(F.conv_transpose1d(x, w, stride=2))


def test_autocast(device):
    x, w = make(7, device, torch.float32, (2, 3, 8, 8), (4, 3, 3, 3))
    with torch.autocast(device, torch.bfloat16):
        assert ot.conv2d(x, w).dtype == F.conv2d(x, w).dtype == torch.bfloat16


def test_modules_and_compile(device):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
            self.tail = ot.Formula("relu(conv2d(x, conv.weight, conv.bias, padding=1))",
                                   conv=self.conv)

        def forward(self, x):
            return self.tail(x)

    block, x = Block().to(device), torch.randn(2, 3, 8, 8, device=device)
    want = F.relu(block.conv(x))
    torch.testing.assert_close(block(x), want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.compile(block)(x), want, rtol=1e-4, atol=1e-4)


def test_the_error_of_many_phases_shows_their_call():
    w = torch.zeros(3, 3, 3, 3)  # 256 * 256 phases, and the kernel of the sum
    with pytest.raises(NotImplementedError, match=r"more than 65536 kernels(?s:.*)\n {6}\^"):
        ogive.compile("sum(conv_transpose2d(w, w, stride=256))")(w)


def test_same_has_a_limit():
    x, w = torch.zeros(1, 2, 4), torch.zeros(3, 2, 17)
    with pytest.raises(ValueError, match="weight spans 8589934577 elements"):
        ot.conv1d(x, w, padding="same", dilation=2**29 - 1)


@pytest.mark.parametrize("text, message", [
    ("conv2d(x, w, stride=0)", "stride is 0, expected 1 or more"),
    ("conv2d(x, w, padding='reflect')", "'valid' or 'same'"),
    ("conv2d(x, w, padding='same', stride=2)", "needs a stride of 1"),
    ("conv2d(x, w, groups=0)", "groups is 0"),
    ("conv2d(x, w, groups=2)", "expected 6"),
    ("conv2d(x, w, groups=3)", "3 groups do not divide"),
    ("conv1d(x, w)", "expected 3 dims"),
    ("conv2d(x, w, dilation=9)", "weight spans 19 elements"),
    ("conv2d(x, w, x)", "bias has shape"),
    ("conv2d(x, w, padding=(1, 1, 1))", "padding has 3 entries, expected 1 or 2"),
    ("conv1d(x, w, padding=(1, 1, 1))", "padding has 3 entries, expected 1\n"),
    ("conv2d(x, w, groups=536870911)", "536870911 groups do not divide"),
    ("conv_transpose2d(x, w)", "expected 4"),
    ("conv_transpose2d(w, w, output_padding=1)", "output_padding is 1"),
    ("conv_transpose2d(w, w, padding=5)", "expected at least 1"),
    ("conv_transpose2d(w, w, padding='same')", "an integer or a list"),
])
def test_errors(text, message):
    x, w = torch.zeros(1, 3, 8, 8), torch.zeros(4, 3, 3, 3)
    if text.startswith("conv_transpose2d(w"):
        w = torch.zeros(3, 3, 3, 3)
    with pytest.raises(ValueError, match="(?s)" + message.replace("(", r"\(")):
        f = ogive.compile(text)
        f(*[{"x": x, "w": w}[name] for name in f.inputs])
