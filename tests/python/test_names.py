# SPDX-License-Identifier: MIT
"""Names in formulas that tensors have, too: transposes, and what could be meant as an attribute;
what tools are told about the package's own names."""

import numpy as np
import pytest
import torch

import ogive
import ogive.torch as ot


def test_transposes_are_attributes():
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    torch.testing.assert_close(ogive.compile("x.T @ y")(x, y), x.T @ y)
    z = torch.randn(2, 3, 4)
    torch.testing.assert_close(ogive.compile("(z * 2).mT + z.mT")(z), z.mT * 3)
    assert ogive.compile("fc.weight.T").inputs == ("fc.weight",)
    w = torch.randn(128, 3, requires_grad=True)
    a = torch.randn(3, 128, requires_grad=True)
    text = "z = a @ w; sum(z.T * z)"  # a kept product
    got = torch.autograd.grad(ogive.compile(text)(a, w), (a, w))
    p = a @ w
    for each, want in zip(got, torch.autograd.grad((p.T * p).sum(), (a, w))):
        torch.testing.assert_close(each, want, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert ogive.compile("z = a @ w.T.T; z.T")(a, w).dtype == torch.bfloat16


def test_a_name_that_may_be_an_attribute_is_given_by_name():
    x = np.ones((2, 3), np.float32)
    formula = ogive.compile("x.mean * 2")
    with pytest.raises(TypeError, match=r"write mean\(x\); a tensor that is called so is given by"):
        formula(x)
    assert (formula(**{"x.mean": x}) == 2).all()
    with pytest.raises(TypeError, match="does not know the shape of a tensor x"):
        ogive.compile("x.shape * 2")(x)
    with pytest.raises(TypeError, match="by position"):
        ogive.compile("x.mean * y").gradient("y")(x, x, x)
    assert (ogive.compile("fc.weight + fc.bias")(x, x) == 2).all()
    y = torch.ones(2, 3, requires_grad=True)
    ogive.compile("stats.mean * y")(y=y, **{"stats.mean": y}).sum().backward()
    with pytest.raises(Exception, match="by position"):  # Dynamo's, around a TypeError
        torch.compile(ogive.compile("x.mean * 2"), backend="eager", fullgraph=True)(y)


def test_signatures():
    import inspect
    assert str(inspect.signature(ogive.compile)) == "(text, precision='float32')"
    assert str(inspect.signature(ogive.compile("x").explain)) == "(*inputs, **named)"
    assert str(inspect.signature(ogive.compile("x").gradient)) == "(*names)"


def test_sparse_tensors_are_refused_in_one_line():
    with pytest.raises(TypeError, match="layout torch.sparse_coo: expected a dense one") as error:
        ogive.compile("x * 2")(torch.eye(3).to_sparse())
    assert "\n" not in str(error.value)


def test_numpys_names_and_the_older_signature_of_var():
    x = torch.randn(3, 4)
    for name in ("sum", "mean", "amax", "softmax", "log_softmax", "logsumexp", "var", "std"):
        ours, theirs = getattr(ot, name), getattr(torch, name)
        torch.testing.assert_close(ours(x, axis=1), theirs(x, axis=1))
        if "softmax" not in name:
            torch.testing.assert_close(ours(x, axis=0, keepdims=True),
                                       theirs(x, axis=0, keepdims=True))
    for name in ("var", "std"):
        ours, theirs = getattr(ot, name), getattr(torch, name)
        for args, named in [((1, False), {}), ((1, True, True), {}), ((False,), {}), ((1,), {}),
                            ((1,), {"unbiased": False}), ((), {"unbiased": False}), ((), {}),
                            (((0, 1),), {"unbiased": False, "keepdim": True}),
                            ((1,), {"correction": 0, "keepdim": True})]:
            torch.testing.assert_close(ours(x, *args, **named), theirs(x, *args, **named))
            call = torch.compile(lambda x: theirs(x * 2, *args, **named) + 1, backend=ot.backend)
            torch.testing.assert_close(call(x), theirs(x * 2, *args, **named) + 1)
    assert "taken: mul, var, add" in ot.explain(lambda x: torch.var(x * 2, 1, False) + 1, x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        ot.sum(x, axes=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'keepdims'"):
        ot.softmax(x, 1, keepdims=True)


def test_modes_of_torch_compile():
    x = torch.randn(3)
    call = torch.compile(lambda x: torch.sigmoid(x) * 2, backend=ot.backend, mode="default")
    torch.testing.assert_close(call(x), torch.sigmoid(x) * 2)
    # Nothing is recorded on a CPU.
    call = torch.compile(lambda x: torch.sigmoid(x) * 3, backend=ot.backend, mode="reduce-overhead")
    torch.testing.assert_close(call(x), torch.sigmoid(x) * 3)
    with pytest.raises(Exception, match="no mode 'max-autotune'.*'reduce-overhead'"):
        torch.compile(lambda x: torch.sigmoid(x) * 4, backend=ot.backend, mode="max-autotune")(x)


def test_completion_shows_what_is_imported_late():
    assert {"explain", "backend", "Formula", "softmax"} <= set(dir(ot))
    assert "Any" not in dir(ot)


def test_a_gradient_prints_its_formula():
    f = ogive.compile("x * sigmoid(x)")
    assert str(f) == "x * sigmoid(x)" and repr(f) == "ogive.compile('x * sigmoid(x)')"
    text = str(f.gradient("x"))
    assert text == "t0 = sigmoid(x); grad * t0 + grad * x * (1 - t0) * t0"
    x, grad = torch.randn(5), torch.randn(5)
    torch.testing.assert_close(ogive.compile(text)(x=x, grad=grad), f.gradient("x")(x, grad))
