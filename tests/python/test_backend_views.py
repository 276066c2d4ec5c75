# SPDX-License-Identifier: MIT
"""Graphs of ATen's operators in which views stand between calls that are one formula."""

import copy
import re

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from ogive import torch as ot
from ogive.torch import _cost


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Estimates are those of a GPU, on which all of this pays."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setattr(_cost, "_machine", lambda device: "sm_90")


def gradient_of(model, *inputs):
    """What explain() says of the gradient, which is right."""
    text = ot.explain(model, *inputs, options={"level": "aten"})
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend=ot.backend, options={"level": "aten"}, fullgraph=True)
    mine, theirs = ([each.detach().clone().requires_grad_() for each in inputs] for _ in range(2))
    for got, want in [(compiled(*mine), model(*theirs))]:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        got.sin().sum().backward()
        want.sin().sum().backward()
    pairs = [*zip(mine, theirs), *zip(other.parameters(), model.parameters())]
    for (a, b) in pairs:
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)
    return text.partition("its gradient:")[2]


class Attention(nn.Module):
    """Queries, keys and values are parts of one product."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 5, 3, 4, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v)


def test_parts_are_put_side_by_side():
    text = gradient_of(Attention(), torch.randn(2, 5, 16, requires_grad=True))
    assert "select_scatter" not in text and "new_zeros" not in text
    assert "left: cat:" in text


class Unequal(nn.Module):
    """Parts of which one has no gradient."""

    def forward(self, x):
        return x[0] * 2 + x[2].exp()


def test_parts_with_gaps():
    gradient_of(Unequal(), torch.randn(3, 4, requires_grad=True))


def test_gradients_of_biases():
    """Sums over the rows of views join what they are of."""
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    text = gradient_of(model, torch.randn(2, 5, 8, requires_grad=True))
    assert "sum(z0, dim=[0, 1], keepdim=False)" in text, text


def test_norms_are_one_formula():
    """Nothing of a convolution's shape is kept between the sums and what reads them."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    text = gradient_of(model, torch.randn(2, 3, 6, 6, requires_grad=True))
    assert text.count("taken:") == 1, text


class Gate(nn.Module):
    def forward(self, x, y):
        return F.silu(x) * y


def test_what_reads_the_same():
    """Both gradients of a gate are one formula."""
    text = gradient_of(Gate(), *(torch.randn(4, 6, requires_grad=True) for _ in range(2)))
    assert text.count("taken:") == 1 and "left: mul" not in text, text


def test_casts_of_any_format():
    def function(x):
        y = x.to(torch.float32, memory_format=torch.contiguous_format)
        return (y * 2 + x).relu()

    x = torch.randn(4, 6, dtype=torch.bfloat16).t()
    text = ot.explain(function, x, options={"level": "aten"})
    assert "_to_copy" not in text and "taken: float32, mul, add, relu" in text, text
    got = torch.compile(function, backend=ot.backend, options={"level": "aten"})(x)
    torch.testing.assert_close(got, function(x))
    assert got.stride() == function(x).stride()


def test_strided_parts_are_joined_by_a_formula(data, device, monkeypatch):
    """The gradient of parts of a tensor, as of a transformer's q, k and v."""
    from ogive.torch import _wrapper
    joins = _wrapper._joins_strided
    found = []
    monkeypatch.setattr(_wrapper, "_joins_strided",
                        lambda cat: found.append(joins(cat, device)) or found[-1])

    def model(x, w):
        q, k, v = (x @ w).view(4, 8, 3, 2, 16).permute(2, 0, 3, 1, 4)
        return torch.softmax(q @ k.transpose(2, 3), 3) @ v

    x, w = data(4, 8, 32).requires_grad_(), (data(32, 96) / 8).requires_grad_()
    torch._dynamo.reset()
    call = torch.compile(model, backend=ot.backend, options={"level": "aten"})
    got = torch.autograd.grad(call(x, w).square().sum(), (x, w))
    want = torch.autograd.grad(model(x, w).square().sum(), (x, w))
    assert any(found)
    for mine, theirs in zip(got, want):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_parts_of_a_gradient_join_what_reads_them(data):
    """Of rotated halves: no call is left between the gradient that comes and those of q."""
    def model(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    x, cos, sin = data(2, 3, 8, 64).requires_grad_(), data(8, 64), data(8, 64)
    text = ot.explain(model, x, cos, sin, options={"level": "aten"})
    gradient = text[text.index("its gradient"):]
    assert gradient.count("taken: ") == 1 and "left: mul" not in gradient
    torch._dynamo.reset()
    call = torch.compile(model, backend=ot.backend, options={"level": "aten"})
    grad = data(2, 3, 8, 64)
    got, = torch.autograd.grad(call(x, cos, sin), x, grad)
    want, = torch.autograd.grad(model(x, cos, sin), x, grad)
    torch.testing.assert_close(got, want)


def test_the_gradient_of_gelu_stays_pytorchs_where_it_is_faster():
    from torch._subclasses import FakeTensorMode
    from ogive.torch._aten import aten, decompositions
    decompose = decompositions()[aten.gelu_backward.default]
    with FakeTensorMode():
        for device, dtype, left in (("cuda", torch.bfloat16, True), ("cuda", torch.float16, True),
                                    ("cuda", torch.float32, False), ("cpu", torch.bfloat16, False)):
            x = torch.empty(4, device=device, dtype=dtype)
            assert (decompose(x, x) is NotImplemented) == left


@pytest.mark.parametrize("strided", [False, True])
def test_a_dim_given_by_name(strided, data, device, monkeypatch):
    """aten.cat(parts, dim=1): graphs of passes, and of other tools, have it so. Parts are written where
    they belong, or joined by a formula."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from ogive.torch import _backend, _wrapper
    joins = _wrapper._joins_strided
    monkeypatch.setattr(_wrapper, "_joins_strided", lambda cat: joins(cat, device))

    def function(x, y):
        parts = (x.t(), y.t()) if strided else (torch.sigmoid(x) * y + 1, y)
        return [torch.ops.aten.cat.default(parts, dim=-1)]

    x, y = data(6, 4), data(6, 4)
    module = make_fx(function, tracing_mode="fake")(x, y)
    cat, = (node for node in module.graph.nodes if node.target is torch.ops.aten.cat.default)
    cat.args, cat.kwargs = cat.args[:1], {"dim": 1 if strided else -1}
    got, = _backend._compile_aten(module, ())([x, y])
    torch.testing.assert_close(got, function(x, y)[0])


def test_sums_of_what_a_product_gives(data):
    """A bias's gradient reads the gradient that it sums; it does not compute it from the product
    again."""
    given = [each.requires_grad_() for each in (data(256, 128), data(128, 64), data(64))]

    class Two(nn.Module):
        def forward(self, x, w, b, v):
            return torch.tanh(torch.sigmoid(x @ w + b) @ v)

    text = gradient_of(Two(), *given, data(64, 128).requires_grad_())
    lines = [line.strip() for line in text.splitlines() if "@" in line]
    assert lines and not any("sum(" in line for line in lines), text


def test_parts_are_read_once(data):
    """Rotated halves: each half of x is one input of the formula, though the graph slices it twice."""
    def model(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    x, cos, sin = data(2, 3, 8, 64), data(8, 64), data(8, 64)
    text = ot.explain(model, x, cos, sin, options={"level": "aten"})
    formula, = (line for line in text.splitlines() if line.startswith("    "))
    assert len(set(re.findall(r"slice\w*", formula))) == 6, text
    got = torch.compile(model, backend=ot.backend, options={"level": "aten"})(x, cos, sin)
    torch.testing.assert_close(got, model(x, cos, sin))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_sigmoid(dtype, data):
    """silu and its gradient of the same values have one curve between them."""
    class Gate(nn.Module):
        def forward(self, x, y):
            return F.silu(x) * y

    x, y = (data(4, 64, dtype=dtype).requires_grad_() for _ in range(2))
    text = ot.explain(Gate(), x, y, options={"level": "aten"}).partition("its gradient:")[2]
    assert text.count("sigmoid(") == 1 and "silu(" not in text, text
    call = torch.compile(Gate(), backend=ot.backend, options={"level": "aten"})
    grad = data(4, 64, dtype=dtype)
    got = torch.autograd.grad(call(x, y), (x, y), grad)
    want = torch.autograd.grad(F.silu(x.double()) * y.double(), (x, y), grad.double())
    wide = x.detach().double()  # whose sigmoid in float32 is another curve
    other = torch.compile(lambda z: (F.silu(z) * 2, torch.sigmoid(z.float()) * 2), backend=ot.backend,
                          options={"level": "aten"})
    torch.testing.assert_close(other(wide)[0], F.silu(wide) * 2, rtol=1e-13, atol=1e-14)
    for mine, theirs in zip(got, want):
        torch.testing.assert_close(mine, theirs, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5,
                                   atol=1e-2 if dtype == torch.bfloat16 else 1e-6)
