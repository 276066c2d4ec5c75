# SPDX-License-Identifier: MIT
"""torch.autograd.grad(..., is_grads_batched=True): the gradients that PyTorch gives, of formulas and of
models compiled with backend="ogive"."""

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close

import ogive.torch as ot


def gradients(call, inputs, grads, **options):
    results = call(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    return torch.autograd.grad(results, inputs, grads, is_grads_batched=True, **options)


def affine(x, w):
    return torch.tanh(x @ w) * 2 + torch.softmax(x, 1).sum()


def two_results(x, w):
    h = torch.sigmoid(x) * w
    return h.sum(1), (h * x).t()


def transposed(x, w):
    return F.gelu(x * w).t(), x.sum(0)


def written(x, w):
    """Called through AOTAutograd's wrappers at the level "aten"."""
    h = x * 1
    h.mul_(w)
    return torch.sigmoid(h) * w, h, h.view(-1)


CASES = [(affine, (4, 4), [(4, 4)]), (two_results, (4, 5), [(4,), (5, 4)]),
         (transposed, (4, 5), [(5, 4), (5,)]), (written, (4, 5), [(4, 5), (4, 5), (20,)])]


@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("function, shape, results", CASES, ids=[case[0].__name__ for case in CASES])
def test_models(function, shape, results, level, data, device):
    torch._dynamo.reset()
    inputs = [data(*shape).requires_grad_() for _ in range(2)]
    grads = [data(3, *shape) for shape in results]
    call = torch.compile(function, backend=ot.backend, options={"level": level})
    want = gradients(function, inputs, grads)
    for _ in range(2):
        for a, b in zip(gradients(call, inputs, grads), want):
            assert a.shape == b.shape
            assert_close(a, b)
    # One at a time, afterwards, as before.
    for a, b in zip(torch.autograd.grad(call(*inputs), inputs, [grad[1] for grad in grads]), want):
        assert_close(a, b[1])


def test_formula(data):
    formula = ot.Formula("a = tanh(x) * w; a, sum(a, 1)")
    x, w = data(4, 5).requires_grad_(), data(5).requires_grad_()
    grads = [data(3, 4, 5), data(3, 4)]

    def same(x, w):
        a = torch.tanh(x) * w
        return a, a.sum(1)

    for a, b in zip(gradients(formula, (x, w), grads), gradients(same, (x, w), grads)):
        assert_close(a, b)
    got = gradients(ot.tanh, (x,), [torch.eye(20).view(20, 4, 5).to(x.device)])
    assert_close(torch.autograd.functional.jacobian(ot.tanh, x, vectorize=True),
                 got[0].view(4, 5, 4, 5))


def test_unused(data):
    torch._dynamo.reset()
    call = torch.compile(lambda x, w: torch.sigmoid(x) * w.detach() * 2, backend=ot.backend,
                         options={"level": "aten"})
    x, w = data(4, 5).requires_grad_(), data(4, 5).requires_grad_()
    by_x, by_w = gradients(call, (x, w), [data(2, 4, 5)], allow_unused=True)
    assert by_x.shape == (2, 4, 5) and by_w is None


def test_second_derivatives(data):
    """The level "torch" has them; "aten" says that it has none."""
    x, v = data(4).requires_grad_(), data(4)
    for level in ("torch", "aten"):
        torch._dynamo.reset()
        call = torch.compile(lambda x: torch.tanh(x) * x, backend=ot.backend, options={"level": level})
        (first,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        rows = torch.eye(4, device=x.device)
        if level == "aten":
            with pytest.raises(RuntimeError, match="'level': 'torch'"):
                torch.autograd.grad(first, x, rows, is_grads_batched=True)
            continue
        (got,) = torch.autograd.grad(first, x, rows, is_grads_batched=True)
        (plain,) = torch.autograd.grad((torch.tanh(x) * x).sum(), x, create_graph=True)
        (want,) = torch.autograd.grad(plain, x, rows, is_grads_batched=True)
        assert_close(got @ v, want @ v)
