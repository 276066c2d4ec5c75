# SPDX-License-Identifier: MIT
"""torch.compile(model, backend="ogive") with convolutions: where they are taken, and that results,
gradients, memory formats and dtypes are PyTorch's."""

import re

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

import ogive.torch as ot
from ogive.torch import _cost, _regions

LEVELS = ["torch", "aten"]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def taking(monkeypatch):
    """Formulas are estimated to take no time, whatever was measured."""
    monkeypatch.setattr(_cost, "_ask", lambda machine, by, *work: 1e-9 if by == 0 else 1.0)


def distance(got, want):
    return ((got.double() - want).abs().max() / want.abs().max().clamp(min=0.1)).item()


def copy_of(model, dtype):
    import copy
    return copy.deepcopy(model).to(dtype)


def check(model, *inputs, level, grad=True, dynamic=None, fullgraph=True):
    """Results and gradients beside float64's, strides beside eager's; how often formulas were called
    is explain()'s."""
    exact = copy_of(model, torch.float64)
    wide = [each.detach().double().requires_grad_(each.requires_grad) for each in inputs]
    ours = [each.detach().clone(memory_format=torch.preserve_format).requires_grad_(each.requires_grad)
            for each in inputs]
    call = torch.compile(model, backend=ot.backend, options={"level": level}, fullgraph=fullgraph,
                         dynamic=dynamic)
    got, eager, want = call(*ours), model(*inputs), exact(*wide)
    assert got.shape == eager.shape and got.dtype == eager.dtype and got.stride() == eager.stride()
    assert distance(got, want) < 2e-5
    if not grad:
        return
    got.sin().sum().backward()
    want.sin().sum().backward()
    for a, b in [*zip(model.parameters(), exact.parameters()), *zip(ours, wide)]:
        if a.requires_grad:
            assert a.grad is not None and a.grad.stride() == a.stride()
            assert distance(a.grad, b.grad) < 1e-4
    model.zero_grad()


def explained(model, *inputs, level):
    text = ot.explain(model, *inputs, options={"level": level})
    torch._dynamo.reset()
    return text


CASES = [
    (lambda: nn.Conv1d(4, 6, 3), (2, 4, 11)),
    (lambda: nn.Conv1d(4, 4, 3, padding="same", groups=2), (4, 11)),  # without a batch
    (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 9, 8)),
    (lambda: nn.Conv2d(3, 8, (3, 5), stride=(2, 1), padding=(0, 2), dilation=(1, 2)), (2, 3, 9, 12)),
    (lambda: nn.Conv2d(8, 8, 3, groups=8, bias=False), (2, 8, 7, 7)),
    (lambda: nn.Conv2d(8, 12, 3, groups=4, padding="same"), (1, 8, 7, 7)),
    (lambda: nn.Conv2d(16, 8, 1), (2, 16, 5, 5)),
    (lambda: nn.Conv2d(16, 8, 1, stride=2), (2, 16, 5, 5)),
    (lambda: nn.Conv3d(3, 4, 3, padding=1), (2, 3, 4, 5, 6)),
    (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (2, 4, 9)),
    (lambda: nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1), (2, 4, 5, 6)),
    (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2), (2, 4, 5, 6)),
    (lambda: nn.ConvTranspose3d(4, 2, 3, stride=(1, 2, 2), padding=1), (2, 4, 3, 4, 4)),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_kind(case, level, taking):
    make, shape = CASES[case]
    torch.manual_seed(case)
    model = nn.Sequential(make(), nn.Mish())
    x = torch.randn(shape)
    assert re.search(r"^taken: conv", explained(model, x, level=level), re.M)
    check(model, x.requires_grad_(), level=level)
    torch._dynamo.reset()
    with torch.no_grad():
        check(model, x.detach(), level=level, grad=False)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dims", [2, 3])
def test_channels_last(dims, level, taking):
    """Results lie as PyTorch's, of inputs and of weights that do so."""
    of = {2: torch.channels_last, 3: torch.channels_last_3d}[dims]
    convolution = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
    x = torch.randn(2, 4, *(6, 5, 4)[:dims])
    for of_x, of_w in (of, None), (None, of), (of, of):
        torch._dynamo.reset()
        model = nn.Sequential(convolution(4, 6, 3, padding=1), nn.Tanh())
        given = x.contiguous(memory_format=of_x) if of_x else x
        if of_w:
            model = model.to(memory_format=of_w)
        with torch.no_grad():
            check(model, given, level=level, grad=False)
        torch._dynamo.reset()
        check(model, given.detach().requires_grad_(), level=level)


class Vision(nn.Module):
    """A block with what follows convolutions: a norm in eval mode, activations, a residual, poolings,
    reductions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        h = F.gelu(self.second(h)) + h
        return torch.sigmoid(self.up(F.avg_pool2d(h, 2))).mean((2, 3))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("training", [False, True])
def test_a_block(training, level, taking):
    torch.manual_seed(0)
    model = Vision().train(training)
    with torch.no_grad():
        model.norm.running_mean.normal_()
        model.norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 8, 8)
    text = explained(model, x, level=level)
    assert sum(line.count("conv") for line in re.findall(r"^taken: .*", text, re.M)) == 3
    if not training:
        check(model, x.requires_grad_(), level=level)
        return
    exact = copy_of(model, torch.float64)
    got = torch.compile(model, backend=ot.backend, options={"level": level})(x)
    assert distance(got, exact(x.double())) < 2e-5
    assert distance(model.norm.running_var, exact.norm.running_var) < 1e-5


@pytest.mark.parametrize("level", LEVELS)
def test_frozen_weights(level, taking):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).requires_grad_(False)
    check(model, torch.randn(2, 3, 6, 6).requires_grad_(), level=level)
    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    model[0].weight.requires_grad_(False)  # only the bias has a gradient
    check(model, torch.randn(2, 3, 6, 6), level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_dynamic_shapes(level, taking):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    call = torch.compile(model, backend=ot.backend, options={"level": level}, dynamic=True)
    with torch.no_grad():
        for batch, size in (2, 8), (5, 10), (3, 14):
            x = torch.randn(batch, 3, size, size)
            got, want = call(x), model.double()(x.double())
            model.float()
            assert distance(got, want) < 2e-5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast(low, level, taking):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.ConvTranspose2d(4, 3, 3))

    def inside(x):
        with torch.autocast("cpu", low):
            return model(x)

    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        got = torch.compile(inside, backend=ot.backend, options={"level": level})(x)
        want = inside(x)
    assert got.dtype == want.dtype and got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2)


# Like KernelBench's of level 2, small.
MODELS = {
    "1": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 9, 9), lambda z: torch.relu(z) + 0.5),
    "3": (lambda: nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 3, 4, 4),
          lambda z: F.gelu(F.avg_pool3d(F.layer_norm(z + 0.5, z.shape[-1:]), 2))),
    "7": (lambda: nn.Conv3d(3, 6, 3), (2, 3, 5, 6, 6),
          lambda z: torch.sigmoid(F.gelu(F.leaky_relu(torch.relu(z), 0.01)))),
    "13": (lambda: nn.ConvTranspose3d(4, 6, 3, padding=1), (2, 4, 4, 5, 5),
           lambda z: torch.tanh(torch.softmax(z.mean(2, keepdim=True) + 1, 1)) * 2),
    "24": (lambda: nn.Conv3d(3, 6, 3), (2, 3, 5, 6, 6), lambda z: torch.softmax(z.amin(2), 1)),
    "35": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 9, 9),
           lambda z: F.mish(F.max_pool2d(F.hardswish(z - 0.5), 2))),
    "78": (lambda: nn.ConvTranspose3d(3, 6, 5, stride=2, padding=2), (2, 3, 4, 4, 4),
           lambda z: F.max_pool3d(F.max_pool3d(z, 2), 3).sum(1, keepdim=True)),
    "85": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 9, 9),
           lambda z: F.max_pool2d(F.group_norm(z, 4) * 0.7, 2).clamp(0, 1)),
}


class Tail(nn.Module):
    def __init__(self, convolution, tail):
        super().__init__()
        self.convolution, self.tail = convolution, tail

    def forward(self, x):
        return self.tail(self.convolution(x))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("number", MODELS)
def test_kernelbench(number, level, taking):
    make, shape, tail = MODELS[number]
    torch.manual_seed(int(number))
    model, x = Tail(make(), tail), torch.randn(shape)
    text = explained(model, x, level=level)
    assert re.search(r"^taken: conv", text, re.M)
    calls = int(re.search(r"^(\d+) calls?:", text, re.M)[1]) if level == "torch" else 0
    named = sum(int(count or 1) for line in re.findall(r"^(?:taken|left): (.*?)(?: \(\d+ calls?, one|: )", text, re.M)
                for count in re.findall(r"[a-z_0-9]+(?: \((\d+) calls\))?(?:, |$)", line))
    assert calls in (0, named)  # each exactly once
    check(model, x.requires_grad_(), level=level)


# ---- where the cost model says so: the GPU need not be there ---------------------------------------


def regions_of(function, *tensors, monkeypatch, architecture=(9, 0)):
    monkeypatch.setattr(_cost, "architecture", lambda device: architecture)
    module = torch.fx.symbolic_trace(function)
    with FakeTensorMode() as mode:
        made = [torch.empty(shape, device="cuda", dtype=dtype) for shape, dtype, _ in tensors]
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*made)
    recorded = any(requires for *_, requires in tensors)
    wanted = [requires for *_, requires in tensors]
    for node in module.graph.nodes:  # as autograd would, which no PyTorch without CUDA can
        if isinstance(node.meta.get("val"), torch.Tensor):
            node.meta["val"].requires_grad_(wanted.pop(0) if node.op == "placeholder" else recorded)
    return _regions.Analysis(module)


FLOAT = torch.float32


@pytest.mark.parametrize("tail, shapes, taken", [
    # L2-1: the tail joins what tensor cores compute
    (lambda z: torch.relu(z) + 1, [(128, 64, 128, 128), (128, 64, 3, 3)], True),
    # L1-56: cuDNN's alone is as fast
    (lambda z: z, [(8, 64, 512, 256), (128, 64, 5, 7)], False),
    # L2-4 without its bias: with two mish at the end of tiles PyTorch's, and a formula, is as fast
    (lambda z: F.mish(F.mish(z)), [(64, 64, 256, 256), (128, 64, 3, 3)], False),
    # 8 channels: CUDA cores, with a tail
    (lambda z: F.hardswish(torch.relu(z)), [(128, 8, 128, 128), (64, 8, 3, 3)], True),
])
def test_convolutions_on_a_gpu(tail, shapes, taken, monkeypatch):
    tensors = [(shape, FLOAT, False) for shape in shapes] + [((shapes[1][0],), FLOAT, False)]
    bias = taken or tail.__code__.co_consts != (None,)
    analysis = regions_of((lambda x, w, b: tail(F.conv2d(x, w, b))) if bias else
                          (lambda x, w, b: tail(F.conv2d(x, w))), *tensors, monkeypatch=monkeypatch)
    assert any("conv2d" in region.text for region in analysis.regions) == taken
    for node in analysis.nodes:
        if analysis.call_name(node) == "conv2d":
            assert min(analysis.estimates[node]) > 0


def test_pooling_of_all_on_a_gpu(monkeypatch):
    """L2-67: a pooling that sees all takes the time of a mean, so that all of it is a formula."""
    tensors = [((128, 8, 256, 256), FLOAT, False), ((64, 8, 3, 3), FLOAT, False), ((64,), FLOAT, False)]

    def seconds(pool):
        analysis = regions_of(lambda x, w, b: pool(F.gelu(F.conv2d(x, w, b))), *tensors,
                              monkeypatch=monkeypatch)
        assert [region.text.count("conv2d") for region in analysis.regions] == [1]
        return analysis.estimates[analysis.regions[0].nodes[-1]]

    mean = seconds(lambda z: z.mean((2, 3), keepdim=True))
    assert seconds(lambda z: F.adaptive_avg_pool2d(z, 1)) == mean
    for pool in F.avg_pool2d, F.max_pool2d:  # PyTorch's kernels for windows
        whole = seconds(lambda z, pool=pool: pool(z, 254))
        assert whole.ours == mean.ours < whole.theirs


def test_what_is_left_on_a_gpu(monkeypatch):
    """GPUs and memory formats that nothing was measured of; gradients by the weight of halves, and of
    1x1, which cuDNN does not copy."""
    shapes = [(128, 64, 128, 128), (128, 64, 3, 3)]
    function = lambda x, w: torch.relu(F.conv2d(x, w)) + 1  # noqa: E731

    def taken(dtype=FLOAT, requires=(False, False), architecture=(9, 0), function=function,
              shapes=shapes):
        tensors = [(shape, dtype, each) for shape, each in zip(shapes, requires)]
        analysis = regions_of(function, *tensors, monkeypatch=monkeypatch, architecture=architecture)
        return any("conv2d" in region.text for region in analysis.regions)

    assert taken() and taken(dtype=torch.bfloat16)
    assert not taken(architecture=(8, 0)) and not taken(dtype=torch.bfloat16, architecture=(8, 0))
    assert not taken(dtype=torch.bfloat16, requires=(False, True))
    points = [(64, 256, 56, 56), (64, 256, 1, 1)]
    for requires in (True, True), (False, True):
        assert taken(requires=requires) and not taken(requires=requires, shapes=points)
    assert not taken(function=lambda x, w: torch.relu(F.conv2d(x.to(memory_format=torch.channels_last), w)) + 1)


def test_without_tf32(monkeypatch):
    """cuDNN takes longer, and more is taken."""
    shapes = [((8, 64, 512, 256), FLOAT, False), ((128, 64, 5, 7), FLOAT, False)]
    for allowed, taken in (True, False), (False, True):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
            analysis = regions_of(lambda x, w: F.conv2d(x, w), *shapes, monkeypatch=monkeypatch)
        assert bool(analysis.regions) == taken


def test_a_slow_convolution_does_not_keep_what_follows(monkeypatch):
    """What follows one that is left is a formula without it, and explain has each call once."""
    analysis = regions_of(lambda x, w: torch.tanh(F.mish(F.mish(F.conv2d(x, w)))) * 2,
                          ((64, 64, 256, 256), FLOAT, False), ((128, 64, 3, 3), FLOAT, False),
                          monkeypatch=monkeypatch)
    assert [region.text for region in analysis.regions] == ["tanh(mish(mish(x0))) * 2.0"]
    taken, left = analysis.account()
    assert [len(nodes) for _, nodes in taken] == [4] and len(left) == 1
    assert "PyTorch" in next(iter(left.values()))


def test_left_on_a_cpu():
    """oneDNN's of many channels take half the time; a lone pooling of maxima is a formula."""
    x, w = torch.randn(2, 64, 28, 28), torch.randn(64, 64, 3, 3)
    assert "left: conv2d" in explained(lambda x, w: F.conv2d(x, w, stride=2), x, w, level="torch")
    assert "taken: max_pool2d" in explained(lambda x: F.max_pool2d(x, 2), x, level="torch")
