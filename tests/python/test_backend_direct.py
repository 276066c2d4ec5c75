# SPDX-License-Identifier: MIT
"""Models whose compiled graphs are called without AOTAutograd's wrappers (ogive.torch._direct): which
ones, and that gradients, their order and what is kept for them are PyTorch's."""

import gc
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import ogive.torch as ot
from ogive.torch import _backend


class Block(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(n), nn.Linear(n, 2 * n), nn.Linear(2 * n, n)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


@pytest.fixture
def made(monkeypatch):
    """What was made of each graph: Direct objects, in order."""
    found = []

    class Spy(_backend.Direct):
        def __init__(self, *args):
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(_backend, "Direct", Spy)
    torch._dynamo.reset()
    return found


def compiled(function, **options):
    return torch.compile(function, backend=ot.backend, options={"level": "aten"}, **options)


def gradients(call, model, x, times=1):
    """After so many steps, that of each added up."""
    model.zero_grad()
    x.grad = None
    for _ in range(times):
        call(x).square().mean().backward()
    return [x.grad, *(each.grad for each in model.parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_training(made, data, device, dtype):
    torch.manual_seed(0)
    model, x = Block().to(device, dtype), data(5, 8, dtype=dtype).requires_grad_()
    call = compiled(model)
    for times in (1, 3):
        got, want = gradients(call, model, x, times), gradients(model, model, x, times)
        rtol = 5e-2 if dtype == torch.bfloat16 else 1e-5
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)
    assert [each.call is not None for each in made] == [True]
    assert "Ogive" in call(x).grad_fn.name()
    with torch.no_grad():
        torch.testing.assert_close(call(x), model(x), rtol=rtol, atol=rtol)
    assert [each.call is not None for each in made] == [True, True]


def test_what_is_not_plain(made, data):
    """It goes through AOTAutograd's wrappers, and is right."""
    def writes(x, y):
        y.add_(1)
        return torch.sigmoid(x) * 2 + y

    def returns_part(x, y):
        z = torch.sigmoid(x) * 2 + y
        return z[1:], z

    def returns_input(x, y):
        return x.t(), torch.sigmoid(x) * 2 + y

    for function in (writes, returns_part, returns_input):
        made.clear()
        x, y = data(4, 3).requires_grad_(), data(4, 3)
        other = y.clone()
        got, want = compiled(function)(x, y), function(x, other)
        for a, b in zip(got, want) if isinstance(want, tuple) else ((got, want),):
            torch.testing.assert_close(a, b)
        assert torch.equal(y, other)
        got[-1].sum().backward()
        assert x.grad is not None
        assert [each.call for each in made] == [None]


def test_autocast_and_sizes(made, data, device):
    model, x = Block().to(device), data(5, 8)
    call = compiled(model)
    with torch.autocast(device, torch.bfloat16):
        torch.testing.assert_close(call(x), model(x), rtol=5e-2, atol=5e-2)
    assert [each.call for each in made] == [None]
    made.clear()
    call = compiled(lambda x: torch.sigmoid(x) * 2 + x, dynamic=True)
    for n in (3, 4, 7):
        x = data(n, 2).requires_grad_()
        call(x).sum().backward()
        s = torch.sigmoid(x.detach())
        torch.testing.assert_close(x.grad, 2 * s * (1 - s) + 1)
    assert [each.call for each in made] == [None]


def test_several_results(made, data):
    """Of which some have no gradient, or nobody asks for it; and an input that has none."""
    def function(x, y, z):
        h = torch.sigmoid(x * y)
        return h * 2, (h > 0.5).float() * 3, torch.exp(y) + x, z.detach() * x.detach()

    call = compiled(function)
    for which in ((0,), (2,), (0, 2)):
        inputs = [data(3, 4).requires_grad_() for _ in range(3)]
        got, want = call(*inputs), function(*inputs)
        assert [each.requires_grad for each in got] == [each.requires_grad for each in want]
        of = [sum(results[i].sum() for i in which) for results in (got, want)]
        for a, b in zip(*(torch.autograd.grad(each, inputs, allow_unused=True) for each in of)):
            assert (a is None or not a.any()) if b is None else torch.allclose(a, b, atol=1e-6)
    assert [each.call is not None for each in made] == [True]


def test_strides_of_gradients(made, data):
    """A gradient comes as sum() expands it, or transposed."""
    x = data(4, 6).requires_grad_()
    call = compiled(lambda x: torch.sigmoid(x) * 2 + x)
    scale = data(6, 4)
    for read in (torch.sum, lambda y: (y.t() * scale).sum(), lambda y: y[:, 1].sum()):
        got, = torch.autograd.grad(read(call(x)), x)
        want, = torch.autograd.grad(read(torch.sigmoid(x) * 2 + x), x)
        torch.testing.assert_close(got, want)
    assert made[0].call is not None


def test_what_is_kept(made, data):
    """Graphs can be kept or not, what was written to meanwhile is found, memory is let go."""
    model, x = Block().to(data(1).device), data(5, 8).requires_grad_()
    call = compiled(model)
    total = call(x).sum()
    first, = torch.autograd.grad(total, x, retain_graph=True)
    assert torch.equal(torch.autograd.grad(total, x)[0], first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(total, x)
    total = call(x).sum()
    with torch.no_grad():
        model.down.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
    product, w = compiled(lambda x, w: torch.sigmoid(x @ w) * 2), data(8, 8).requires_grad_()
    total = product(x, w).sum()  # keeps w transposed
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
    assert all(each.call is not None for each in made)
    result = call(x * 1)
    alive = weakref.ref(result)
    result.sum().backward()
    del result
    gc.collect()
    assert alive() is None


def test_second_derivatives(made, data):
    """By whatever they are asked for: an input, a parameter, what an input was computed of."""
    model, x = Block().to(data(1).device), data(5, 8).requires_grad_()
    call, h = compiled(model), data(5, 8).requires_grad_() * 2
    for given, by in (x, x), (x, model.up.weight), (h, h), (x * 2, x):
        result, = torch.autograd.grad(call(given).sum(), model.up.weight, create_graph=True)
        torch.testing.assert_close(
            result, torch.autograd.grad(model(given).sum(), model.up.weight)[0], rtol=1e-4, atol=1e-5)
        with pytest.raises(RuntimeError, match="level': 'torch'"):
            torch.autograd.grad(result.sum(), by, allow_unused=True)
    assert made[0].call is not None


@pytest.mark.filterwarnings("ignore")
def test_gradients_compiled_as_a_whole(made, data):
    """By compiled autograd, around what was compiled before it or with it."""
    from torch._dynamo import compiled_autograd
    enable = getattr(compiled_autograd, "_enable", None) or compiled_autograd.enable
    model, x = Block().to(data(1).device), data(5, 8).requires_grad_()
    call, want = compiled(model), gradients(model, model, x)
    for _ in range(2):
        with enable(torch.compile(backend="eager")):
            for a, b in zip(gradients(call, model, x), want):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
