# SPDX-License-Identifier: MIT
"""torch.compile without graph breaks, dynamic shapes and how often they recompile,
torch.export, make_fx, torch.func, autocast."""

import io

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from conftest import assert_close
from torch.fx.experimental.proxy_tensor import make_fx

import ogive
import ogive.torch as ot
from ogive.torch import _functions
from ogive.torch._autocast import TENSORS, signatures

LINEAR = "z = linear(x, w, b); sum(z * tanh(z), 1)"


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, backend="aot_eager", **options):
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    return torch.compile(function, backend=counter, fullgraph=True, **options), counter


f = ogive.compile(LINEAR)
g = ogive.compile("sigmoid(x) * s")
pair = ogive.compile("amax(x, 1), x * 2")


def several(x, w, b):
    return (f(x, w, b=b), ot.softmax(x, dim=1), ot.sigmoid(x), g(x, 2.5), ot.gelu(x),
            ot.layer_norm(x, (3,)), ot.add(x, 1.0), ot.mean(x, dim=(0, 1), keepdim=True),
            ot.where(x > 0, x, 0.0), pair(x)[1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_no_graph_break_and_the_same_bits(backend, data):
    call, counter = compiled(several, backend)
    w, b = data(5, 3), data(5)
    for rows in (4, 6, 7, 9):  # the second makes the size dynamic
        x = data(rows, 3)
        for got, want in zip(call(x, w, b), several(x, w, b)):
            assert torch.equal(got, want)
    assert counter.frame_count == 2


def test_gradients_of_compiled_code(data):
    call, counter = compiled(several)
    x, w, b = (t.requires_grad_() for t in (data(4, 3), data(5, 3), data(5)))
    weights = [data(*r.shape) for r in several(x, w, b)]
    want = torch.autograd.grad([(r * s).sum() for r, s in zip(several(x, w, b), weights)], (x, w, b))
    got = torch.autograd.grad([(r * s).sum() for r, s in zip(call(x, w, b), weights)], (x, w, b))
    for a, c in zip(got, want):
        torch.testing.assert_close(a, c, rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.parametrize("text, shapes", [
    ("x + y", lambda n: [(n, 3), (n, 3)]),
    ("x * y", lambda n: [(n, 3), (3,)]),
    ("x * y", lambda n: [(n, 1), (n + 2,)]),
    ("sum(linear(x, w), 1, true)", lambda n: [(n, 3), (4, 3)]),
    ("x @ w", lambda n: [(2, n, n + 1), (n + 1, 4)]),
    ("layer_norm(x, 3)", lambda n: [(n, n + 1, 3)]),
    ("transpose(x, 0, 1) - mean(x)", lambda n: [(n, n + 3)]),
    ("logsumexp(x, (0, 2))", lambda n: [(n, 2, n)]),
])
def test_dynamic_shapes_compile_once(text, shapes, data):
    formula = ogive.compile(text)
    call, counter = compiled(lambda *args: formula(*args), dynamic=True)
    for n in (5, 6, 8, 11):
        inputs = [data(*shape) for shape in shapes(n)]
        assert torch.equal(call(*inputs), formula(*inputs))
    assert counter.frame_count == 1


def test_sizes_that_must_be_equal_are_guarded(data):
    add = ogive.compile("x + y")
    call, counter = compiled(lambda x, y: add(x, y))
    for n in (5, 6):
        x, y = data(n), data(n)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(y, 0)
        assert torch.equal(call(x, y), x + y)
    with pytest.raises(Exception, match="broadcast"):
        call(data(5), data(7))


def test_numbers_do_not_recompile(data):
    call, counter = compiled(lambda x, s: g(x, s))
    x = data(3, 4)
    for s in (0.5, 1.5, 2.5, 3.5):
        assert torch.equal(call(x, s), g(x, s))
    assert counter.frame_count == 2  # the first float is taken for a constant


@pytest.mark.skipif(not _functions._TRACES_GUARDS, reason="PyTorch before 2.9")
def test_numbers_from_sizes(data):
    """A size in a number is a symbol while PyTorch traces, in a list of sizes it is fixed."""
    class Scaled(torch.nn.Module):
        def forward(self, x):
            return g(x, 1.0 / x.shape[0]) + g(x, x.shape[1]) + ot.layer_norm(x, (x.shape[1],))

    model = Scaled()
    x = data(6, 4)
    call, counter = compiled(model, dynamic=True)
    torch.testing.assert_close(call(x), model(x))
    frames = counter.frame_count
    for n in (7, 9, 12):
        torch.testing.assert_close(call(x := data(n, 4)), model(x))
    assert counter.frame_count == frames
    graph = make_fx(model, tracing_mode="symbolic")(x)
    torch.testing.assert_close(graph(x), model(x))
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: rows}}, strict=False)
    torch.testing.assert_close(program.module()(ones := data(5, 4) * 0 + 1), model(ones))


def test_out_in_compiled_code(data):
    def into(x, out):
        ot.sigmoid(x, out=out)
        return out + 1

    call, _ = compiled(into)
    x = data(3, 4)
    out = torch.empty_like(x)
    assert torch.equal(call(x, out), ot.sigmoid(x) + 1)
    assert torch.equal(out, ot.sigmoid(x))


def test_modules_and_wrong_calls(data):
    fc = torch.nn.Linear(3, 5, device=data(1).device)
    tail = ot.Formula("z = linear(x, fc.weight, fc.bias); z + 2.0 * sigmoid(z)", fc=fc)
    call, counter = compiled(tail)
    assert torch.equal(call(data(4, 3)), tail(data(4, 3))) is False  # other numbers each time
    x = data(4, 3)
    assert torch.equal(call(x), tail(x)) and counter.frame_count == 1
    with pytest.raises(Exception, match="missing|Observed exception"):
        compiled(lambda v: f(v))[0](x)
    with pytest.raises(Exception, match="linear|shapes|columns"):
        compiled(lambda v: f(v, v[:, :2], v[:, 0]))[0](x)


def test_a_formula_is_guarded_by_its_text(data):
    box = [ogive.compile("x + 1")]
    call, counter = compiled(lambda x: box[0](x))
    x = data(3)
    assert torch.equal(call(x), x + 1)
    box[0] = ogive.compile("x + 2")
    assert torch.equal(call(x), x + 2)


# ---- export and tracing --------------------------------------------------------------


class Tail(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 5)
        self.tail = ot.Formula("z = linear(x, fc.weight, fc.bias); sum(sigmoid(z), 1)", fc=self.fc)

    def forward(self, x):
        return self.tail(x)


def test_export(data, device):
    model = Tail().to(device)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(model, (data(4, 3),), dynamic_shapes={"x": {0: rows}})
    code = program.graph_module.code
    assert "torch.ops.ogive.run.default" in code and "sum(sigmoid(z), 1)" in code
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    for n in (4, 7):
        x = data(n, 3)
        assert torch.equal(again(x), model(x))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode, data):
    def step(x, w):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(ogive.compile("sum(tanh(x @ w))")(x, w), x)[0]

    x, w = data(4, 3), data(3, 2)
    graph = make_fx(step, tracing_mode=mode)(x, w)
    assert graph.code.count("torch.ops.ogive.run.default") >= 1
    assert_close(graph(x, w), step(x, w))


def test_numbers_from_sizes_in_make_fx(data):
    """Symbols of one name, in traces of other sizes."""
    for n in (8, 16):
        x = data(4, n)
        for call in (lambda x: ot.layer_norm(x, (x.shape[1],)),
                     lambda x: ot.leaky_relu(x, x.shape[1] / 100)):
            assert torch.equal(make_fx(call, tracing_mode="symbolic")(x)(x), call(x))


def test_fake_tensors_need_no_device(data):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        x = torch.empty(4, 8, device="cuda", dtype=torch.float16)
        y = ogive.compile("softmax(x, 1), sum(float32(x))")(x)
    assert [(t.shape, t.dtype, t.device.type) for t in y] == [
        ((4, 8), torch.float16, "cuda"), ((), torch.float32, "cuda")]


# ---- torch.func ----------------------------------------------------------------------


def test_vmap(data):
    x, w = data(6, 4, 3), data(3)
    row = ogive.compile("softmax(x * w, 1)")
    want = torch.stack([row(item, w) for item in x])
    assert torch.equal(torch.vmap(row, (0, None))(x, w), want)
    assert torch.equal(torch.vmap(row, (2, None), 1)(x.permute(1, 2, 0), w), want.transpose(0, 1))
    nested = torch.vmap(torch.vmap(ogive.compile("sum(x)")))(x)
    assert_close(nested, x.sum(2))
    per_sample = torch.vmap(torch.func.grad(lambda v: ogive.compile("sum(tanh(x))")(v)))(x)
    assert_close(per_sample, 1 - torch.tanh(x) ** 2)
    call, _ = compiled(lambda v: torch.vmap(lambda item: ot.sigmoid(item))(v))
    assert torch.equal(call(x), ot.sigmoid(x))


def test_functionalize(data):
    x, f = data(3, 4), ogive.compile("sigmoid(x) * 2")
    assert torch.equal(torch.func.functionalize(lambda v: f(v.clone().add_(1)))(x), f(x + 1))


# ---- autocast --------------------------------------------------------------------------


CHAINS = [
    ("linear(x, w, b)", lambda x, w, b: F.linear(x, w, b)),
    ("x @ t(w)", lambda x, w, b: x @ w.t()),
    ("z = linear(x, w, b); z + 2.0 * sigmoid(z)",
     lambda x, w, b: (lambda z: z + 2.0 * torch.sigmoid(z))(F.linear(x, w, b))),
    ("sum(sigmoid(linear(x, weight=w, bias=b)), dim=1)",
     lambda x, w, b: torch.sum(torch.sigmoid(F.linear(x, w, b)), dim=1)),
    ("softmax(linear(x, w, b), 1), logsumexp(x @ t(w), 1)",
     lambda x, w, b: (torch.softmax(F.linear(x, w, b), 1), torch.logsumexp(x @ w.t(), 1))),
    ("layer_norm(linear(x, w, b), 5)", lambda x, w, b: F.layer_norm(F.linear(x, w, b), (5,))),
    ("x * 2 + exp(x) # no product\n - mean(x ** 3)",
     lambda x, w, b: x * 2 + torch.exp(x) - torch.mean(x ** 3)),
    ("gelu(linear(x, w) + b)", lambda x, w, b: F.gelu(F.linear(x, w) + b)),
]


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("text, chain", CHAINS, ids=[text for text, _ in CHAINS])
def test_autocast_gives_the_dtypes_of_the_eager_chain(text, chain, low, data, device):
    formula = ogive.compile(text)
    tensors = {"x": data(4, 3), "w": data(5, 3), "b": data(5)}
    for dtype in (torch.float32, low):
        inputs = {name: value.to(dtype) for name, value in tensors.items()}
        with torch.autocast(device, low):
            want = chain(**inputs)
            got = formula(**{name: inputs[name] for name in formula.inputs})
        pairs = zip(got, want) if isinstance(want, tuple) else [(got, want)]
        for a, b in pairs:
            assert a.dtype == b.dtype
            assert_close(a, b, torch.bfloat16)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast_products_have_the_bits_of_halves(low, data, device):
    """Casts before a product are kept as halves: it is the product of halves that runs."""
    x, w, b, v = (data(*shape) / 16 for shape in ((96, 256), (128, 256), (128,), (160, 128)))
    half = [t.to(low) for t in (x, w, b)]
    f, g = ogive.compile("gelu(linear(x, w, b))"), ogive.compile("sigmoid(w @ v)")
    with torch.autocast(device, low):
        assert torch.equal(f(x, w, b), f(*half))
        assert torch.equal(g(v, w), g(v.to(low), w.to(low)))
        both = ogive.compile("linear(gelu(linear(x, w, b)), v)")(x, w, b, v)
    assert torch.equal(both, ogive.compile("linear(h, v)")(f(*half), v.to(low)))


@pytest.mark.filterwarnings("error:.*degrees of freedom")
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast_of_every_function(low, data, device):
    others = {"dim": 1, "normalized_shape": (4,), "exponent": 3, "threshold": 0.5, "value": 2.0,
              "min": -0.5, "kernel_size": 2, "output_size": 2, "norm_type": 2.0, "num_groups": 2}
    asked = 0
    masks = {name for name, _, group, _ in ogive._core.functions() if group == "comparison"}
    for name in set(signatures()) & set(ot.__all__) - masks:
        for dtype in (torch.float32, low):
            rank = {"2d": 3, "3d": 4}.get(name[-2:], 2)
            rank += name.startswith("conv") or name == "instance_norm"
            shape = (4,) * rank
            arguments = [data(*shape, dtype=dtype) if parameter in TENSORS else others[parameter]
                         for parameter, meaning in signatures()[name].parameters.items()
                         if meaning.default is meaning.empty or parameter == "min"]
            if name == "prelu":
                arguments[1] = arguments[1][0]
            if name == "batch_norm":
                arguments += [data(4, dtype=dtype), data(4, dtype=dtype).abs()]
            if name == "binary_cross_entropy":
                if device != "cpu":  # PyTorch refuses it there
                    continue
                arguments = [argument.sigmoid() for argument in arguments]
            function = (getattr(F, name, None) or getattr(torch, name, None)
                        or getattr(torch.linalg, name))
            with torch.autocast(device, low):
                got, want = getattr(ot, name)(*arguments), function(*arguments)
            first = [each if isinstance(each, torch.Tensor) else each[0] for each in (got, want)]
            assert first[0].dtype == first[1].dtype, (name, dtype)
            asked += 1
    assert asked > 90


def test_autocast_keywords_and_dotted_names(data, device):
    formula = ogive.compile("lambda = x; linear(lambda, layers.0.weight, in)")
    arguments = {"x": data(4, 3), "layers.0.weight": data(5, 3), "in": data(5)}
    with torch.autocast(device, torch.bfloat16):
        assert formula(**arguments).dtype == torch.bfloat16
    with torch.autocast(device, torch.bfloat16):
        assert formula(**{k: v.double() for k, v in arguments.items()}).dtype == torch.float64


def test_autocast_leaves_nothing_else_in_a_graph(data, device):
    from ogive.torch import _autocast
    _autocast._wanted_dtype.cache_clear()
    _autocast.find_casts.cache_clear()

    def step(x, w):
        with torch.autocast(device, torch.bfloat16):
            return ogive.compile("softmax(x @ w, 1)")(x, w)

    graph = make_fx(step)(data(4, 3), data(3, 2))
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert called == ["ogive.run.default", "<built-in function getitem>"]


@pytest.mark.parametrize("text", [
    "z = linear(x,\r\n w);\r\nz * sigmoid(z)\r\n", "linear(x, w) * 007", "linear(x, w, none);",
    "(" * 220 + "linear(x, w)" + ")" * 220, "# a 'quote\nz = linear(x, w) # it's\n; z + inf",
    "exp(" * 120 + "linear(x, w)" + ")" * 120], ids=range(6))
def test_autocast_reads_every_formula(text, data, device):
    x, w = data(4, 3), data(5, 3)
    formula = ogive.compile(text)
    assert formula(x, w).dtype == torch.float32
    with torch.autocast(device, torch.bfloat16):
        want = torch.exp(F.linear(x, w)) if "exp" in text else F.linear(x, w)
        assert formula(x, w).dtype == want.dtype


def test_autocast_casts_no_numbers(data, device):
    """What is computed of numbers has no dtype that a cast could change."""
    x = data(4, 3)
    with torch.autocast(device, torch.bfloat16):
        assert_close(ogive.compile("exp(-1) * x + exp(inf - 2)")(x), torch.full_like(x, torch.inf))


def test_autocast_casts_the_call_and_not_its_twin(data, device):
    """Functions that are one node without casts, of which autocast casts one alone."""
    from ogive.torch import _autocast
    formula, x = ogive.compile("x ** 2, square(x), mean(x, 1), sum(x, 1)"), data(4, 3)
    low = x.bfloat16()
    with torch.autocast(device, torch.bfloat16):
        want = low ** 2, torch.square(low), torch.mean(low, 1), torch.sum(low, 1)
        got = formula(low)
    assert [t.dtype for t in got] == [t.dtype for t in want]
    for a, b in zip(got, want):
        assert_close(a, b, torch.bfloat16)
    casts = _autocast.find_casts(formula.text, device, torch.bfloat16)
    assert not casts or all(cast.partition("=")[0] in ("pow", "square", "mean", "sum")
                            for cast in casts.split(","))


def test_autocast_trains_and_compiles(data, device):
    fc = torch.nn.Linear(3, 5, device=device)
    tail = ot.Formula("sum(sigmoid(linear(x, fc.weight, fc.bias)), 1)", fc=fc)
    x = data(4, 3)

    def step(x):
        with torch.autocast(device, torch.bfloat16):
            return tail(x)

    y = step(x)
    with torch.autocast(device, torch.bfloat16):
        assert y.dtype == torch.sum(torch.sigmoid(fc(x)), 1).dtype
    y.float().sum().backward()
    assert fc.weight.grad.dtype == torch.float32 and fc.weight.grad.abs().sum() > 0
    call, _ = compiled(step)
    assert torch.equal(call(x), y)
