# SPDX-License-Identifier: MIT
"""torch.compile(backend="ogive", mode="reduce-overhead"): CUDA graphs of a model and of its gradient.
On a CPU nothing is recorded, and all is computed as at the level "aten"."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ogive.torch as ot


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + torch.tanh(self.down(F.gelu(self.up(self.norm(x)))) * 2)


def make(device, dtype):
    torch._dynamo.reset()
    torch.manual_seed(0)
    block = Block().to(device, dtype)
    inputs = [torch.randn(32, 64, device=device, dtype=dtype) for _ in range(6)]
    return block, inputs


def compare(got, want, dtype):
    atol = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(got, want, rtol=atol, atol=atol)


@pytest.mark.parametrize("how", [{"mode": "reduce-overhead"}, {"options": {"rest": "cudagraphs"}}],
                         ids=["mode", "rest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_without_gradients(device, dtype, how):
    block, inputs = make(device, dtype)
    call = torch.compile(block, backend=ot.backend, **how)
    with torch.no_grad():
        for x in inputs:
            compare(call(x), block(x), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_training(device, dtype):
    """Parameters change in place: a graph must read them where they are."""
    block, inputs = make(device, dtype)
    call = torch.compile(block, backend=ot.backend, mode="reduce-overhead")
    for x in inputs:
        x.requires_grad_()
        wanted = [x, *block.parameters()]
        torch.compiler.cudagraph_mark_step_begin()
        got = [each.clone() for each in torch.autograd.grad(call(x).square().sum(), wanted)]
        want = torch.autograd.grad(block(x).square().sum(), wanted)
        for mine, theirs in zip(got, want):
            scale = theirs.abs().max().clamp(min=1)
            compare(mine / scale, theirs / scale, dtype)
        with torch.no_grad():
            for parameter, grad in zip(wanted[1:], want[1:]):
                parameter.sub_(grad * 1e-4)


def test_parameters_in_another_place(device):
    block, inputs = make(device, torch.float32)
    call = torch.compile(block, backend=ot.backend, mode="reduce-overhead")
    with torch.no_grad():
        for x in inputs:
            compare(call(x), block(x), torch.float32)
            block.up.weight.data = block.up.weight.data * 1.5


def test_other_sizes(device):
    block, _ = make(device, torch.float32)
    call = torch.compile(block, backend=ot.backend, mode="reduce-overhead")
    with torch.no_grad():
        for rows in (32, 16, 8, 16, 32, 16):
            x = torch.randn(rows, 64, device=device)
            compare(call(x), block(x), torch.float32)


def test_in_turns(device):
    """Replays of one graph are short only where nothing else was replayed or changed in between."""
    (first, inputs), (second, _) = (make(device, torch.float32) for _ in range(2))
    with torch.no_grad():
        second.up.weight.mul_(-0.5)
        calls = [torch.compile(block, backend=ot.backend, mode="reduce-overhead") for block in (first, second)]
        for turn in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], [1, 0]):
            for which in turn:
                for x in inputs:
                    torch.compiler.cudagraph_mark_step_begin()
                    compare(calls[which](x), (first, second)[which](x), torch.float32)
        held = [calls[0](x).clone() for x in inputs]
        for x, y in zip(inputs, held):
            compare(y, first(x), torch.float32)
        for _ in range(4):  # a result as the next call's input
            y = calls[0](inputs[0])
            compare(calls[0](y), first(first(inputs[0])), torch.float32)
        first.up.weight.data = first.up.weight.data * 2
        for _ in range(4):
            compare(calls[0](inputs[0]), first(inputs[0]), torch.float32)
    for _ in range(3):  # and with gradients
        x = inputs[0].detach().requires_grad_()
        torch.compiler.cudagraph_mark_step_begin()
        compare(torch.autograd.grad(calls[0](x).sum(), x)[0].clone(),
                torch.autograd.grad(first(x).sum(), x)[0], torch.float32)
        with torch.no_grad():
            compare(calls[0](inputs[1]), first(inputs[1]), torch.float32)


def test_in_other_threads(device):
    block, inputs = make(device, torch.float32)
    call = torch.compile(block, backend=ot.backend, mode="reduce-overhead")
    found = []

    def run():
        with torch.no_grad():
            found.extend(call(x).clone() for x in inputs * 2)

    for _ in range(3):
        run()
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(found) == 6 * 2 * len(inputs)
    with torch.no_grad():
        for i, y in enumerate(found):
            compare(y, block(inputs[i % len(inputs)]), torch.float32)


def test_log_says_why_not(device, monkeypatch):
    """Once: PyTorch's reasons are whole sentences."""
    if device != "cpu":
        pytest.skip("a GPU records this")
    block, inputs = make(device, torch.float32)
    said = []
    monkeypatch.setattr(torch._inductor.cudagraph_utils, "log_cudagraph_skip_and_bump_counter", said.append)
    with torch.no_grad():
        torch.compile(block, backend=ot.backend, mode="reduce-overhead")(inputs[0])
    assert len(said) == 1 and said[0].count("skipping cudagraphs") == 1 and "cpu device" in said[0], said


def test_recorded(device):
    """What runs in the end is a graph: besides it the input is copied, and nothing launched."""
    if device != "cuda":
        pytest.skip("a CPU records nothing")
    block, inputs = make(device, torch.bfloat16)
    call = torch.compile(block, backend=ot.backend, mode="reduce-overhead")
    from torch.profiler import ProfilerActivity, profile
    with torch.no_grad():
        for x in inputs:
            call(x)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            call(inputs[0])
            torch.cuda.synchronize()
    names = [event.name for event in found.events()]
    assert any("GraphLaunch" in name for name in names)
    assert sum("LaunchKernel" in name for name in names) <= 1, names


def test_second_derivatives_are_refused(device):
    block, inputs = make(device, torch.float32)
    x = inputs[0].requires_grad_()
    call = torch.compile(block, backend=ot.backend, mode="reduce-overhead")
    grad, = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="level 'aten' has no second"):
        torch.autograd.grad(grad.sum(), x)
