# SPDX-License-Identifier: MIT
"""Every function of ogive.torch beside PyTorch's: PyTorch's own samples, shapes, strides,
dtypes and special values. (test_values.py does so for formulas, with more
values and tighter bounds.)"""

import inspect
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICES, DTYPES, assert_close
from hypothesis import given

import ogive
import ogive.torch as ot
from ogive.torch._autocast import signatures

try:
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError:  # expecttest is missing: test_pytorchs_own_samples is skipped
    op_db = []

NAMES = [name for name in ot.__all__ if name in signatures()]
GROUPS = {name: group for name, _, group, _ in ogive._core.functions()}
UNARY = [name for name in NAMES if inspect.Signature.empty not in
         [p.default for p in list(signatures()[name].parameters.values())[1:]]
         and list(signatures()[name].parameters)[:1] == ["input"]
         and GROUPS[name] not in ("reduction", "normalisation", "pooling", "comparison", "gating") and name != "clamp"]
BINARY = [name for name, _, group, _ in ogive._core.functions() if group == "arithmetic"]
SPECIALS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 20.5, -20.5, 88.0, -90.0, 1e-30, 1e30,
            math.inf, -math.inf, math.nan]


def reference(name):
    return getattr(F, name, None) or getattr(torch, name, None) or getattr(torch.linalg, name)


def test_every_function_of_the_table_is_there():
    table = {name for name, _, group, _ in ogive._core.functions()
             if group not in ("comparison", "cast", "view")}
    assert table <= set(ot.__all__)
    assert len(UNARY) > 25


# PyTorch's samples use some arguments that the language does not have.
UNKNOWN = {"alpha", "rounding_mode", "unbiased"}


def own_name(op):
    return op.name.removeprefix("nn.functional.").replace("linalg.vector", "vector")


OPERATORS = [op for op in op_db if own_name(op) in NAMES
             and (op.name.count(".") or hasattr(torch, op.name)) and op.name != "where"
             and not op.name.startswith("logical")
             and op.variant_test_name not in ("trunc_rounding", "floor_rounding", "unbiased", "nuc",
                                              "decomposed")
             and not op.variant_test_name.startswith("decimals")]


def is_known(op, sample):
    """Whether the language has what a sample of PyTorch's asks for."""
    if own_name(op) in ("mse_loss", "l1_loss", "huber_loss") and sample.kwargs.get("weight") is not None:
        return False
    tensors = [value for value in (*sample.args, *sample.kwargs.values())
               if isinstance(value, torch.Tensor)]
    if any(not value.is_floating_point() for value in tensors):
        return False
    if sample.kwargs.get("return_indices") or own_name(op).startswith("adaptive_max") \
            and any(each is True for each in sample.args):
        return False
    if own_name(op) in ("norm", "vector_norm") and (
            sample.kwargs.get("dtype") is not None or "nuc" in sample.args):
        return False
    switch = {"batch_norm": "training", "instance_norm": "use_input_stats"}.get(own_name(op))
    if switch and sample.input.dim() < 2:  # of no element, which PyTorch takes
        return False
    if switch and sample.kwargs.get(switch, switch != "training"):  # would change running_mean
        running = sample.args[0] if sample.args else sample.kwargs.get("running_mean")
        if running is not None:
            return False
    if op.name == "clamp":  # min and max, two of a kind
        kinds = {isinstance(value, torch.Tensor) for value in (*sample.args, *sample.kwargs.values())
                 if value is not None}
        if len(kinds) > 1:
            return False
    flags = own_name(op) in ("var", "std", "var_mean", "std_mean")
    return not (UNKNOWN & set(sample.kwargs) - ({"alpha"} if op.name == "addmm" else set())
                or flags and any(isinstance(value, bool) for value in sample.args))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.name}-{op.variant_test_name}")
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_pytorchs_own_samples(op, device):
    function = getattr(ot, own_name(op))
    known = 0
    for sample in op.sample_inputs(device, torch.float32):
        if not is_known(op, sample):
            continue
        known += 1
        got = function(sample.input, *sample.args, **sample.kwargs)
        want = op.op(sample.input, *sample.args, **sample.kwargs)
        if own_name(op) in ("max", "min") and isinstance(want, tuple):
            want = want[0]  # of values and indices
        torch.testing.assert_close(got, want, rtol=1e-5, atol=3e-5, equal_nan=True)
    assert known > 0


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -0.5, -1, -2, 1, 0, 1.5, 7])
def test_powers(exponent, device):
    x = torch.tensor(SPECIALS, device=device)
    want = torch.pow(x.double(), exponent).float()
    torch.testing.assert_close(ot.pow(x, exponent), want, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name, dtype, device):
    x = torch.tensor(SPECIALS, dtype=torch.float64).to(device, dtype)
    got = getattr(ot, name)(x)
    # In float64, rounded: PyTorch's own halves and float32 tails are poorer than ours. On
    # the CPU: on CUDA hardsigmoid and hardswish divide by a float32 6.
    want = reference(name)(x.cpu().double()).to(device)
    assert got.dtype == dtype and got.shape == x.shape
    allowed = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
    want = want.to(dtype).double()
    good = (got.double() == want) | got.isnan() & want.isnan() | (
        (got.double() - want).abs() <= allowed[dtype] * want.abs() + 1e-7)
    if name == "gelu":
        good |= x == math.inf  # PyTorch's float64 value is NaN in some versions
    assert bool(good.all()), (x[~good], got[~good], want[~good])


def layouts(x):
    """The same values in other strides."""
    yield x
    yield x.t().contiguous().t()
    yield x.repeat_interleave(2, 0)[::2]
    yield torch.stack([x, x], -1)[..., 1]


@pytest.mark.parametrize("device", DEVICES)
@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(UNARY), st.sampled_from(DTYPES),
       st.integers(0, 1000))
def test_shapes_and_strides(device, shape, name, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator).to(device, dtype)
    x = x.permute(torch.randperm(len(shape), generator=generator).tolist())
    want = reference(name)(x.cpu().double()).to(device, dtype)  # see test_special_values
    assert_close(getattr(ot, name)(x), want)
    y = torch.stack([x, -x], -1)[..., 0]
    assert_close(getattr(ot, name)(y), want)


@pytest.mark.parametrize("device", DEVICES)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data(), st.sampled_from(DTYPES))
def test_broadcasting_and_promotion(device, shape, data, dtype):
    cut = data.draw(st.integers(0, len(shape)))
    other_shape = [data.draw(st.sampled_from([1, n])) for n in shape[cut:]]
    other_dtype = data.draw(st.sampled_from(DTYPES))
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(shape, generator=generator).to(device, dtype)
    y = torch.randn(other_shape, generator=generator).to(device, other_dtype)
    for a, b in ((x, y), (y, x)):
        for name in BINARY:
            want = getattr(torch, name)(a, b)
            got = getattr(ot, name)(a, b)
            assert got.dtype == want.dtype
            assert_close(got, want)


@pytest.mark.parametrize("device", DEVICES)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data(), st.sampled_from(DTYPES))
def test_reductions(device, shape, data, dtype):
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator).to(device, dtype)
    dims = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1), st.lists(
        st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True)))
    keepdim = data.draw(st.booleans())
    for name in ("sum", "mean", "amax", "amin", "logsumexp"):
        if dims is None and name == "logsumexp":
            continue
        given_dims = () if dims is None and name in ("amax", "amin") else dims
        want = getattr(torch, name)(x.double(), dim=given_dims, keepdim=keepdim).to(dtype)
        got = getattr(ot, name)(x, dim=dims, keepdim=keepdim)
        assert_close(got, want)
    if isinstance(dims, int):
        for name in ("softmax", "log_softmax", "softmin"):
            assert_close(getattr(ot, name)(x, dims), getattr(F, name)(x.double(), dims).to(dtype))
            assert getattr(ot, name)(x, dims, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_numbers_promote_nothing(shape, dtype, device):
    x = torch.full(shape, 3.0, dtype=dtype, device=device)
    f = ogive.compile("x * s")
    for number in (0.1, 2, True):
        want = x * number
        assert f(x, number).dtype == dtype
        assert_close(f(x, number), want)
        assert f(x.clone().requires_grad_(), number).dtype == dtype
        compiled = torch.compile(lambda t, s: f(t, s), backend="eager", fullgraph=True)
        assert compiled(x, number).dtype == dtype
        torch._dynamo.reset()
    mixed = ogive.compile("x * y * s")
    for other in DTYPES:
        y = torch.ones((), dtype=other, device=device)
        assert mixed(x, y, 2.0).dtype == (x * y * 2.0).dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(data, dtype):
    x, w, b = data(5, 7, dtype=dtype), data(3, 7, dtype=dtype), data(3, dtype=dtype)
    want = F.linear(x.double(), w.double(), b.double())
    for u in layouts(x):
        for v in layouts(w):
            assert_close(ot.linear(u, v, b).double() / 4, want / 4, dtype)
    a, c = data(2, 3, 4, dtype=dtype), data(4, 5, dtype=dtype)
    assert_close(ot.matmul(a, c).double() / 4, (a.double() @ c.double()) / 4, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(data, dtype):
    x, w, b = data(4, 6, 10, dtype=dtype), data(10, dtype=dtype), data(10, dtype=dtype)
    wide = [t.double() for t in (x, w, b)]
    assert_close(ot.layer_norm(x, (10,), w, b), F.layer_norm(wide[0], (10,), *wide[1:]).to(dtype))
    assert_close(ot.layer_norm(x, [6, 10]), F.layer_norm(wide[0], [6, 10]).to(dtype))
    assert_close(ot.layer_norm(x, torch.Size([10]), bias=b, eps=0.1),
                 F.layer_norm(wide[0], (10,), bias=wide[2], eps=0.1).to(dtype))
    assert_close(ot.rms_norm(x, (10,), w, eps=1e-3), F.rms_norm(*wide[:1], (10,), wide[1], 1e-3).to(dtype))


def test_where_takes_a_bool_tensor(data):
    x, y = data(3, 4), data(4)
    assert_close(ot.where(x > 0, x, y), torch.where(x > 0, x, y))
    assert_close(ot.where(x > 0, x, 2.0), torch.where(x > 0, x, 2.0))
    with pytest.raises(TypeError, match="bool"):
        ot.where(x, x, y)


def test_out_and_numbers(data):
    x = data(3, 4)
    out = torch.empty(4, 3, device=x.device).t()
    assert ot.softmax(x, 1, out=out) is out
    assert_close(out, torch.softmax(x, 1))
    assert_close(ot.mul(x, 2.5), x * 2.5)
    assert_close(ot.clamp(x, max=0.5), x.clamp(max=0.5))
    assert_close(ot.clamp(x, -math.inf, math.inf), x)
    assert_close(ot.leaky_relu(input=x, negative_slope=0.5), F.leaky_relu(x, 0.5))
    assert_close(ot.gelu(x, approximate="tanh"), F.gelu(x, approximate="tanh"))


def test_numbers_of_numpy(device):
    x = torch.linspace(-1, 1, 6, device=device).reshape(2, 3)
    assert_close(ot.softmax(x, np.int64(1)), torch.softmax(x, 1))
    assert_close(ot.sum(x, [np.int32(0)]), x.sum(0))
    assert_close(ot.leaky_relu(x, np.float64(0.5)), F.leaky_relu(x, 0.5))
    assert_close(ot.clamp(x, np.float32(-0.5), np.float16(0.5)), x.clamp(-0.5, 0.5))


def test_equal_numbers_that_are_not_the_same(device):
    """A formula is found again by its numbers: 0.0 is equal to -0.0."""
    x = torch.tensor([-1.0, 1.0], device=device)
    for value in (0.0, -0.0, 0.0):
        assert torch.equal(torch.signbit(ot.threshold(x, 0.0, value)),
                           torch.signbit(F.threshold(x, 0.0, value)))
    ot.softmax(x, 0)
    with pytest.raises(ogive.FormulaError, match="must be an integer"):
        ot.softmax(x, False)


def without_memory(x):
    y = x.clone()
    y.untyped_storage().resize_(0)
    return y


@pytest.mark.filterwarnings("ignore:.*(quantize|[Ss]parse|[Nn]ested)")
@pytest.mark.parametrize("call, exception", [
    (lambda x: ot.silu(x.long()), TypeError),
    (lambda x: ot.silu(x > 0), TypeError),
    (lambda x: ot.sigmoid(x.cfloat()), TypeError),
    (lambda x: ot.sigmoid(x.cpu().numpy(), out=x), TypeError),
    (lambda x: ot.mul(x, x.cpu().numpy()), TypeError),
    (lambda x: ot.linear(x, x.double()), TypeError),
    (lambda x: ot.mul(x, x[0, 0].expand(5)), ValueError),
    (lambda x: ot.softmax(x, 5), ValueError),
    (lambda x: ot.softmax(x), TypeError),
    (lambda x: ot.softmax(x, x), TypeError),
    (lambda x: ot.sigmoid(x, x), TypeError),
    (lambda x: ot.softmax(x, 1, dtype=torch.int32), TypeError),
    (lambda x: ot.gelu(x, approximate="fast"), ogive.FormulaError),
    (lambda x: ot.sigmoid(x.expand(2, 3, 4), out=x.expand(2, 3, 4)), ValueError),
    (lambda x: ot.sigmoid(x[0, 0].expand((1,) * 9)), ValueError),
    (lambda x: ot.sigmoid(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)), TypeError),
    (lambda x: ot.sigmoid(x.to(torch.float8_e4m3fn)), TypeError),
    (lambda x: ot.sigmoid(x.cpu().to_mkldnn()), TypeError),
    (lambda x: ot.sigmoid(x.to_sparse_csr()), TypeError),
    (lambda x: ot.sigmoid(torch.nested.nested_tensor([x, x[:2]])), TypeError),
    (lambda x: ot.sigmoid(without_memory(x)), TypeError),
    (lambda x: ot.sigmoid(x, out=without_memory(x)), TypeError),
    (lambda x: ot.sigmoid(x, out=x.to("meta")), TypeError),
    (lambda x: ot.sigmoid(x, out=x.to_sparse()), TypeError),
    (lambda x: ot.sigmoid.explain(x.to("meta")), TypeError),
    (lambda x: ot.sigmoid.explain(x.to_sparse()), TypeError),
    (lambda x: ot.sigmoid(x.cfloat().conj()), TypeError),
    (lambda x: ot.sigmoid(x, out=x.int()), TypeError),
    (lambda x: ogive.compile("x + y")(x[:2], x[1:], out=x[:2]), ValueError),
    (lambda x: ot.silu(x.long().to("meta")), TypeError),
    (lambda x: ot.add(x, x.to("meta")), RuntimeError),
    (lambda x: ot.add(x.to("meta"), x), RuntimeError),
])
def test_refused(call, exception, data):
    with pytest.raises(exception) as refusal:
        call(data(3, 4))
    if exception is TypeError:  # by our own words, without the stack of C++ functions
        assert "frame #" not in str(refusal.value)


def test_more_than_int32_elements_are_indexed(device):
    # Read through strides, so that little memory is needed.
    x = torch.tensor([1.5], device=device).expand(2**31 + 8)
    assert ot.amax(x).item() == 1.5
    assert ot.sum(x[: 2**20]).item() == 1.5 * 2**20
