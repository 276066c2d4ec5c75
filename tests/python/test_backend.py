# SPDX-License-Identifier: MIT
"""torch.compile(model, backend="ogive"): the same results and gradients as eagerly, which
calls become formulas, and what is left alone."""

import re

import hypothesis.strategies as st
import pytest
import torch
import torch._dynamo.testing
import torch.nn as nn
import torch.nn.functional as F
from conftest import DEVICES
from hypothesis import given, settings
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils.checkpoint import checkpoint

import ogive.torch as ot
from ogive.torch import _backend, _cost, _regions


LEVEL = "torch"


@pytest.fixture(autouse=True, params=["torch", "aten"])
def level(request, monkeypatch):
    """Every test at both levels, if it compiles by compiled() or check()."""
    torch._dynamo.reset()
    monkeypatch.setitem(globals(), "LEVEL", request.param)
    yield request.param
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend=ot.backend, options={"level": LEVEL}, **options)


def at_level(module, inputs):
    return _backend.backend(module, inputs, options={"level": LEVEL})


class Texts(list):
    """Of formulas; those of ATen's level are not looked at."""

    def __eq__(self, other):
        return LEVEL != "torch" or list.__eq__(self, other)


@pytest.fixture
def formulas(monkeypatch):
    """The texts that the backend found, in order."""
    found = Texts()
    insert = _backend._insert

    def spy(graph, region, *others):
        found.append(region.text)
        insert(graph, region, *others)

    def spy_aten(module, analysis):
        found.extend(region.text for region in analysis.regions)
        return write(module, analysis)

    write = _backend.write
    monkeypatch.setattr(_backend, "_insert", spy)
    monkeypatch.setattr(_backend, "write", spy_aten)
    return found


def check(function, *inputs, rest="eager", grad=True, tolerance=2e-5, **options):
    """function compiled beside itself: results, and gradients of what requires them."""
    level = {"level": LEVEL} if rest == "eager" else {"rest": rest}
    call = torch.compile(function, backend=ot.backend, options=level, fullgraph=True, **options)
    ours = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    got, want = call(*ours), function(*inputs)
    flat_got, flat_want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
    for a, b in zip(flat_got, flat_want):
        assert a.dtype == b.dtype and a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    if grad:
        parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
        by_ours, by_theirs = ([*(t for t in ts if t.requires_grad), *parameters]
                              for ts in (ours, inputs))
        a = torch.autograd.grad([r.float().sin().sum() for r in flat_got if r.requires_grad], by_ours)
        b = torch.autograd.grad([r.float().sin().sum() for r in flat_want if r.requires_grad], by_theirs)
        for x, y in zip(a, b):
            torch.testing.assert_close(x, y, rtol=10 * tolerance, atol=10 * tolerance)
    return call


class Block(nn.Module):
    """Half a transformer's layer."""

    def __init__(self, n=16):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        h = self.drop(F.gelu(self.up(self.norm(x))))
        return x + self.drop(self.down(h)) * 0.5


@pytest.mark.parametrize("rest", ["eager", "aot_eager"])
def test_a_block(rest, data, device, formulas):
    check(Block().to(device).eval(), data(6, 16).requires_grad_(), rest=rest)
    assert formulas == [
        "gelu(linear(x0, weight=up.weight, bias=up.bias))",
        "x + (linear(x0, weight=down.weight, bias=down.bias) * 0.5)"] or device == "cuda"


def test_random_numbers_are_pytorchs(data, device):
    """The same seed drops the same elements, in the same order."""
    block = Block().to(device)
    call = compiled(block)
    x = data(6, 16)
    call(x)
    torch.manual_seed(3)
    want = block(x)
    torch.manual_seed(3)
    torch.testing.assert_close(call(x), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("function, text", [
    (lambda x, y: torch.sigmoid(x) * 2 + y, "(sigmoid(x) * 2.0) + y"),
    (lambda x, y: x.sigmoid().mul(2).add(y), "(sigmoid(x) * 2.0) + y"),
    (lambda x, y: torch.where(x > y, x, -y).clamp(min=-0.5),
     "clamp(where((x > y), x, neg(y)), min=-0.5)"),
    (lambda x, y: (1 - torch.softmax(x / y.abs(), -1)) ** 2,
     "pow((1.0 - softmax((x / abs(y)), dim=-1)), exponent=2)"),
    (lambda x, y: F.leaky_relu(x - y.mean(1, True), 0.2), None),
    (lambda x, y: (x.exp().sum(dim=(0, 1)), y.double() * 2, (x * y).amax(0)), None),
    (lambda x, y: F.layer_norm(x * y, (8,)) + F.rms_norm(x, (8,)), None),
    (lambda x, y: torch.logsumexp(x * y, 1) / torch.var(y, 1, correction=0), None),
    (lambda x, y: F.softmax(x * y, 1, dtype=torch.float64), "softmax(float64((x * y)), dim=1)"),
    (lambda x, y: torch.add(x, y) - torch.true_divide(x, 3), None),
    (lambda x, y: torch.sub(other=x, input=y) * torch.div(x, other=y), "(y - x) * (x / y)"),
    (lambda x, y: F.linear(input=x, weight=y) * F.dropout(input=x[:, :6] * 2, training=False), None),
    (lambda x, y: F.hardtanh(x * 3) * F.elu(y, 0.5) * F.logsigmoid(x), None),
])
def test_functions_and_operators(function, text, data, formulas):
    check(function, data(6, 8).requires_grad_(), data(6, 8).requires_grad_())
    assert len(formulas) >= 1 and (text in (None, formulas[0]) or LEVEL == "aten")


FLOAT, HALF, DOUBLE = torch.float32, torch.bfloat16, torch.float64


@pytest.mark.parametrize("function, shapes, hopper, others", [
    (lambda x, w: F.linear(x, w), [(4, 128), (128, 128)], [FLOAT], [FLOAT]),
    (lambda x, w: F.linear(x, w).exp(), [(4, 128), (128, 128)], [FLOAT], [FLOAT]),
    (lambda x, w: F.linear(x, w).exp(), [(2, 3, 128), (128, 128)], [FLOAT], [FLOAT]),
    (lambda x, w: F.linear(x, w).exp(), [(4, 64), (128, 64)], [], []),
    (lambda x, w: F.linear(x, w).exp(), [(4, 128), (100, 128)], [], []),
    (lambda x, w: torch.mm(x, mat2=w), [(8, 128), (128, 256)], [FLOAT], []),
    (lambda x, w: (x @ w).exp(), [(2, 4, 128), (128, 256)], [FLOAT], []),
    (lambda x, w: (x @ w).exp(), [(7, 128), (128, 256)], [], []),
    (lambda x, w: (x @ w).exp(), [(128,), (128, 256)], [], []),
    (lambda x, w: torch.bmm(x, w), [(512, 128, 64), (512, 64, 128)], [FLOAT], []),
    (lambda x, w: (x @ w).exp(), [(511, 128, 64), (511, 64, 128)], [], []),
    (lambda x, w: (x @ w).exp(), [(512, 127, 128), (512, 128, 128)], [], []),
    (lambda x, w: (x @ w).exp(), [(2, 4, 512, 512), (2, 1, 512, 512)], [FLOAT], []),
    (lambda x, w: (x @ w).exp(), [(512, 512), (8, 512, 512)], [FLOAT], []),
    (lambda x, w: (x @ w).exp(), [(512,), (2000, 512, 512)], [], []),
])
@pytest.mark.parametrize("dtype", [FLOAT, HALF, DOUBLE])
def test_products_on_a_gpu(dtype, function, shapes, hopper, others, monkeypatch):
    """Those that are ahead of PyTorch's. The GPU need not be there."""
    module = torch.fx.symbolic_trace(function)
    with FakeTensorMode() as mode:
        tensors = [torch.empty(shape, dtype=dtype, device="cuda") for shape in shapes]
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*tensors)
    for architecture, taken in ((9, 0), hopper), ((8, 0), others), ((10, 0), others), ((7, 5), []):
        monkeypatch.setattr(_cost, "architecture", lambda device: architecture)
        found = [region.text for region in _regions.Analysis(module).regions]
        assert len(found) == (dtype in taken), (architecture, found)


def test_products_of_bfloat16_on_a_cpu(monkeypatch):
    """PyTorch's are twice as fast where the CPU has instructions for them, but not of few rows.
    What follows one that is left is joined without it."""
    module = torch.fx.symbolic_trace(lambda x, w: F.linear(x, w).exp() * 2)
    for has in (True, False):
        monkeypatch.setattr(_cost, "cpu_has_bfloat16", lambda: has)
        for dtype, rows, taken in ((HALF, 64, not has), (HALF, 4, True), (FLOAT, 8, True),
                                   (torch.float16, 8, True)):
            with FakeTensorMode() as mode:
                FakeTensorProp(module, mode).propagate_dont_convert_inputs(
                    torch.empty(rows, 4096, dtype=dtype), torch.empty(4096, 4096, dtype=dtype))
            texts = [region.text for region in _regions.Analysis(module).regions]
            assert len(texts) == 1 and ("linear" in texts[0]) == taken, (has, dtype, rows)


@pytest.mark.parametrize("dtype, cast", [(HALF, "bfloat16(z0)"), (torch.float16, "float16(z0)"),
                                         (FLOAT, "z0")])
def test_factor_in_the_same_formula(dtype, cast, monkeypatch):
    """What a product multiplies, computed in its own formula, is a half as in PyTorch: tensor cores do not
    multiply float32 by halves. The GPU need not be there."""
    monkeypatch.setattr(_cost, "architecture", lambda device: (9, 0))

    def function(x, w):
        z = torch.tanh(x) * x + x
        return F.linear(z, w) + z * 2

    module = torch.fx.symbolic_trace(function)
    with FakeTensorMode() as mode:
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(
            torch.empty(64, 4096, dtype=dtype, device="cuda"),
            torch.empty(4096, 4096, dtype=dtype, device="cuda"))
    texts = [region.text for region in _regions.Analysis(module).regions]
    assert texts == [f"z0 = (tanh(x) * x) + x; linear({cast}, weight=w) + (z0 * 2.0)"]


def test_a_call_by_itself(monkeypatch):
    """Is taken where it is estimated to be faster. The GPU need not be there."""
    monkeypatch.setattr(_cost, "architecture", lambda device: (9, 0))
    for function, device, taken in (
            (lambda x: torch.sigmoid(x), "cuda", 0), (lambda x: torch.softmax(x, 1), "cuda", 1),
            (lambda x: F.layer_norm(x, (4096,)), "cuda", 1), (lambda x: x.sum(1), "cuda", 0),
            (lambda x: torch.sigmoid(x), "cpu", 0), (lambda x: F.layer_norm(x, (4096,)), "cpu", 0),
            (lambda x: x.to(torch.float64), "cuda", 0),
            (lambda x: F.group_norm(x.view(64, 64, 64, 64), 8), "cuda", 1),
            (lambda x: F.instance_norm(x.view(64, 64, 64, 64)), "cuda", 1)):
        module = torch.fx.symbolic_trace(function)
        with FakeTensorMode() as mode:
            FakeTensorProp(module, mode).propagate_dont_convert_inputs(
                torch.empty(4096, 4096, device=device))
        assert len(_regions.Analysis(module).regions) == taken, (function, device)


def test_one_value_for_several_users(data, formulas):
    def function(x):
        z = torch.tanh(x) + 1
        return z * 2, z, z.sum(1)

    check(function, data(5, 7).requires_grad_())
    assert formulas == ["z0 = tanh(x) + 1.0; z0, z0 * 2.0, sum(z0, dim=1)"]


@pytest.mark.parametrize("same", [
    lambda x: x.float(), lambda x: x.to(torch.float32), lambda x: x.type_as(x), lambda x: x.to(x),
    lambda x: x.contiguous(), lambda x: x.to(x.device), lambda x: x.to(dtype=torch.float32)])
def test_what_changes_nothing_ends_no_formula(same, data, formulas, device):
    def function(x, w):  # as Hugging Face writes it
        h = same(F.linear(x, w) + x)
        h = h * torch.rsqrt(same(h).pow(2).mean(-1, keepdim=True) + 1e-6)
        return w[0] * same(h), same(x)

    check(function, data(6, 8).requires_grad_(), data(8, 8).requires_grad_())
    assert "rsqrt" in formulas[0]
    if device == "cpu":  # on a GPU a product as small as this may stay with cuBLAS
        assert "linear" in formulas[0] or "@" in formulas[0]
    assert len(formulas) == 1 or LEVEL == "aten"


def test_copies_stay_copies(data, formulas):
    def function(x):
        y = torch.sigmoid(x) * 2
        return y.to(torch.float32, copy=True), y.contiguous(memory_format=torch.channels_last), y

    check(function, data(2, 3, 4, 5).requires_grad_())
    got = compiled(function)(data(2, 3, 4, 5))
    assert got[0].data_ptr() != got[2].data_ptr() != got[1].data_ptr()


def test_clones_end_no_formula(data, formulas):
    """As KernelBench writes a residual."""
    def function(x, y):
        z = torch.sigmoid(x)
        first = z.clone().detach()
        return ((z + y) + first) * torch.clone(first) + first

    check(function, data(5, 7), data(7), grad=False)
    assert len(formulas) == 1 and formulas[0].count("sigmoid") == 1


@pytest.mark.parametrize("behind, shape, joins", [
    (lambda y, s: y * s, (1, 4, 1, 1), True), (lambda y, s: torch.sub(s, y), (4, 1, 1), True),
    (lambda y, s: torch.relu(y) + s, (), True), (lambda y, s: y / s, (2, 1, 1, 1), True),
    (lambda y, s: y * s, (1, 4, 1, 6), False), (lambda y, s: y * s, (6,), False),
    (lambda y, s: F.prelu(y, s), (4,), False), (lambda y, s: torch.cumsum(y, 1) * s, (4, 1, 1), False)])
def test_views_that_divide_dims_end_no_formula(behind, shape, joins, data, formulas):
    """As KernelBench has softmax of an image's places; what moves along divided dims stays behind."""
    def function(x, s):
        y = torch.softmax(torch.tanh(x).view(2, 4, -1) * 2, dim=2)
        return behind(y.view(2, 4, 5, 6), s)

    check(function, data(2, 4, 5, 6).requires_grad_(), data(*shape).requires_grad_())
    if LEVEL == "torch" and joins:
        assert len(formulas) == 1 and "tanh" not in formulas[0] or len(formulas) == 2


@pytest.mark.parametrize("dtype, other", [(torch.float32, torch.float64), (torch.bfloat16, torch.float32)])
def test_a_number_behind_a_view_decides_no_dtype(dtype, other, data):
    def function(x, s):
        return torch.softmax(x * 2, dim=2).view(2, 4, 5, 6) * s

    x, s = data(2, 4, 30, dtype=dtype), data(1, dtype=other)[0]
    torch.testing.assert_close(compiled(function)(x, s), function(x, s))


@pytest.mark.parametrize("extreme", [
    lambda x: torch.min(x, dim=1, keepdim=True)[0], lambda x: x.max(-1)[0], lambda x: x.min(1)[0],
    lambda x: torch.max(input=x, dim=0, keepdim=False)[0], lambda x: torch.min(x, torch.tensor(0.1)),
    lambda x: torch.maximum(x, torch.tensor(-1)) if LEVEL == "aten" else x.maximum(torch.tensor(-0.2))])
def test_greatest_values_are_part_of_formulas(extreme, data, formulas):
    """Of what requires no grad: of equal elements gradients would differ."""
    def function(x):
        return torch.tanh(extreme(torch.sigmoid(x * 2) - 0.5)) + 1

    x = data(5, 7)
    x[2, 3] = float("nan")
    got, want = compiled(function)(x), function(x)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, equal_nan=True)
    if LEVEL == "torch":
        assert len(formulas) == 1 and "sigmoid" in formulas[0] and "tanh" in formulas[0]
    equal = torch.ones(3, 4, requires_grad=True)
    a, b = (torch.autograd.grad(f(equal).sum(), equal)[0] for f in (compiled(function), function))
    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


def test_indices_that_are_read_stay(data):
    def function(x):
        values, indices = torch.max(torch.sigmoid(x) * 2, dim=1)
        return torch.tanh(values) * 2, indices

    check(function, data(5, 7), grad=False)


def test_views_of_what_is_written_stay(data):
    def function(x, s):
        y = torch.softmax(x * 2, dim=2).view(2, 4, 5, 6)
        s.add_(1)
        return y * s

    for level in ("torch", "aten"):
        x, s = data(2, 4, 30), data(1, 4, 1, 1)
        want = function(x, s.clone())
        got = torch.compile(function, backend=ot.backend, options={"level": level})(x, s.clone())
        torch.testing.assert_close(got, want)


def test_no_region_waits_for_itself(data, formulas):
    """tanh and the sum cannot be one formula: the cumulative sum lies between them."""
    def function(x):
        z = torch.tanh(x) * 3
        return torch.exp(torch.cumsum(z, 1) * 0.1) + z

    check(function, data(5, 7).requires_grad_())
    assert formulas[:1] == ["tanh(x) * 3.0"] and len(formulas) == 2 or LEVEL == "aten"


def test_two_regions_do_not_wait_for_each_other(data):
    def function(x, y):
        a, c = torch.tanh(x) * 2, torch.exp(y) * 2
        return torch.cumsum(a, 0) * c.neg(), torch.cumsum(c, 0) * a.neg()

    check(function, data(4, 4).requires_grad_(), data(4, 4).requires_grad_())


def test_writes_keep_their_place(data, formulas):
    def function(x):
        y = x * 2 + 1
        y.add_(x)
        z = y * 3 + x
        y[0] = 0
        return z * 2 - y, y

    check(function, data(4, 4), grad=False)
    check(function, data(4, 4).requires_grad_())


def test_an_input_that_is_written_to_later(data, formulas):
    def function(x):
        y = torch.cumsum(x, 0)
        z = torch.sigmoid(y) * 2
        y.add_(1)  # PyTorch's sigmoid has kept its result, not y
        return z, y

    check(function, data(4, 4).requires_grad_())
    assert formulas == []


def test_results_lie_as_pytorchs(data, formulas):
    def function(x):
        y = torch.sigmoid(x.t()) * 2
        return y, y.t().view(-1)

    check(function, data(4, 6).requires_grad_())
    assert formulas == ["transpose(sigmoid(x0) * 2.0, 0, 1)"]
    images = data(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    check(lambda x: torch.sigmoid(x) * 2 + x.mean(), images.requires_grad_())
    assert LEVEL == "aten" or formulas[1] == "transpose(transpose((sigmoid(x) * 2.0) + mean(x), 1, 2), 2, 3)"


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 1, 4)])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_orders_of_dims(order, shape, data):
    x = data(*shape).permute(order)
    check(lambda x: (torch.tanh(x) * 2 - x, torch.softmax(x * 3, 1)), x.requires_grad_())
    if 1 not in shape:  # else PyTorch's tensors without data have other strides than its results
        check(lambda x: torch.tanh(x[:, :2]) * 2 - x[:, :2].mean(0), x)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast(low, data, device):
    fc = nn.Linear(8, 8, device=device)

    def inside(x):
        with torch.autocast(device, low):
            z = fc(x)
            return z + 2 * torch.sigmoid(z), torch.softmax(z * 2, 1)

    check(inside, data(4, 8), grad=False, tolerance=2e-2)
    with torch.autocast(device, low):
        check(lambda x: torch.sigmoid(fc(x)) * 2, data(4, 8), grad=False, tolerance=2e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype, data):
    check(lambda x, y: (torch.sigmoid(x) * y + 1, x.float() * y), data(4, 8, dtype=dtype),
          data(8, dtype=dtype), grad=False, tolerance=2e-2)


def test_dynamic_shapes(data, formulas):
    block = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Softmax(1))
    block.to(data(1).device)
    counter = torch._dynamo.testing.CompileCounterWithBackend(at_level)
    call = torch.compile(block, backend=counter, fullgraph=True)
    for n in (3, 4, 5, 9):
        x = data(n, 8)
        torch.testing.assert_close(call(x), block(x), rtol=2e-5, atol=2e-5)
    assert counter.frame_count == 2  # the second makes the size dynamic


def test_numbers_do_not_recompile(data):
    counter = torch._dynamo.testing.CompileCounterWithBackend(at_level)
    call = torch.compile(lambda x, s: torch.sigmoid(x) * s + x, backend=counter, fullgraph=True)
    for s in (0.5, 1.5, 2.5, 3.5):
        x = data(3, 4)
        torch.testing.assert_close(call(x, s), torch.sigmoid(x) * s + x)
    assert counter.frame_count == 2


def test_no_grad_and_inference_mode(data):
    call = compiled(lambda x: torch.sigmoid(x) * 2 + x)
    x = data(3, 4).requires_grad_()
    with torch.no_grad():
        assert not call(x).requires_grad
    assert call(x).requires_grad
    with torch.inference_mode():
        assert call(x).is_inference()


def test_what_a_formula_is_not_for(data, formulas):
    def function(x):
        a = x.long() * 2 + 1
        b = torch.fft.fft(x * 1.0)
        return a, b.abs(), x.t()

    check(function, data(4, 6), grad=False)
    assert formulas == []
    check(lambda x: torch.sigmoid(x), data(4, 6), grad=False)  # nothing to join it with
    assert formulas == []


def test_other_backends_for_the_rest(data):
    conv = nn.Conv1d(3, 4, 2).to(data(1).device)
    check(lambda x: torch.sigmoid(conv(x)) * 2 + 1, data(2, 3, 8).requires_grad_(), rest="inductor",
          tolerance=1e-4)
    with pytest.raises(Exception, match="no option 'speed'"):
        torch.compile(conv, backend=ot.backend, options={"speed": 1})(data(2, 3, 8))


def test_torch_func_is_left(data, formulas):
    check(lambda x: torch.vmap(lambda v: torch.sigmoid(v) * 2 + v)(x), data(5, 4).requires_grad_())
    assert formulas == []


@pytest.mark.filterwarnings("ignore:Implicit dimension")
def test_only_what_depends_on_gradients_requires_them(data, formulas):
    def function(x, w):
        h = torch.sigmoid(x) * 2
        return h, h * w, torch.where(w > 0, h, x + 1)

    x, w = data(4), data(4).requires_grad_()
    got = compiled(function)(x, w)
    assert [t.requires_grad for t in got] == [False, True, False] and len(formulas) == 1
    for a, b in zip(got, function(x, w)):
        torch.testing.assert_close(a, b)


def test_a_buffer_is_no_part_of_the_next_graph(data):
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
            return torch.sigmoid(self.fc(x) - self.mean) * 2

    model = Centred().to(data(1).device)
    call = compiled(model)
    for _ in range(3):
        call(data(6, 4)).sum().backward()
    assert not model.mean.requires_grad


def test_a_hook_gets_the_gradient_of_a_value(data):
    def function(x, w):
        h = F.linear(x, w)
        y = torch.sigmoid(h) * 2
        h.register_hook(lambda grad: grad * 3)
        return y

    x, w = data(4, 5).requires_grad_(), data(3, 5)

    def gradient(call):
        return torch.autograd.grad(call(x, w).sum(), x)[0]

    try:
        gradient(torch.compile(function, backend="aot_eager"))
    except TypeError:  # seen with 2.6 and 2.9
        pytest.skip("AOTAutograd of this PyTorch passes None to such a hook, too")
    torch._dynamo.reset()
    got = gradient(compiled(function))
    torch.testing.assert_close(got, gradient(function))


def test_numbers_that_depend_on_the_data(data):
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(lambda x, t: torch.clamp(torch.sigmoid(x) * 2, max=t.item()) + t.item(),
              data(10).requires_grad_(), torch.tensor(0.7))


def test_the_dtype_of_log_softmax_by_position(data, formulas):
    check(lambda x: torch.log_softmax(x * 2, 1, torch.float64).float() + 1,
          data(3, 4).requires_grad_())
    assert formulas == ["float32(log_softmax(float64((x * 2.0)), dim=1)) + 1.0"]


@pytest.mark.parametrize("rest", ["eager", "aot_eager"])
def test_checkpoint_in_a_model(rest, data, device, formulas):
    """Computed again, with the same elements dropped. AOTAutograd draws other numbers for a
    dropout on a GPU than eager PyTorch, so it is compared with itself."""
    model = nn.Sequential(nn.Linear(4, 200), nn.Tanh(), nn.Dropout(0.5), nn.Linear(200, 3)).to(device)

    def function(x):
        return checkpoint(lambda h: torch.sigmoid(model(h)) * 2, x, use_reentrant=False) + 1

    ours = torch.compile(function, backend=ot.backend, options={"rest": rest}, fullgraph=True)
    theirs = function if rest == "eager" else torch.compile(function, backend=rest, fullgraph=True)
    x, results = data(5, 4).requires_grad_(), []
    for each in (ours, theirs):
        torch.manual_seed(3)
        y = each(x)
        torch.manual_seed(4)
        results.append((y, *torch.autograd.grad(y.sum(), [x, *model.parameters()])))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(formulas) == 2 or device == "cuda"


def test_checkpoint_around_a_model(data, device):
    model = nn.Sequential(nn.Linear(200, 8), nn.Tanh()).to(device)
    x = data(5, 200).requires_grad_()
    grads = [torch.autograd.grad(checkpoint(each, x, use_reentrant=False).sum(), x)[0]
             for each in (compiled(model), model)]
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)


def _rope(x):
    """Whose results are not contiguous."""
    x = x.transpose(0, 1)
    first, second = x.chunk(2, -1)
    return x * 2 + torch.cat((-second, first), -1) * 3


def _several_results(x):
    values, _ = torch.sort(x, 1)
    best = torch.topk(values, 2)[0]
    greatest, _ = x.max(1)
    spread, mean = torch.std_mean(x)
    return F.relu(greatest * spread + mean), best, x.shape[0]


def _writes(x):
    y = torch.sigmoid(x) * 2 + 1
    y.add_(1)
    y += x
    y[0] = 0
    return F.silu(y) * 3


def _attention(x):
    weight = x.new_ones(3 * x.shape[1], x.shape[1])
    return F.multi_head_attention_forward(
        x[:, None], x[:, None], x[:, None], x.shape[1], 2, weight, None, None, None, False, 0.0,
        x.new_ones(x.shape[1], x.shape[1]), None, need_weights=False)[0]


@pytest.mark.parametrize("model, named", [
    (_rope, ["neg", "cat", "chunk", "transpose"]),
    (_several_results, ["sort", "topk", "amax", "std_mean", "relu"]),
    (_writes, ["add_", "iadd", "setitem", "sigmoid"]),
    (_attention, ["multi_head_attention_forward"]),
])
def test_explain_accounts_for_every_call(model, named, data):
    calls = []

    def look(module, inputs):
        calls.append(sum(node.op.startswith("call_") for node in module.graph.nodes))
        return module.forward

    x = data(4, 6)
    torch.compile(model, backend=look)(x)
    text = ot.explain(model, x)
    lists = [re.sub(r": .*", "", line.split(": ", 1)[1]) for line in text.splitlines()
             if line.startswith("left")]
    lists += [re.sub(r" \(.*", "", line.split(": ", 1)[1]) for line in text.splitlines()
              if line.startswith("taken")]
    counted = sum(int(count or 1) for each in lists
                  for count in re.findall(r"\w+(?: \((\d+) calls\))?(?:, |$)", each))
    assert len(calls) == 1 and counted == calls[0] == int(
        re.search(r"^(\d+) calls", text, re.M).group(1)), text
    for name in named:
        assert re.search(rf"\b{name}\b", text), text


def test_explain_does_not_deny_what_the_language_has(data):
    """max and conv2d are in it; what is left is left for another reason."""
    text = ot.explain(_several_results, data(4, 6).requires_grad_())
    assert "left: max, std_mean: it gives several tensors at once" in text, text
    text = ot.explain(nn.Conv2d(3, 4, 3).to(data(1).device), data(2, 3, 8, 8))
    assert "left: conv2d: nothing beside it" in text, text


def operators_of(call, *inputs):
    """The names of PyTorch's operators that a call runs, those that others call left out."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call(*inputs)
    return [event.name.removeprefix("aten::") for event in profile.events()
            if event.name.startswith("aten::") and event.cpu_parent is None]


def test_what_no_formula_is_of_use_to_is_not_compiled(data):
    """Dynamo's guards would be all that is added."""
    def function(x):
        return torch.cumsum(torch.sigmoid(x), 0)

    for fullgraph, times in (False, 0), (True, 1):
        torch._dynamo.reset()
        call, x = compiled(function, fullgraph=fullgraph), data(3, 4)
        assert torch.equal(call(x), function(x)) and torch.equal(call(x), function(x))
        code = torch._dynamo.eval_frame._debug_get_cache_entry_list(function)
        assert len(code) == times

    def broken(x):
        y = torch.cumsum(x, 0)
        torch._dynamo.graph_break()
        return torch.sigmoid(y) * 2 + x

    torch.testing.assert_close(compiled(broken)(x), broken(x))
    assert torch._dynamo.eval_frame._debug_get_cache_entry_list(broken)


def test_explain_takes_nothing_that_stays(data):
    """The calls that run as PyTorch's are as many as explain says."""
    x = data(4, 6)
    fast = compiled(_rope)
    fast(x)
    ran = operators_of(fast, x)
    left = int(re.search(r"(\d+) left$", ot.explain(_rope, x)).group(1))
    assert len([name for name in ran if name != "permute"]) <= left, (ran, ot.explain(_rope, x))
    assert not {"mul", "add"} & set(ran)


def test_explain(data, device):
    text = ot.explain(Block().to(device), data(6, 16))
    assert "left: dropout (2 calls): the formula language has no dropout\n" in text
    assert "left: layer_norm, " in text
    if device == "cuda":
        assert "left: linear (2 calls): formulas were not measured to compute such a product" in text
    else:
        assert "layer_norm, linear: nothing beside it that a formula could join it with" in text
        assert re.match(r"taken: linear, gelu \(2 calls, one formula: [\d.]+ us as a formula, [\d.]+ us "
                        r"by PyTorch\)\n    gelu\(linear\(", text), text
        assert re.search(r"join it with \([\d.]+ us as a formula, [\d.]+ us by PyTorch\)\n", text)

    def broken(x):
        y = torch.sigmoid(x) * 2
        torch._dynamo.graph_break()
        return y + 1 - x

    for _ in range(10):  # more often than Dynamo compiles a function again
        assert "graph 1 of 2" in ot.explain(broken, data(3))
    assert "left: softmax, add: a formula refuses it: " in ot.explain(
        lambda x: F.softmax(x, _stacklevel=5) + 1, data(3))
    assert ot.explain(lambda x: x, data(3)) == "nothing to do"


def test_precision(data, formulas):
    x = data(4, 4)
    try:
        ot.set_precision("strict")
        assert ot.Formula("x @ x").formula.precision == "strict"
        assert torch.equal(ot.matmul(x, x), ot.matmul(x, x))
        assert ot.Formula("x @ x", precision="float32").formula.precision == "float32"
        check(lambda x: torch.sigmoid(x @ x) * 2, x, grad=False)
    finally:
        ot.set_precision(None)
    assert ot.Formula("x @ x").formula.precision == "float32"
    if x.device.type == "cpu":
        with pytest.raises(NotImplementedError, match="tf32, but the tensors are on the CPU"):
            ot.Formula("x @ x", precision="tf32")(x)
        try:  # what multiplies nothing has no precision, and products are left to PyTorch
            ot.set_precision("tf32")
            torch.testing.assert_close(ot.softmax(x, 1), torch.softmax(x, 1))
            check(lambda x: torch.sigmoid(x @ x) * 2, x, grad=False)
        finally:
            ot.set_precision(None)
    with pytest.raises(ValueError, match="'strict', 'tf32' or None"):
        ot.set_precision("highest")


# Calls on a pool of tensors of one shape, some of which write to them.
STEPS = [
    lambda a, b: torch.sigmoid(a), lambda a, b: a + b, lambda a, b: a * b - 1, lambda a, b: -a / 2,
    lambda a, b: torch.softmax(a, 1), lambda a, b: a - a.mean(1, keepdim=True),
    lambda a, b: torch.where(a > b, a, b * 0.5), lambda a, b: torch.cumsum(a, 0) * 0.1,
    lambda a, b: a.t(), lambda a, b: F.linear(a, b) * 0.3, lambda a, b: (a @ b.t()).tanh(),
    lambda a, b: F.layer_norm(a, (4,)), lambda a, b: F.dropout(a, 0.5), lambda a, b: a.clone().add_(b),
    lambda a, b: a.double().float() * 0.5, lambda a, b: F.relu(a * 1.0, inplace=True),
    lambda a, b: a.view(-1).view(4, 4) if a.is_contiguous() else a.contiguous(),
    lambda a, b: F.dropout(a, 0.5, False), lambda a, b: torch.maximum(a, b).exp().clamp(max=3.0),
]


def write(a, b):
    a.mul_(0.5).add_(b.detach())
    return a


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(-1, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)),
                min_size=2, max_size=12), st.booleans(), st.integers(0, 1000))
def test_random_programs(device, steps, training, seed):
    """What the backend makes of a program gives what the program gives. Some of them write
    to tensors in ways that gradients do not allow: PyTorch's refusal is as good as ours."""
    torch._dynamo.reset()

    def program(x, y):
        pool = [x * 1, y * 1]
        for step, i, j in steps:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            pool.append(write(a, b) if step < 0 else STEPS[step](a, b))
        return tuple(pool[-4:])

    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(4, 4, generator=generator).to(device).requires_grad_(training) for _ in "xy")

    def outcome(function):
        torch.manual_seed(seed)
        try:
            results = function(x, y)
            grads = [] if not training else torch.autograd.grad(
                [(r * r).sum() for r in results if r.requires_grad], (x, y), allow_unused=True)
        except RuntimeError as error:
            return str(error)
        return results, [torch.zeros_like(x) if g is None else g for g in grads]

    want = outcome(program)
    if isinstance(want, str):
        return
    got = outcome(compiled(program))
    assert not isinstance(got, str), got
    for a, b in zip(got[0], want[0]):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    for a, b in zip(got[1], want[1]):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
