# SPDX-License-Identifier: MIT
"""Tensors of bool and of integers: conditions, comparisons as results, promotion, what is
refused; the backend's masks."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ogive
import ogive.torch as ot
from ogive.torch import _translate

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def layouts(x):
    """The same values in other strides."""
    yield x
    yield x.t().contiguous().t()
    yield x.repeat_interleave(2, 0)[::2]
    yield torch.stack([x, x], -1)[..., 1]


def make(device, shape=(37, 70), seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    mask = torch.rand(shape, generator=generator) > 0.5
    return x.to(device), mask.to(device)


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    assert torch.equal(got, want)


@pytest.mark.parametrize("text, function", [
    ("where(m, x, 0)", lambda x, m, n: torch.where(m, x, 0)),
    ("where(n, x, m * x)", lambda x, m, n: torch.where(n, x, m * x)),
    ("x > 0.5", lambda x, m, n: x > 0.5),
    ("m & (x > 0)", lambda x, m, n: m & (x > 0)),
    ("~m | n ^ (x > 0)", lambda x, m, n: ~m | n ^ (x > 0)),
    ("m == n, m != n", lambda x, m, n: (m == n, m != n)),
    ("logical_and(m, n), logical_not(m)", lambda x, m, n: (torch.logical_and(m, n), ~m)),
    ("x * m + (x > 0)", lambda x, m, n: x * m + (x > 0)),
    ("float16(x > 0)", lambda x, m, n: (x > 0).half()),
    ("sum(float32(m), 1)", lambda x, m, n: m.float().sum(1)),
    ("amax(where(m, x, -inf), 0)", lambda x, m, n: x.masked_fill(~m, -torch.inf).amax(0)),
    ("a = x > 0; where(a, x, 0), a", lambda x, m, n: (torch.where(x > 0, x, 0), x > 0)),
    ("m.T", lambda x, m, n: m.T.contiguous()),
])
def test_masks(text, function, device):
    x, m = make(device)
    formula = ogive.compile(text)
    n = m[5]
    for a in layouts(x):
        for b in layouts(m):
            given = {"x": a, "m": b, "n": n}
            got = formula(**{name: given[name] for name in formula.inputs})
            want = function(a, b, n)
            for ours, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want))):
                same(ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("integer", INTEGERS)
def test_integers_meet_floats(integer, dtype, device):
    """Every 8-bit value; more digits where there are more bits."""
    whole = torch.arange(-128, 128, dtype=torch.int64)
    if integer.itemsize > 1:
        whole = whole * {2: 255, 4: 16777213, 8: 70368744177661}[integer.itemsize]
    i = whole.to(integer).reshape(16, 16).to(device)
    x, _ = make(device, (16, 16))
    x = x.to(dtype)
    for j in layouts(i):
        same(ogive.compile("float32(j), float64(j)")(j)[0], j.float())
        same(ogive.compile("float32(j), float64(j)")(j)[1], j.double())
        got, want = ogive.compile("x * j")(x, j), x * j
        assert got.dtype == want.dtype
        wide = (x.double() * j.to(dtype if dtype == torch.float64 else torch.float32)).to(dtype)
        torch.testing.assert_close(got, wide, rtol=1e-2 if dtype.itemsize == 2 else 1e-6, atol=0)
        same(ogive.compile("j > 3, j == 0, 5 >= j")(j)[0], j > 3)
        same(ogive.compile("j != k")(j, j.to(torch.int16)), j != j.to(torch.int16))
        same(ogive.compile("where(j == 2, x, 1)")(j, x), torch.where(j == 2, x, 1))
    scalar = torch.tensor(2.5, dtype=dtype, device=device)
    assert ogive.compile("i * s")(i, scalar).dtype == (i * scalar).dtype


def test_every_bit_of_large_integers(device):
    i = torch.tensor([2**31 - 1, -2**31, 2**24 + 1, 16777219, 0], dtype=torch.int32, device=device)
    same(ogive.compile("float32(i)")(i), i.float())
    same(ogive.compile("i == 16777217, i > 16777216")(i)[0], i == 16777217)
    i = torch.tensor([2**53 + 1, 2**53, 2**53 - 1, 2**24 + 1, -2**63], device=device)
    same(ogive.compile("i > 9007199254740991")(i), i > 9007199254740991)
    with pytest.raises(TypeError, match="compared with smaller ones only"):
        ogive.compile("i > 9007199254740993")(i)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_integers_are_divided_as_floats(dtype, device):
    i = torch.tensor([[0, 1, 200], [255, 7, 3]], device=device).to(dtype)
    for text, want in (("i / 255.0", i / 255.0), ("i / 3", i / 3), ("2 / i", 2 / i)):
        torch.testing.assert_close(ogive.compile(text)(i), want)  # CUDA's multiplies by 1 / 3
    same(ogive.compile("i / j")(i, i.int() + 1), i / (i.int() + 1))


WITH_FLOATS = [
    ("i * 2.5", lambda i, m: i * 2.5), ("i * 1.0", lambda i, m: i * 1.0),
    ("i - 0.0", lambda i, m: i - 0.0), ("3.0 - i", lambda i, m: 3.0 - i),
    ("i / 255.0", lambda i, m: i / 255.0), ("2 / (i + 0.5)", lambda i, m: 2 / (i + 0.5)),
    ("i * (4 / 2)", lambda i, m: i * (4 / 2)), ("i + 2 * 1e3", lambda i, m: i + 2 * 1e3),
    ("i ** 1.0", lambda i, m: i ** 1.0), ("i ** 2.0", lambda i, m: i ** 2.0),
    ("i ** 3.0", lambda i, m: i ** 3.0), ("i ** 0.5", lambda i, m: i ** 0.5),
    ("2.0 ** i", lambda i, m: 2.0 ** i), ("fmod(i, 2.5)", lambda i, m: torch.fmod(i, 2.5)),
    ("remainder(i, 2.5)", lambda i, m: torch.remainder(i, 2.5)),
    ("where(m, i, 1.0)", lambda i, m: torch.where(m, i, 1.0)),
    ("where(m, 2.5, i)", lambda i, m: torch.where(m, 2.5, i)),
    ("where(m, i, inf)", lambda i, m: torch.where(m, i, torch.inf)),
    ("clamp(i, 0.0, 5.0)", lambda i, m: torch.clamp(i, 0.0, 5.0)),
    ("clamp(i, max=1.5)", lambda i, m: torch.clamp(i, max=1.5)),
    ("clamp(i, min=1, max=inf)", lambda i, m: torch.clamp(i, 1, torch.inf)),
    ("m * 2.0 + i", lambda i, m: m * 2.0 + i), ("(i > 2) * 0.5", lambda i, m: (i > 2) * 0.5),
    ("i > 2.5", lambda i, m: i > 2.5), ("sum(i * 0.5, 1)", lambda i, m: (i * 0.5).sum(1)),
    ("sigmoid(i)", lambda i, m: torch.sigmoid(i)), ("tanh(m)", lambda i, m: torch.tanh(m)),
    ("xlogy(i, m)", lambda i, m: torch.xlogy(i, m))] + [
    (f"{name}(i)", lambda i, m, f=getattr(torch, name): f(i)) for name in (
        "exp expm1 exp2 log log1p log2 log10 sin cos atan tanh erf sqrt rsqrt reciprocal").split()]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("text, function", WITH_FLOATS, ids=[text for text, _ in WITH_FLOATS])
def test_integers_become_floats(text, function, dtype, device):
    """Beside a float, and in functions that give floats: PyTorch's default type."""
    i = torch.tensor([[0, 1, 2, 3], [5, 17, 100, 127]], device=device).to(dtype)
    m = i % 2 == 0
    formula = ogive.compile(text)
    got = formula(**{name: {"i": i, "m": m}[name] for name in formula.inputs})
    want = function(i, m)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0)


@pytest.mark.parametrize("text, function", WITH_FLOATS, ids=[text for text, _ in WITH_FLOATS])
def test_integers_in_a_compiled_model(text, function, device):
    """Of the default type, whichever it is."""
    torch._dynamo.reset()
    i = torch.tensor([[0, 1, 2, 3], [5, 17, 100, 127]], device=device)
    m = i % 2 == 0
    compiled = torch.compile(lambda i, m, x: function(i, m) * 1.5 + x.sum(), backend="ogive")
    x = torch.ones(4, device=device)
    try:
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            torch._dynamo.reset()
            got, want = compiled(i, m, x), function(i, m) * 1.5 + x.sum()
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=1e-6, atol=0)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("text, function", [
    ("where(x > 0, 1, 0) * x", lambda x: torch.where(x > 0, 1, 0) * x),
    ("x - where(x > 0, 3, -1)", lambda x: x - torch.where(x > 0, 3, -1)),
    ("-(where(x > 0, 1, 0) * 2 + 1) * x", lambda x: -(torch.where(x > 0, 1, 0) * 2 + 1) * x),
    ("where(x > 1, where(x > 0, 1, 0), 2) + x",
     lambda x: torch.where(x > 1, torch.where(x > 0, 1, 0), 2) + x),
    ("where(x > 0, 1.0, 0) * x", lambda x: torch.where(x > 0, 1.0, 0) * x),
    ("where(x > 0, 1, 0) * 0.5 + x", lambda x: torch.where(x > 0, 1, 0) * 0.5 + x),
    ("exp(where(x > 0, 1, 0)) * x", lambda x: torch.exp(torch.where(x > 0, 1, 0)) * x),
    ("float32(where(x > 0, 1, 0)) * x", lambda x: torch.where(x > 0, 1, 0).float() * x),
    ("where(x > 0, 1, 0) * amax(x)", lambda x: torch.where(x > 0, 1, 0) * x.amax())])
def test_integers_that_are_chosen_yield(text, function, dtype, device):
    x = make(device, (4, 5))[0].to(dtype)
    got, want = ogive.compile(text)(x), function(x)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want)


def test_integers_and_functions(device):
    i = torch.tensor([0, 1, 2, 200], dtype=torch.uint8, device=device)
    for name, others in (("mul", (2.5,)), ("div", (255.0,)), ("pow", (2.0,)), ("clamp", (0.5, 3.5)),
                         ("exp", ()), ("sigmoid", ())):
        got, want = getattr(ot, name)(i, *others), getattr(torch, name)(i, *others)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=1e-6, atol=0)
    same(ot.where(i > 1, i, torch.tensor(1.0, device=device)), torch.where(i > 1, i, 1.0))


def test_gradients_beside_integers(device):
    x, _ = make(device, (4, 5))
    x.requires_grad_()
    i = torch.arange(20, device=device).reshape(4, 5)
    ours, = torch.autograd.grad(ogive.compile("exp(i * 0.1) * sigmoid(x) + i * 2.0")(i, x).sum(), x)
    theirs, = torch.autograd.grad((torch.exp(i * 0.1) * torch.sigmoid(x) + i * 2.0).sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_bytes_that_are_not_one(device):
    """What else is true to PyTorch."""
    m = torch.tensor([0, 1, 2, 255], dtype=torch.uint8, device=device).view(torch.bool)
    same(ogive.compile("where(m, 1.0 * x, 0)")(m, torch.ones(4, device=device)).bool(),
         torch.tensor([False, True, True, True], device=device))
    same(ogive.compile("m & m")(m).view(torch.uint8).cpu(), torch.tensor([0, 1, 1, 1], dtype=torch.uint8))


@pytest.mark.parametrize("text, message", [
    ("i + i", "\\+: computing with int64 is not supported; cast it first, as in float32"),
    ("i * 2", "\\*: computing with int64"), ("sum(m)", "sum: computing with bool"),
    ("gelu(i)", "gelu: computing with int64"), ("i * 1", "a result is int64; cast it"),
    ("i ** 2", "\\*\\*: computing with int64"), ("where(m, i, 1)", "where: computing with int64"),
    ("clamp(i, 0, 5)", "clamp: computing with int64"), ("(x > 0) * 2", "\\*: computing with bool"), ("i", "a result is int64; cast it"),
    ("where(x, x, 0)", "a condition is float32, expected bool; write a comparison"),
    ("m & i", "a condition is int64, expected bool"), ("i == i + 0 * i", "computing with int64"),
    ("where(m, m, m)", "where: computing with bool"), ("x @ m.T", "both must be one type"),
    ("m @ m.T", "computing with bool")])
def test_refused(text, message, device):
    x, m = make(device, (3, 4))
    given = {"x": x, "m": m, "i": m.long()}
    formula = ogive.compile(text)
    with pytest.raises(TypeError, match=message):
        formula(**{name: given[name] for name in formula.inputs})


def test_numpy_and_numbers():
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    assert ogive.compile("x > 0")(x).dtype == np.bool_
    assert (ogive.compile("where(m, x, s)")(x > 0, x, 2.5) == np.where(x > 0, x, np.float32(2.5))).all()
    assert (ogive.compile("x * i")(x, np.arange(6)) == x * np.arange(6, dtype=np.float32)).all()
    out = np.zeros(6, bool)
    assert ogive.compile("x > s")(x, 0.5, out=out) is out and (out == (x > 0.5)).all()


def test_gradients_pass_masks_by(device):
    x, m = make(device, (5, 6))
    x = x.double().requires_grad_()
    n, i = m[0], m.long() * 3
    formula = ogive.compile("where(m & (x > -1), x * n + i * x, x * x), x > 0")
    y, z = formula(m=m, x=x, n=n, i=i)
    assert y.requires_grad and not z.requires_grad
    want = torch.where(m & (x > -1), x * n + i * x, x * x)
    same(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(want.sum(), x)[0])
    assert torch.autograd.gradcheck(lambda x: formula(m=m, x=x, n=n, i=i)[0], (x,))
    with pytest.raises(TypeError, match="no gradient by a tensor of bool"):
        ogive.compile("x * m").gradient("m")(x.detach(), m, x.detach())


def test_functions_of_the_package(device):
    x, m = make(device, (5, 6))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        same(getattr(ot, name)(x, 0.0), getattr(torch, name)(x, 0.0))
        same(getattr(ot, name)(x, x.t().contiguous().t()), getattr(torch, name)(x, x))
    for name in ("logical_and", "logical_or", "logical_xor"):
        same(getattr(ot, name)(m, x > 0), getattr(torch, name)(m, x > 0))
    same(ot.where(m, x, 2.0), torch.where(m, x, 2.0))


def test_backend_takes_masks(device):
    """An attention's scores, its mask an input; a loss with a mask."""
    def scores(x, mask, other):
        keep = mask & (other > 0)
        y = (x * 0.125).masked_fill(~keep, -1e4)
        return F.softmax(y, -1) * other, torch.where(mask, x, other).sum(1)

    x, mask = make(device, (8, 16))
    other = make(device, (8, 16), 1)[0]
    report = ot.explain(scores, x, mask, other)
    assert "0 left" in report, report
    call = torch.compile(scores, backend=ot.backend)
    for grad in (False, True):
        a = x.clone().requires_grad_(grad)
        got, want = call(a, mask, other), scores(a, mask, other)
        torch.testing.assert_close(got, want)
        if grad:
            slopes = [torch.autograd.grad(sum(each.sum() for each in result), a)[0]
                      for result in (got, want)]
            torch.testing.assert_close(*slopes)
    torch._dynamo.reset()


def test_torch_compile_and_export(device):
    x, m = make(device, (5, 6))
    formula = ogive.compile("where(m, x, 0), x > 0")
    call = torch.compile(lambda m, x: formula(m, x), backend="aot_eager", fullgraph=True)
    for got, want in zip(call(m, x), (torch.where(m, x, 0), x > 0)):
        same(got, want)
    torch._dynamo.reset()


def test_backend_knows_what_takes_integers():
    """functions.def says of which functions integers become floats; the backend has names of its own."""
    integers, takes = np.arange(1, 5, dtype=np.int32), set()
    for name, _, group, _ in ogive._core.functions():
        if group in ("activation", "mathematics"):
            try:
                ogive.compile(f"{name}(i)")(integers)
            except (TypeError, ValueError, NotImplementedError):
                continue
            takes.add(name)
    assert {"exp", "sigmoid"} <= takes <= _translate._MEETING
