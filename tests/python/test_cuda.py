# SPDX-License-Identifier: MIT
"""What only a GPU has: streams, graphs, memory of two kinds, NVRTC. scripts/test-gpu runs
this, and the tests of the other files that take a device."""

import os
import subprocess
import sys
import threading

import pytest
import torch

import ogive
import ogive.torch as ot

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
TEXTS = ["sigmoid(x)", "softmax(x, 1)", "sum(tanh(x), 0)", "layer_norm(x, 256) * 2, amax(x, 1)"]


def rand(*shape, **options):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to("cuda", **options)


def late(x, value):
    """Writes value into x, after some milliseconds of the current stream."""
    torch.cuda._sleep(20_000_000)
    return x.fill_(value)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_cpus_bits(text, dtype):
    x = rand(70, 256, dtype=dtype)
    f = ogive.compile(text)
    got, want = f(x), f(x.cpu())
    for a, b in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
        assert a.is_cuda and torch.equal(a.cpu(), b)


@pytest.mark.parametrize("text", ["x * 2", "softmax(x, 1)", "linear(x, x)"])
@pytest.mark.parametrize("into", ["new", "out", "gradient"])
def test_the_current_stream(text, into):
    """Work on another stream would read x before it is written, and be read too early."""
    f = ogive.compile(text)
    x = torch.zeros(512, 512, device="cuda", requires_grad=into == "gradient")
    with torch.no_grad():
        want = f(torch.full_like(x, 3.0))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        with torch.no_grad():
            late(x, 3.0)
        y = f(x, out=torch.empty_like(want)) if into == "out" else f(x)
        if into == "gradient":
            y.sum().backward()
        copy = y.detach().clone()
    stream.synchronize()
    assert torch.equal(copy, want)


def test_streams_of_threads():
    f = ogive.compile("softmax(x, 1) @ y")
    wrong = []

    def work(i):
        x = torch.zeros(128, 128, device="cuda")
        y = torch.eye(128, device="cuda")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for k in range(20):
                late(x, 0.0)[:, 0] = i + k
                if not torch.allclose(f(x, y), torch.softmax(x, 1), atol=1e-5):
                    wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("text", [*TEXTS, "sum(sigmoid(linear(x, x)), 1)"])
def test_graphs(text):
    f = ogive.compile(text)
    x = rand(256, 256)
    f(x)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = f(x)
    for seed in (1, 2):
        x.copy_(torch.randn(256, 256, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        want = f(x)
        for a, b in zip(captured, want) if isinstance(want, tuple) else [(captured, want)]:
            assert torch.equal(a, b)


def test_graph_of_a_training_step():
    fc = torch.nn.Linear(64, 64, device="cuda")
    tail = ot.Formula("z = linear(x, fc.weight, fc.bias); mean((z + 2.0 * sigmoid(z))**2)", fc=fc)
    x = rand(32, 64)

    def step():
        fc.weight.grad = fc.bias.grad = None
        loss = tail(x)
        loss.backward()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    captured = fc.weight.grad
    x.mul_(0.5)
    graph.replay()
    got = loss.item(), captured.clone()
    loss = step()
    assert got[0] == loss.item() and torch.equal(got[1], fc.weight.grad)


def test_compiled_into_graphs():
    f = ogive.compile("sum(sigmoid(linear(x, w)), 1)")
    w = rand(128, 128)
    call = torch.compile(lambda x: f(x * 2, w) + 1, mode="reduce-overhead", fullgraph=True)
    for seed in range(4):
        x = torch.randn(64, 128, generator=torch.Generator().manual_seed(seed)).cuda()
        torch.testing.assert_close(call(x), f(x * 2, w) + 1)


@pytest.mark.skipif(not HOPPER, reason="others take fewer products")
@pytest.mark.parametrize("way", [torch.float32, torch.bfloat16, "autocast"], ids=str)
def test_the_backend_takes_products_that_run_on_tensor_cores(way):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.bare, self.few = (torch.nn.Linear(*sizes) for sizes in (
                (256, 512), (512, 128), (128, 64)))
            self.w = torch.nn.Parameter(torch.randn(64, 256) / 8)

        def forward(self, x):
            h = self.few(self.bare(torch.nn.functional.gelu(self.up(x))))
            return torch.sigmoid(h @ self.w) * 2 + x

    dtype = torch.bfloat16 if way == torch.bfloat16 else torch.float32
    context = torch.autocast("cuda", torch.bfloat16, enabled=way == "autocast")
    torch._dynamo.reset()
    model = Model().to("cuda", dtype)
    x = rand(2048 if way == torch.float32 else 128, 256).to(dtype).requires_grad_()
    with context:
        text = ot.explain(model, x)
    taken = "gelu(linear(x, weight=up.weight, bias=up.bias))" in text
    assert taken == (way == torch.float32)
    with context:
        call = torch.compile(model, backend=ot.backend, fullgraph=True)
        got, want = call(x), model(x)
    rtol, atol = (1e-4, 1e-5) if way == torch.float32 else (0.05, 0.05)
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol)
    for a, b in zip(torch.autograd.grad(got.float().square().sum(), [x, *model.parameters()]),
                    torch.autograd.grad(want.float().square().sum(), [x, *model.parameters()])):
        scale = b.abs().max().item()
        torch.testing.assert_close(a, b, rtol=0, atol=scale * (1e-3 if way == torch.float32 else 0.05))


class Lender:
    """Speaks DLPack and nothing else."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_dlpack_objects():
    x = rand(64, 64)
    out = torch.empty_like(x)
    ogive.compile("x * 2")(Lender(x), out=Lender(out))
    assert torch.equal(out, x * 2)


def test_numbers_and_scalars_on_the_cpu():
    x = rand(4, 3)
    f = ogive.compile("x * s")
    assert torch.equal(f(x, 2.0), x * 2) and torch.equal(f(x, torch.tensor(2.0)), x * 2)
    assert f(x, torch.tensor(2.0, requires_grad=True)).requires_grad


@pytest.mark.parametrize("call", [
    lambda x: ot.add(x, x.cpu()),
    lambda x: ot.add(x.cpu(), x),
    lambda x: ot.sigmoid(x, out=x.cpu()),
    lambda x: ot.sigmoid(x.cpu(), out=x),
    lambda x: ot.linear(x, x.cpu().requires_grad_()),
    lambda x: torch.ops.ogive.run([x, x.cpu()], "x + y"),
], ids=["add", "add back", "out", "out back", "gradient", "operator"])
def test_two_devices_are_refused(call):
    with pytest.raises((RuntimeError, ValueError), match="device"):
        call(rand(3, 4))


def test_pinned_memory_is_the_cpus():
    x = torch.randn(5, 6).pin_memory()
    y = ot.sigmoid(x)
    assert y.device.type == "cpu" and torch.equal(y, ot.sigmoid(x.clone()))


def test_nothing_leaks():
    f = ogive.compile("softmax(linear(x, x), 1)")
    x = rand(256, 256, dtype=torch.float32).requires_grad_()
    f(x).sum().backward()
    x.grad = None
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        f(x).sum().backward()
        x.grad = None
        with pytest.raises(ValueError):
            f(x.detach(), out=torch.empty(3, device="cuda"))
    assert torch.cuda.memory_allocated() == before


def run_python(code, **environment):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            env={**os.environ, **environment})
    assert result.returncode == 0, result.stderr


def test_without_nvrtc(tmp_path):
    run_python("""
import torch, ogive
f = ogive.compile("sigmoid(x) * 1.5 + tanh(x)")
f(torch.ones(3))
try:
    f(torch.ones(3, device="cuda"))
except ogive.DeviceError as error:
    assert "OGIVE_NVRTC is '/nowhere/libnvrtc.so'" in str(error), error
else:
    raise AssertionError("it ran")
""", OGIVE_NVRTC="/nowhere/libnvrtc.so", OGIVE_CACHE_DIR=str(tmp_path))


def test_without_the_table_of_c_functions():
    """PyTorch 2.9 has none, and lends its tensors by DLPack's capsules; streams count there too."""
    run_python("""
import torch
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
import ogive, ogive.torch as ot
x = torch.zeros(512, 512, device="cuda")
f = ogive.compile("softmax(x + linear(x, x), 1) + x")
want = f(torch.full_like(x, 3.0))
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    torch.cuda._sleep(20_000_000)
    x.fill_(3.0)
    copy = f(x).clone()
stream.synchronize()
assert torch.equal(copy, want)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = f(x)
x.fill_(1.0)
graph.replay()
assert torch.equal(y, f(x))
parameter = torch.nn.Parameter(x.clone())
ot.sigmoid(parameter).sum().backward()
s = torch.sigmoid(x)
torch.testing.assert_close(parameter.grad, s * (1 - s))
""")
