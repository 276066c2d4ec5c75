# SPDX-License-Identifier: MIT
"""Which door a call on PyTorch tensors takes: straight to the kernels when nothing needs
the dispatcher, else the operator. One test per thing that needs it, each with what would
be wrong without; all of them for both ways of asking PyTorch (core_torch.c)."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import ogive
from ogive import _core
from ogive.torch import _operator

f = ogive.compile("sigmoid(x)")


@pytest.fixture(autouse=True, params=["quick", "slow"])
def doors(request):
    """The doors that calls took, in order."""
    taken = []

    def spy(name):
        def call(*args):
            taken.append(name)
            return _operator.doors[name](*args)
        return call

    table = dict(_operator.doors, operator=spy("operator"), gradient=spy("gradient"))
    if request.param == "slow":
        table["quick"] = {}
    else:
        assert len(table["quick"]) == 8  # found in this PyTorch
    _core._register_torch(table)
    yield taken
    _core._register_torch(_operator.doors)


@pytest.fixture
def x(device):
    return torch.linspace(-3, 3, 12, device=device).reshape(3, 4)


def want(x):
    return torch.sigmoid(x.detach().double()).to(x.dtype)


def check(result, x):
    torch.testing.assert_close(result, want(x), rtol=1e-6, atol=1e-6)


def test_plain_tensors_go_straight(doors, x):
    check(f(x), x)
    check(f(torch.nn.Parameter(x, requires_grad=False)), x)
    check(f(x, out=torch.empty_like(x)), x)
    check(f(x.t()), x.t())
    assert doors == []
    assert ogive.compile("x * s")(x, 2.0)[0, 0] == -6
    assert doors == (["operator"] if x.is_cuda else [])  # the number has to get to the GPU


def test_no_grad_mode_and_inference_mode_go_straight(doors, x):
    parameter = torch.nn.Parameter(x)
    with torch.no_grad():
        result = f(parameter)
        check(result, x)
        assert not result.requires_grad
    with torch.inference_mode():
        check(f(parameter), x)
        check(f(torch.sigmoid(x) * 0 + x), x)
    assert doors == []


def test_requires_grad(doors, x):
    x.requires_grad_()
    result = f(x)
    assert result.requires_grad and doors == ["gradient"]
    result.sum().backward()
    torch.testing.assert_close(x.grad, want(x) * (1 - want(x)), rtol=1e-5, atol=1e-6)


def test_requires_grad_of_any_input(doors, x):
    w = torch.ones(4, device=x.device, requires_grad=True)
    ogive.compile("x * s * w")(x, 2.0, w).sum().backward()
    assert doors == (["operator"] if x.is_cuda else ["gradient"])
    torch.testing.assert_close(w.grad, (2 * x).sum(0))


@pytest.mark.parametrize("which", ["input", "out"])
def test_requires_grad_with_out_is_refused(doors, x, which):
    out = torch.empty_like(x, requires_grad=which == "out")
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        f(x.requires_grad_(which == "input"), out=out)
    assert doors == ["operator"]
    with torch.no_grad():
        check(f(x, out=out), x)


def test_out_counts_as_written(doors, x):
    a = torch.randn_like(x, requires_grad=True)
    saved = torch.zeros_like(x)
    loss = (a * saved).sum()  # keeps saved for a's gradient
    f(x, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert doors == []


class Logged(torch.Tensor):
    """A subclass that sees PyTorch's functions."""
    log: list = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.log.append(str(function))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_tensor_subclass(doors, x):
    Logged.log.clear()
    result = f(x.as_subclass(Logged))
    assert doors == ["operator"] and type(result) is Logged
    assert any("ogive" in entry for entry in Logged.log)
    check(result.as_subclass(torch.Tensor), x)


class Wrapped(torch.Tensor):
    """A subclass without memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype,
                                                   device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        unwrap = lambda t: t.inner if isinstance(t, Wrapped) else t  # noqa: E731
        args = torch.utils._pytree.tree_map(unwrap, args)
        result = function(*args, **(kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, Wrapped, result)


def test_wrapper_subclass(doors, x):
    result = f(Wrapped(x))
    assert doors == ["operator"] and type(result) is Wrapped
    check(result.inner, x)


def test_out_of_a_subclass(doors, x):
    out = torch.empty_like(x).as_subclass(Logged)
    assert f(x, out=out) is out and doors == ["operator"]
    check(out.as_subclass(torch.Tensor), x)


def test_one_tensor_for_two_outputs(x):
    two = ogive.compile("x + 1, x * 2")
    with pytest.raises(ValueError, match="overlap"):
        two(x, out=(x.clone(),) * 2)
    with torch.autocast(x.device.type, torch.bfloat16), pytest.raises(ValueError, match="one tensor"):
        two(x, out=(x.clone(),) * 2)


def test_torch_func(doors, x):
    check(torch.func.vmap(f)(x), x)
    check(torch.func.vmap(f, in_dims=1, out_dims=1)(x), x)
    gradient = torch.func.grad(lambda v: f(v).sum())(x)
    torch.testing.assert_close(gradient, want(x) * (1 - want(x)), rtol=1e-5, atol=1e-6)
    assert set(doors) == {"operator"}


def test_forward_mode(doors, x):
    """A dual tensor is a plain one that carries a tangent: it must not be lost."""
    with torch.autograd.forward_ad.dual_level():
        result = torch.autograd.forward_ad.unpack_dual(
            f(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))))
        assert torch.autograd.forward_ad.unpack_dual(f(x)).tangent is None
    check(result.primal, x)
    torch.testing.assert_close(result.tangent, want(x) * (1 - want(x)), rtol=1e-5, atol=1e-6)
    assert set(doors) == {"operator"}
    doors.clear()
    check(f(x), x)
    assert doors == []


class Modes:
    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Modes.Dispatch, Modes.Function])
def test_modes(doors, x, kind):
    mode = kind()
    mode.seen = []
    with mode:
        result = f(x)
    check(result, x)
    assert doors == ["operator"] and any("ogive" in name for name in mode.seen)


def test_fake_tensors(doors, x):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        result = f(mode.from_tensor(x))
    assert result.shape == (3, 4) and result.dtype == torch.float32
    assert doors == ["operator"]


def test_autocast(doors, x):
    product = ogive.compile("x @ y")
    with torch.autocast(x.device.type, torch.bfloat16):
        assert product(x, x.t()).dtype == torch.bfloat16
        with torch.autocast(x.device.type, enabled=False):
            assert product(x, x.t()).dtype == torch.float32
    assert product(x, x.t()).dtype == torch.float32
    assert doors == ["operator"]


def test_torchscript_tracing(doors, x):
    traced = torch.jit.trace(lambda v: f(v), (x,))
    assert "ogive::run" in str(traced.graph) and "operator" in doors
    check(traced(x + 1), x + 1)


def test_dynamo(doors, x):
    seen = []

    def backend(graph, example):
        seen.append(graph.code)
        return graph.forward

    compiled = torch.compile(lambda v: f(v), backend=backend, fullgraph=True)
    check(compiled(x), x)
    assert len(seen) == 1 and "torch.ops.ogive.run" in seen[0]
    torch._dynamo.reset()


def test_negative_bit(doors, x):
    z = torch.complex(x, x)
    imaginary = z.conj().imag  # -x, lazily: memory holds x
    assert imaginary.is_neg()
    check(f(imaginary), -x)
    check(f(torch._neg_view(x)), -x)
    assert doors == ["operator"] * 2


def test_sparse_and_meta_tensors(doors, x):
    with pytest.raises(TypeError, match="layout torch.sparse_coo.*to_dense"):
        f(x.to_sparse())
    result = f(x.to("meta"))
    assert result.device.type == "meta" and result.shape == (3, 4)
    assert doors == ["operator"] * 2


def test_a_gradient_of_what_cannot_be_lent(doors, x):
    result = f(x.to("meta").requires_grad_())
    assert result.device.type == "meta" and result.requires_grad and doors == ["operator"]
    with pytest.raises(TypeError, match="layout torch.sparse_coo.*to_dense"):
        f(x.to_sparse().requires_grad_())


def test_functional_wrappers_have_no_memory(doors, x):
    wrapped = torch._to_functional_tensor(x)
    torch._enable_functionalization(reapply_views=True)
    try:
        result = torch._from_functional_tensor(f(wrapped))
    finally:
        torch._disable_functionalization()
    check(result, x)
    assert doors == ["operator"]


def test_the_operator_itself(x, doors):
    """torch.ops.ogive.run comes to the dispatcher only with what needs it, too."""
    dispatched = []

    def spy(*args, **named):
        dispatched.append(len(args))
        return _operator.doors["dispatch"](*args, **named)

    _core._register_torch(dict(_operator.doors, dispatch=spy))
    run = torch.ops.ogive.run
    for call in (run, run.default):
        check(call([x], "sigmoid(x)")[0], x)
        check(call([x], "sigmoid(x)", "", "float32")[0], x)
        assert [r.shape for r in call([x], "sum(x), x * 2")] == [(), (3, 4)]
    assert dispatched == []
    run([x], formula="x * 2")
    run([x], "x * 2", "", "strict")
    run([x, x], "x * 2", "x")  # the gradient
    run([x.detach().requires_grad_()], "x * 2")
    run([x.as_subclass(Logged)], "x * 2")
    run([x.to("meta")], "x * 2")
    with torch.autocast(x.device.type, torch.bfloat16):
        assert run([x, x.t()], "x @ y")[0].dtype == torch.bfloat16
    torch.vmap(lambda v: run([v], "x * 2")[0])(x)
    mode = Modes.Dispatch()
    mode.seen = []
    with mode:
        run([x], "x * 2")
    assert "ogive.run.default" in mode.seen and len(dispatched) >= 9


@pytest.mark.parametrize("arguments, exception", [
    (([], "x * 2"), NotImplementedError),
    ((["x"], "x * 2"), RuntimeError),
    (([2.0], "x * 2"), RuntimeError),
    ((None, "x * 2"), RuntimeError),
    (([torch.ones(2)], 3), RuntimeError),
    (([torch.ones(2)], "sigmod(x)"), ogive.FormulaError),
    (([torch.ones(2), torch.ones(2)], "x * 2"), TypeError),
    (([torch.ones(2), torch.ones(3)], "x * y"), ValueError),
    (([torch.ones(2, dtype=torch.int32)], "x * 2"), TypeError),
    (([torch.ones(2)], "x * 2", "w"), ValueError),
    (([torch.ones(2)], "x * 2", "", "fast"), ValueError),
])
def test_wrong_calls_of_the_operator(doors, arguments, exception):
    with pytest.raises(exception):
        torch.ops.ogive.run(*arguments)
