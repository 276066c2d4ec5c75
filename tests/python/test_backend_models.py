# SPDX-License-Identifier: MIT
"""Blocks of real models by torch.compile(model, backend="ogive"), at both levels: results and
gradients are as near to float64's as PyTorch's own, and what runs is what should."""

import re

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import ogive.torch as ot
from ogive.torch import _backend


class RMS(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        h = x.float() if x.dtype != torch.float64 else x
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)


class Llama(nn.Module):
    """As Hugging Face writes it."""

    def __init__(self, n=32, heads=2, wide=48):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(n, n, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(n, wide, bias=False), nn.Linear(n, wide, bias=False)
        self.down, self.n1, self.n2 = nn.Linear(wide, n, bias=False), RMS(n), RMS(n)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x):
        batch, rows, n = x.shape
        at = torch.arange(n // self.heads, device=x.device, dtype=x.dtype)
        cos, sin = at.cos(), at.sin()
        r = self.n1(x)
        q, k, v = (each(r).view(batch, rows, self.heads, -1).transpose(1, 2)
                   for each in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(self.rotate(q, cos, sin), self.rotate(k, cos, sin), v,
                                           is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(batch, rows, n))
        r = self.n2(x)
        return x + self.down(F.silu(self.gate(r)) * self.up(r))


class Bert(nn.Module):
    def __init__(self, n=32, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv, self.o, self.n1, self.n2 = (nn.Linear(n, 3 * n), nn.Linear(n, n),
                                              nn.LayerNorm(n), nn.LayerNorm(n))
        self.a, self.b = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)

    def forward(self, x):
        batch, rows, n = x.shape
        q, k, v = self.qkv(x).view(batch, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, rows, n)
        x = self.n1(x + self.o(a))
        return self.n2(x + self.b(F.gelu(self.a(x))))


class GPT2(nn.Module):
    """Attention written out, with a mask."""

    def __init__(self, n=32):
        super().__init__()
        self.n1, self.n2, self.qkv, self.o = (nn.LayerNorm(n), nn.LayerNorm(n), nn.Linear(n, 3 * n),
                                              nn.Linear(n, n))
        self.a, self.b = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.register_buffer("mask", torch.ones(64, 64).tril())

    def forward(self, x):
        rows = x.shape[1]
        q, k, v = self.qkv(self.n1(x)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(self.mask[:rows, :rows] == 0, -1e9)
        x = x + self.o(scores.softmax(-1) @ v)
        return x + self.b(F.gelu(self.a(self.n2(x)), approximate="tanh"))


class T5(nn.Module):
    """A bias on the scores, a gated layer without one."""

    def __init__(self, n=32):
        super().__init__()
        self.norm, self.q, self.k, self.v = RMS(n), *(nn.Linear(n, n, bias=False) for _ in range(3))
        self.bias = nn.Embedding(16, 1)
        self.a, self.b, self.o = (nn.Linear(n, 2 * n, bias=False), nn.Linear(n, 2 * n, bias=False),
                                  nn.Linear(2 * n, n, bias=False))

    def forward(self, x):
        h, rows = self.norm(x), torch.arange(x.shape[1], device=x.device)
        bias = self.bias((rows[None] - rows[:, None]).clamp(-8, 7) + 8).squeeze(-1)
        scores = self.q(h) @ self.k(h).transpose(-1, -2) + bias
        x = x + torch.softmax(scores.float() if x.dtype != torch.float64 else scores, -1).to(
            x.dtype) @ self.v(h)
        return x + self.o(F.gelu(self.a(x), approximate="tanh") * self.b(x))


class ViT(nn.Module):
    def __init__(self, n=32):
        super().__init__()
        self.patches, self.block = nn.Conv2d(3, n, 4, 4), Bert(n)
        self.first = nn.Parameter(torch.randn(1, 1, n))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.block(torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1))[:, 0]


class Bottleneck(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.c1, self.c2, self.c3 = (nn.Conv2d(n, 4, 1, bias=False),
                                     nn.Conv2d(4, 4, 3, padding=1, bias=False),
                                     nn.Conv2d(4, n, 1, bias=False))
        self.b1, self.b2, self.b3 = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.BatchNorm2d(n)

    def forward(self, x):
        h = F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))))
        return F.relu(x + self.b3(self.c3(h)))


class ConvNeXt(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(n, n, 7, padding=3, groups=n), nn.LayerNorm(n)
        self.a, self.b = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.scale = nn.Parameter(torch.full((n,), 0.1))

    def forward(self, x):
        h = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.b(F.gelu(self.a(h)))).permute(0, 3, 1, 2)


class UNet(nn.Module):
    """A residual block with the time's embedding, as of diffusion models."""

    def __init__(self, n=8):
        super().__init__()
        self.g1, self.g2 = nn.GroupNorm(2, n), nn.GroupNorm(2, n)
        self.c1, self.c2, self.time = (nn.Conv2d(n, n, 3, padding=1), nn.Conv2d(n, n, 3, padding=1),
                                       nn.Linear(4, n))

    def forward(self, x):
        t = self.time(F.silu(x.mean((2, 3))[:, :4]))
        h = self.c1(F.silu(self.g1(x))) + t[:, :, None, None]
        return x + self.c2(F.silu(self.g2(h)))


class Gate(nn.Module):
    """Of a mixture of experts: the best two of each row, and the loss that keeps them busy."""

    def __init__(self, n=32, experts=4):
        super().__init__()
        self.gate = nn.Linear(n, experts, bias=False)
        self.experts = nn.Parameter(torch.randn(experts, n, n) / n)

    def forward(self, x):
        p = torch.softmax(self.gate(x), -1)
        best, index = p.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(p).scatter(-1, index, best)
        y = torch.einsum("bsn,enm->bsem", x, self.experts)
        return (F.silu(y) * weights[..., None]).sum(-2) + p.mean((0, 1)).square().sum()


class LSTM(nn.Module):
    """Written out: the gates of each step are one product."""

    def __init__(self, n=32):
        super().__init__()
        self.x, self.h = nn.Linear(n, 4 * n), nn.Linear(n, 4 * n, bias=False)

    def forward(self, x):
        h = c = torch.zeros_like(x[:, 0])
        results = []
        for step in x[:, :3].unbind(1):
            i, f, g, o = (self.x(step) + self.h(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            results.append(h)
        return torch.stack(results, 1)


ROWS, IMAGES = (2, 6, 32), (2, 8, 6, 6)
MODELS = {"llama": (Llama, ROWS), "bert": (Bert, ROWS), "gpt2": (GPT2, ROWS), "t5": (T5, ROWS),
          "vit": (ViT, (2, 3, 8, 8)), "bottleneck": (Bottleneck, IMAGES),
          "convnext": (ConvNeXt, IMAGES), "unet": (UNet, IMAGES), "gate": (Gate, ROWS),
          "lstm": (LSTM, ROWS)}


@pytest.fixture(autouse=True, params=["torch", "aten"])
def level(request):
    torch._dynamo.reset()
    yield request.param
    torch._dynamo.reset()


def compiled(model, level, **options):
    return torch.compile(model, backend=ot.backend, options={"level": level}, **options)


def run(call, model, x):
    """The result, and gradients by input and parameters."""
    x = x.detach().clone().requires_grad_()
    y = call(x)
    grads = torch.autograd.grad((y.sin() * 0.1).sum(), [x, *model.parameters()])
    return [y.detach(), *grads]


def distance(got, want):
    """The greatest difference, in parts of the greatest value."""
    return max(((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
               for a, b in zip(got, want))


@pytest.mark.parametrize("name", MODELS)
def test_as_near_to_float64_as_pytorch(name, level, device):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().to(device), torch.randn(shape).to(device)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    theirs = run(model, model, x)
    model.load_state_dict(state)
    call = compiled(model, level)
    ours = run(call, model, x)
    exact = make().to(device).double()
    exact.load_state_dict(state)
    want = run(exact, exact, x.double())
    error, bound = distance(ours, want), distance(theirs, want)
    assert error <= 3 * bound + 1e-6, (error, bound)
    for (key, a), b in zip(model.state_dict().items(), exact.state_dict().values()):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=1e-6, msg=key)
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(call(x), model(x), rtol=1e-4, atol=1e-5)


def test_second_derivatives(level, data):
    """Right, or an error that says how they are had."""
    def function(x):
        return (torch.sigmoid(x) * x.exp() + 1).square()

    x = data(5).requires_grad_()

    def first(call):
        return torch.autograd.grad(call(x).sum(), x, create_graph=True)[0]

    call = compiled(function, level)
    torch.testing.assert_close(first(call), first(function))
    if level == "torch":
        torch.testing.assert_close(torch.autograd.grad(first(call).sum(), x),
                                   torch.autograd.grad(first(function).sum(), x))
        return
    h = x * 2
    for by, result in (x, first(call)), (x, first(compiled(lambda x: function(x)[1:], level))), (
            x, torch.autograd.grad(call(x * 2).sum(), x, create_graph=True)[0]), (
            h, torch.autograd.grad(call(h).sum(), h, create_graph=True)[0]):
        with pytest.raises(RuntimeError, match="level': 'torch'"):
            torch.autograd.grad(result.sum(), by, allow_unused=True)


def test_levels_and_what_they_refuse(data):
    for options, message in (({"level": "fx"}, "no level 'fx'"),
                             ({"level": "aten", "rest": "inductor"}, "not by 'inductor'")):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=message):
            torch.compile(lambda x: x.exp() + 1, backend=ot.backend, options=options)(data(3))


def code_of(function, *inputs):
    """The text of what is made of function's graphs at ATen's level."""
    texts, write = [], _backend.write

    def spy(module, analysis):
        call = write(module, analysis)
        texts.append(call.text)
        return call

    _backend.write = spy
    try:
        result = compiled(function, "aten")(*inputs)
        if result.requires_grad:
            result.sum().backward()
    finally:
        _backend.write = write
    return texts


def test_a_wrapper_is_flat(data, device):
    """An MLP and its gradient: no call for a view, a formula for all that follows a product."""
    block = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).to(device)
    forward, backward = code_of(lambda x: x + block(x), data(2, 8, 32).requires_grad_())
    if device == "cpu":
        assert len(re.findall(r"^    f\d+\(", forward, re.M)) == 2
        assert not re.search(r"= o\d+\(", forward), forward
    assert "view" not in re.sub(r"view_\d+", "", forward) and ".t(" not in backward


def _rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


@pytest.mark.parametrize("function", [
    lambda x, y: _rope(x.transpose(0, 1), y.cos(), y.sin()),
    lambda x, y: torch.cat((x, y * 2, x.exp()), 1) * 3,
    lambda x, y: torch.cat((x, y * 2), 0).tanh() + torch.cat((y, x), 0),
    lambda x, y: (torch.cat((x * 2, y), 1) + 1).sum(1, keepdim=True) + torch.cat((x, x), 1),
    lambda x, y: torch.cat((x * 2, x * 2), 1) * torch.cat((y, x), 1),
    lambda x, y: torch.stack((x * y, y + 1), 1).sigmoid(),
    lambda x, y: torch.cat((x * 2, (y * 3).double()), 1) * 2,
    lambda x, y: torch.cat([each * 2 for each in (x * y).split([1, 3], 1)][::-1], 1) - 1,
    lambda x, y: (x.mean(1, keepdim=True).expand(4, 4) / 3) * y + x.sum(0).expand(4, 4),
    lambda x, y: sum(each.exp() for each in (x + y).unbind(0)),
])
def test_joined_and_divided_tensors(function, level, data):
    x, y = data(4, 4).requires_grad_(), data(4, 4).requires_grad_()
    results = []
    for call in (compiled(function, level, fullgraph=True), function):
        result = call(x, y)
        results.append((result, *torch.autograd.grad(result.sin().sum(), (x, y))))
    assert results[0][0].stride() == results[1][0].stride()
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_rope_is_one_formula(data):
    """Its halves are written side by side, with the strides of transposed heads."""
    x, cos, sin = data(2, 8, 3, 16).transpose(1, 2), data(8, 16), data(8, 16)
    text, = code_of(lambda x: _rope(x, cos, sin), x)
    assert len(re.findall(r"^    f\d+\(", text, re.M)) == 1 and "= o" not in text, text
    torch._dynamo.reset()
    got, want = compiled(_rope, "aten")(x, cos, sin), _rope(x, cos, sin)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("training", [False, True])
def test_explain_at_aten(training, data):
    """Of the model and of its gradient: every call once, by its name, with both estimates."""
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(32),
                          nn.Linear(32, 16)).train(training)
    x = data(8, 16).cpu()
    with torch.set_grad_enabled(training):
        text = ot.explain(model, x, options={"level": "aten"})
    graphs = text.split("its gradient:\n")
    assert len(graphs) == 1 + training and text.startswith("the model:\n") == training
    for graph in graphs:
        counted = 0
        for line in graph.splitlines():
            if line.startswith("taken: "):
                counted += int(re.search(r"\((\d+) calls?, one formula: [\d.]+ us as a formula, "
                                         r"[\d.]+ us by PyTorch\)$", line).group(1))
            elif line.startswith("left: "):
                names = line.removeprefix("left: ").split(": ")[0].split(", ")
                counted += sum(int((re.search(r"\((\d+) calls\)", name) or [0, 1])[1])
                               for name in names)
        total, inside, left = map(int, re.search(
            r"(\d+) calls?: (\d+) in \d+ formulas?, (\d+) left$", graph.rstrip()).groups())
        assert counted == total == inside + left and inside > 0
    assert "native_dropout" in graphs[0] if training else "dropout" not in text
    assert ".default" not in text
    with pytest.raises(ValueError, match="no level 'both'"):
        ot.explain(model, x, options={"level": "both"})
