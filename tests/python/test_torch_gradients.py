# SPDX-License-Identifier: MIT
"""Gradients of the first and second order through PyTorch's autograd; kinks and ties as
PyTorch has them."""

import inspect
import math
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close

import ogive
import ogive.torch as ot
from ogive.torch import _kept
from ogive.torch._autocast import signatures

# Functions of a tensor alone; those with a kink or a jump have no neighbourhood there.
UNARY = [name for name, parameters, group, _ in ogive._core.functions()
         if group in ("activation", "mathematics")
         and all("=" in each or each in ("input", "*") for each in parameters.split(", "))
         and "None" not in parameters]


def reference(name):
    return getattr(F, name, None) or getattr(torch, name)


@pytest.fixture
def x(device):
    x = torch.linspace(-2.3, 2.9, 12, dtype=torch.float64, device=device)
    return x.reshape(3, 4).requires_grad_()


@pytest.mark.parametrize("name", UNARY)
def test_functions(name, x):
    function = getattr(ot, name)
    if function(x).isnan().any() or function(-x).isnan().any():
        x = x.detach().abs().add(0.1).requires_grad_()
    assert torch.autograd.gradcheck(function, (x,))
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    assert not slope.any() or torch.autograd.gradgradcheck(function, (x,))


def test_absolute_values(device):
    """At 0, too, the gradient's sign, and its NaN."""
    x = torch.tensor([0.0, -0.0, 0.0, 0.0, 2.0, -3.0, math.nan], device=device, requires_grad=True)
    grad = torch.tensor([1.0, -1.0, math.nan, math.inf, -math.inf, 5.0, 7.0], device=device)
    (got,) = torch.autograd.grad(ot.abs(x), x, grad)
    (want,) = torch.autograd.grad(torch.abs(x), x, grad)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got[:2].signbit(), want[:2].signbit())


@pytest.mark.parametrize("eps", [0.0, 1e-12])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_normalize_of_zeros(p, eps, device):
    x = torch.tensor([[0.0, 0, 0], [1, 2, 3]], device=device, requires_grad=True)
    grad = torch.tensor([[1.0, 2, 3], [3, -2, 1]], device=device)
    (got,) = torch.autograd.grad(ot.normalize(x, p, 1, eps), x, grad)
    (want,) = torch.autograd.grad(F.normalize(x, p, 1, eps), x, grad)
    torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-6, equal_nan=True)


def test_roots_of_nothing(device):
    """Where what comes from behind a norm or std of zeros is not finite."""
    x = torch.zeros(3, 4, device=device, requires_grad=True)
    for grad in ([1.0, -1.0, 2.0], [math.nan, math.inf, -math.inf]):
        grad = torch.tensor(grad, device=device)
        for ours, theirs in ((ot.norm(x, 2, 1), torch.linalg.vector_norm(x, 2, 1)),
                             (ot.std(x, 1), torch.std(x, 1))):
            (got,), (want,) = (torch.autograd.grad(each, x, grad) for each in (ours, theirs))
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_quotients(name, x, device):
    """By the divisor: the quotient, rounded as PyTorch rounds it."""
    y = torch.tensor([0.7, -1.3, 2.0, -0.35], dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(ot, name), (x, y))
    specials = [5.25, -5.25, 0.0, -1.0, 3.0, -6.0, 1e-10]
    a = torch.tensor(specials, device=device, requires_grad=True)
    b = torch.tensor([2.0, -2.0, math.inf, -math.inf, 0.0, 3.0, -1.0], device=device)
    for divisor in (b, -b):
        divisor.requires_grad_()
        got = torch.autograd.grad(getattr(ot, name)(a, divisor).sum(), (a, divisor))
        want = torch.autograd.grad(getattr(torch, name)(a, divisor).sum(), (a, divisor))
        for one, other in zip(got, want):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("text, shapes", [
    ("x * w + b", [(3, 4), (4,), (3, 1)]),
    ("x / (w * w + 1)", [(3, 4), ()]),
    ("sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", [(3, 4), (5, 4), (5,)]),
    ("z = linear(x, w, b); z + 2.0 * sigmoid(z)", [(2, 3, 4), (5, 4), (5,)]),
    ("tanh(x @ w)", [(2, 3, 4), (4, 2)]),
    ("softmax(x, 1) * log_softmax(x, 0)", [(3, 4)]),
    ("logsumexp(x, 1), var(x), x ** 3", [(3, 4)]),
    ("layer_norm(x, 4, w, b)", [(3, 4), (4,), (4,)]),
    ("rms_norm(x, 4, w)", [(3, 4), (4,)]),
    ("batch_norm(x, m, v * v, w, b)", [(3, 4, 2), (4,), (4,), (4,), (4,)]),
    ("batch_norm(x, None, None, w, b, true)", [(3, 4, 2), (4,), (4,)]),
    ("instance_norm(x, weight=w, bias=b)", [(2, 3, 4), (3,), (3,)]),
    ("instance_norm(x, m, v * v, use_input_stats=false)", [(2, 3, 4), (3,), (3,)]),
    ("group_norm(x, 2, w, b)", [(2, 4, 3), (4,), (4,)]),
    ("group_norm(tanh(x), 2) * w", [(3, 4), (4,)]),
    ("max(group_norm(x * y, 2), 1)", [(2, 4, 2, 2), (2, 4, 2, 2)]),
    ("group_norm(group_norm(x, 3), 2)", [(2, 6, 3)]),
    ("group_norm(narrow(x, 1, 1, 4), 2)", [(2, 6, 3)]),
    ("sum(group_norm(max_pool2d(x, 2), 3), 1)", [(2, 6, 4, 4)]),
    ("group_norm(conv2d(x, w), 2)", [(2, 3, 4, 4), (4, 3, 3, 3)]),
    ("mean((x - y)**2)", [(3, 4), (3, 4)]),
    ("transpose(x, 0, 1) @ x", [(3, 4)]),
])
def test_formulas(text, shapes, data):
    inputs = [data(*s, dtype=torch.float64).requires_grad_() for s in shapes]
    f = ogive.compile(text)
    assert torch.autograd.gradcheck(f, inputs)
    assert torch.autograd.gradgradcheck(f, inputs)
    strided = [t.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_() if t.dim() else t
               for t in inputs]
    assert torch.autograd.gradcheck(f, strided)


PRODUCTS = [
    ("z = linear(x, w, b); z + 2.0 * sigmoid(z)", [(3, 4), (5, 4), (5,)]),
    ("a * linear(relu(linear(x, fc.0)), fc.1) + x @ t(lambda)", [(3, 2), (3, 4), (5, 4), (2, 5), (2, 4)]),
    ("h = tanh(x); z = linear(h, w); softmax(z, 1), sum(z), h", [(3, 4), (5, 4)]),
    ("x @ x * y, matmul(input=x, other=x)", [(4, 4), (4, 4)]),
    ("linear(linear(x, w), w) * s", [(3, 4), (4, 4), ()]),
]


@pytest.mark.parametrize("text, shapes", PRODUCTS, ids=[text for text, _ in PRODUCTS])
def test_products_that_are_kept(text, shapes, data, monkeypatch):
    f = ogive.compile(text)
    inputs = [data(*s, dtype=torch.float64).requires_grad_() for s in shapes]
    assert _kept.find_cut(f, inputs) is None  # few terms: computed again
    want = f(*inputs)
    monkeypatch.setattr(_kept, "FEWEST_TERMS", 2)
    assert _kept.find_cut(f, inputs) is not None
    got = f(*inputs)
    for a, b in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
        assert torch.equal(a, b) and a.requires_grad
    assert torch.autograd.gradcheck(f, inputs)
    assert torch.autograd.gradgradcheck(f, inputs)
    for i in range(len(inputs)):  # one gradient at a time
        some = [t if j == i else t.detach() for j, t in enumerate(inputs)]
        assert torch.autograd.gradcheck(f, some)
    call = torch.compile(lambda *args: f(*args), backend="aot_eager", fullgraph=True)
    by_call, by_f = (torch.autograd.grad([r.sin().sum() for r in (
        y if isinstance(y, tuple) else (y,))], inputs) for y in (call(*inputs), f(*inputs)))
    for a, b in zip(by_call, by_f):
        assert_close(a, b)
    torch._dynamo.reset()


def test_which_products_are_kept(data):
    f = ogive.compile("z = linear(x, w); sum(z * z)")
    x, w = data(4, 256), data(8, 256).requires_grad_()
    y = f(x, w)
    (saved,) = [t for t in y.grad_fn.saved_tensors if t.shape == (4, 8)]
    assert torch.equal(saved, ot.linear(x, w.detach()))
    assert "gradient: keeps x and the product of x and w: " in f.explain(x, w)
    assert "computes what else it needs again" in f.explain(x[:, :8], w[:, :8])
    assert "gradient" not in f.explain(x, w.detach())
    small = f(x[:, :8], w[:, :8])
    assert [tuple(t.shape) for t in small.grad_fn.saved_tensors] == [(4, 8), (8, 8)]


def test_errors_show_the_text_that_was_written(data):
    f = ogive.compile("z = linear(x, w); z * sigmoid(z)")
    x, w = data(3, 200).requires_grad_(), data(4, 201)
    for call in (f, lambda *inputs: torch.ops.ogive.run(list(inputs), f.text)):
        with pytest.raises(ValueError, match=r"\n  z = linear\(x, w\); z \* sigmoid\(z\)\n"):
            call(x, w)


@pytest.mark.parametrize("text", [
    "linear(x, w) * k" + " + k" * 1500, "linear(x, w) * ogive_kept_0_", "linear(x, a.w) * value.0",
    "linear(x, a.w) * my_ogive_stand_in_0_", "linear(x,\r\n w) * k # it's"], ids=range(5))
def test_products_are_kept_whatever_the_text(text, data):
    x, w, k = data(3, 200).requires_grad_(), data(4, 200).requires_grad_(), data(4)
    f = ogive.compile(text)
    assert _kept.find_cut(f, [x, w, k]) is not None
    y = f(x, w, k)
    assert torch.equal(y.detach(), f(x.detach(), w.detach(), k))
    got = torch.autograd.grad(y.sum(), (x, w))
    want = torch.autograd.grad((F.linear(x, w) * k).sum(), (x, w))
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


def test_more_products_than_results(data):
    """A formula has at most 64 results: the last products are computed again."""
    count = 70
    text = "".join(f"z{i} = linear({f'z{i - 1}' if i else 'x'}, w); " for i in range(count))
    f, x = ogive.compile(text + f"z{count - 1}"), data(3, 128, dtype=torch.float64)
    w = torch.linalg.qr(data(128, 128, dtype=torch.float64))[0]
    x.requires_grad_()
    assert len(_kept.find_cut(f, [x, w]).products) == 63
    got, = torch.autograd.grad(f(x, w).sum(), x)
    want = torch.ones_like(x) @ torch.linalg.matrix_power(w, count)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_parts_travel_as_steps(data):
    """What a cut is made of can be pickled, printed and traced: text and steps."""
    f = ogive.compile("z = linear(x, w, b); z * tanh(z)")
    inputs = [data(3, 200), data(4, 200), data(4)]
    cut = _kept.find_cut(f, inputs)
    assert (cut.whole.formula.steps, cut.tail.formula.steps) == ("0,1", "0,<1")
    assert repr(cut.tail.formula) == f"ogive.compile({f.text!r}).made('0', '<1')"
    y, z = torch.ops.ogive.run(inputs, f.text, "0,1")
    tail = pickle.loads(pickle.dumps(cut.tail.formula))
    assert tail.inputs == ("value.0",) and torch.equal(tail(z), y) and torch.equal(f(*inputs), y)
    for steps, message in (("3", "no value '3'"), ("exp=int8", "a cast is 'exp=int8'")):
        with pytest.raises(ValueError, match=message):
            torch.ops.ogive.run(inputs, f.text, steps)


def test_only_what_is_asked_for(x):
    w = torch.ones(4, dtype=torch.float64, device=x.device)
    f = ogive.compile("x * w, x + w")
    a, b = f(x, w)
    b.sum().backward()  # the other result has no gradient
    assert torch.equal(x.grad, torch.ones_like(x)) and w.grad is None
    assert a.grad_fn is b.grad_fn


def test_third_derivative(device):
    x = torch.tensor([0.3, -0.7], dtype=torch.float64, device=device, requires_grad=True)
    f = ogive.compile("x ** 4 * 2")
    g = x
    y = f(x).sum()
    for _ in range(3):
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        y = g.sum()
    assert_close(g, 48 * x)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kinks(name, dtype, device):
    if name == "hardswish" and torch.__version__ < "2.7":
        pytest.skip("PyTorch changed its derivative at the kinks")
    points = [-6.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 20.0, 20.5]
    a = torch.tensor(points, dtype=dtype, device=device, requires_grad=True)
    b = a.detach().clone().requires_grad_()
    getattr(ot, name)(a).sum().backward()
    reference(name)(b).sum().backward()
    # 1e-7: PyTorch's hardsigmoid and hardswish divide by a float32 6.
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("text, function", [
    ("amax(x, 1)", lambda x, y: torch.amax(x, 1)),
    ("amin(x)", lambda x, y: torch.amin(x)),
    ("maximum(x, y)", torch.maximum),
    ("minimum(x, y)", torch.minimum),
    # At a bound PyTorch 2.15 gives 0, those before it 1, as Ogive.
    pytest.param("clamp(x, -1, 1)", lambda x, y: torch.clamp(x, -1, 1), marks=pytest.mark.skipif(
        torch.__version__ >= "2.15", reason="clamp's gradient at a bound is 0 from PyTorch 2.15 on")),
])
def test_ties(text, function, device):
    x = torch.tensor([[1.0, 1, -1], [0, 0, 0]], device=device, requires_grad=True)
    y = torch.tensor([[1.0, 0, -1], [0, 1, 0]], device=device, requires_grad=True)
    inputs = (x, y) if "y" in text else (x,)
    got = torch.autograd.grad(ogive.compile(text)(*inputs).sum(), inputs)
    want = torch.autograd.grad(function(x, y).sum(), inputs)
    assert all(torch.equal(a, b) for a, b in zip(got, want))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(dtype, data):
    x, w = data(5, 8, dtype=dtype).requires_grad_(), data(3, 8, dtype=dtype).requires_grad_()
    ogive.compile("sum(sigmoid(linear(x, w)), 1)")(x, w).sum().backward()
    a, b = (t.detach().double().requires_grad_() for t in (x, w))
    torch.sigmoid(F.linear(a, b)).sum().backward()
    assert x.grad.dtype == dtype
    assert_close(x.grad, a.grad.to(dtype))
    assert_close(w.grad, b.grad.to(dtype))


def test_saved_inputs_must_not_change(x):
    y = x.detach().clone().requires_grad_()
    z = y * 1
    result = ot.sigmoid(z)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_module_parameters_train(data):
    torch.manual_seed(0)
    x = data(16, 4)
    fc = torch.nn.Linear(4, 3, device=x.device)
    tail = ot.Formula("z = linear(x, fc.weight, fc.bias); sum((z + sigmoid(z))**2)", fc=fc)
    optimizer = torch.optim.SGD(tail.parameters(), 1e-3)
    before = tail(x).item()
    for _ in range(20):
        optimizer.zero_grad()
        tail(x).backward()
        optimizer.step()
    assert tail(x).item() < before * 0.9


def test_checkpoint_and_hooks(x):
    seen = []
    f = ogive.compile("sigmoid(x) * 2")
    y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    y.register_hook(lambda g: seen.append(g.shape))
    y.sum().backward()
    assert seen == [x.shape]
    want = torch.sigmoid(x.detach())
    assert_close(x.grad, 2 * want * (1 - want))


def test_jacobians_and_hessians(x):
    f = ogive.compile("sigmoid(x)")
    point = x.detach()
    jacobian = torch.func.jacrev(f)(point[0])
    s = torch.sigmoid(point[0])
    assert_close(jacobian, torch.diag(s * (1 - s)))
    # By an older vmap than torch.func's.
    assert_close(torch.autograd.functional.jacobian(f, point[0], vectorize=True), jacobian)
    assert_close(torch.func.jacfwd(f)(point[0]), jacobian)
    cubes = ogive.compile("sum(x**3)")
    assert_close(torch.func.hessian(cubes)(point[0]), torch.diag(6 * point[0]))
    assert_close(torch.autograd.functional.hessian(cubes, point[0], vectorize=True),
                 torch.diag(6 * point[0]))


def test_forward_mode(data):
    f = ogive.compile("z = linear(x, w, b); sigmoid(z), sum(z * z, 1)")

    def reference(x, w, b):
        z = F.linear(x, w, b)
        return torch.sigmoid(z), torch.sum(z * z, 1)

    x, w, b, tx, tw = (data(*s, dtype=torch.float64)
                       for s in ((3, 4), (5, 4), (5,), (3, 4), (5, 4)))
    for got, want in zip(torch.func.jvp(lambda x, w: f(x, w, b), (x, w), (tx, tw)),
                         torch.func.jvp(lambda x, w: reference(x, w, b), (x, w), (tx, tw))):
        for a, c in zip(got, want):
            assert_close(a, c)
    assert torch.autograd.gradcheck(ogive.compile("tanh(x @ w)"), (x.requires_grad_(), w.t()
                                    .clone().requires_grad_()), check_forward_ad=True)


def test_threads(data):
    """Forward and backward of one formula in many threads, some without gradients."""
    f = ogive.compile("sum(tanh(linear(x, w)) ** 2)")
    inputs = [(data(n + 1, 6), data(4, 6)) for n in range(8)]
    want = [torch.autograd.grad(f(x, w.requires_grad_()), w)[0] for x, w in inputs]
    wrong = []

    def work(i):
        x, w = inputs[i]
        for _ in range(50):
            if not torch.equal(torch.autograd.grad(f(x, w), w)[0], want[i]):
                wrong.append(i)
            with torch.no_grad():
                if f(x, w).requires_grad:
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_signatures_are_pythons():
    assert list(inspect.signature(ot.softmax).parameters) == ["input", "dim", "dtype", "out"]
    assert list(signatures()["layer_norm"].parameters) == ["input", "normalized_shape", "weight",
                                                           "bias", "eps"]


@pytest.mark.parametrize("text,shapes,saved,same", [
    ("x + y", [(3, 4), (3, 4)], [], [0, 0]),
    ("x + y", [(3, 4), (4,)], [], [0, 1]),
    ("a = x * 2; a + y - b", [(3, 4), (3, 4), (3, 4)], [], [0, 1, 2]),
    ("exp(x + y + 1)", [(3, 4), (3, 4)], [(3, 4), (3, 4)], [0, 0]),
    ("exp(x + y + z)", [(3, 4), (4,), (4,)], [(3, 4), (4,), (4,)], [0, 1, 1]),
    ("x + linear(h, w)", [(3, 4), (3, 200), (4, 200)], [(3, 200), (4, 200)], [0, 1, 2]),
    ("y = x + linear(h, w); y, y * 2", [(3, 4), (3, 200), (4, 200)], [(3, 200), (4, 200)], [0, 1, 2]),
    ("mean(x, 1) * b", [(3, 4), ()], [(3, 4), ()], [0, 1]),
    ("mean(x, 1) + b", [(3, 4), ()], [], [0, 1])])
def test_what_is_saved(text, shapes, saved, same, data):
    """Nothing that no gradient reads, and gradients that are equal are one tensor."""
    f = ogive.compile(text)
    inputs = [data(*shape).requires_grad_() for shape in shapes]
    results = f(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    assert [tuple(each.shape) for each in results[0].grad_fn.saved_tensors] == saved
    weights = [data(*each.shape).requires_grad_() for each in results]
    grads = torch.autograd.grad(results, inputs, weights, create_graph=True)
    places = [each.data_ptr() for each in grads]
    assert [places.index(each) for each in places] == same
    wide = [each.detach().double().requires_grad_() for each in inputs]
    names = dict(zip(f.inputs, wide))
    scope = {"exp": torch.exp, "linear": torch.nn.functional.linear, "mean": torch.mean}
    *first, last = text.split(";")
    for each in first:
        exec(each.strip(), scope, names)
    want = eval(f"({last.strip()},)" if last.count(",") == 1 and "(" not in last else last.strip(),
                scope, names)
    want = want if isinstance(want, tuple) else (want,)
    wide_weights = [each.detach().double().requires_grad_() for each in weights]
    expected = torch.autograd.grad(want, wide, wide_weights, create_graph=True)
    for a, b in zip(grads, expected):
        torch.testing.assert_close(a, b.float(), rtol=1e-4, atol=1e-4)
    # Once more, by everything: what was not saved has no second derivative.
    got = torch.autograd.grad([(g * g).sum() for g in grads], [*inputs, *weights], allow_unused=True)
    want = torch.autograd.grad([(g * g).sum() for g in expected], [*wide, *wide_weights],
                               allow_unused=True)
    for a, b in zip(got, want):
        zero = torch.zeros(())
        torch.testing.assert_close(zero if a is None else a, (zero if b is None else b).float().
                                   expand(() if a is None else a.shape), rtol=1e-3, atol=1e-3)
