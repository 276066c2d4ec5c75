# SPDX-License-Identifier: MIT
"""`ogive emit --pytorch` of files that are made for their shapes (windows, parts of tensors, --for-shapes): as
test_emitted.py."""

import pathlib

import numpy
import pytest
import torch
import torch.nn.functional as F

from emitted_files import (COMMAND, call_library, emit, emit_module, lazy_negative, needs_command,
                           needs_stand_ins, shape_arguments)  # and where the next are
from emitted_cases import SHAPED
from emitted_gpu import as_tuple, compare
from emulated import NVRTC, EmulatedShapes, compile_source

pytestmark = needs_command


@pytest.mark.parametrize("name", SHAPED)
def test_shaped_cpu(name, tmp_path):
    """On the CPU any shape will do."""
    formula, shapes, reference, _ = SHAPED[name]
    model = emit_module(tmp_path, formula, *shape_arguments(shapes), "--for-shapes").ModelNew()
    inputs = [torch.rand(s, dtype=torch.float64) for s in shapes.values()]
    inputs[0] = torch.cat([inputs[0], inputs[0]])
    for got, want in zip(as_tuple(model(*inputs)), as_tuple(reference(*inputs)), strict=True):
        torch.testing.assert_close(got, want)


@needs_stand_ins
@pytest.mark.parametrize("name", SHAPED)
def test_shaped(name, tmp_path, monkeypatch):
    """Results and gradients, for Hopper and for any GPU; on Hopper results have the library's bits."""
    formula, shapes, reference, served = SHAPED[name]
    module = emit_module(tmp_path, formula, *shape_arguments(shapes), "--for-shapes")
    emulated = EmulatedShapes(tmp_path / "emitted.py", tmp_path)
    assert (served in pathlib.Path(module.__file__).read_text()) and (len(module.FORWARD) == 2) == bool(served)
    torch.manual_seed(8)
    inputs = [torch.rand(s) + (0.1 if name == "batch_norm" else -0.4) for s in shapes.values()]
    exact = [x.double().requires_grad_() for x in inputs]
    wants = as_tuple(reference(*exact))
    grads = [torch.rand_like(w).float() for w in wants]
    theirs = torch.autograd.grad(wants, exact, [g.double() for g in grads], allow_unused=True)
    monkeypatch.setenv("OGIVE_SHIM_MULTIPROCESSORS", "132")
    for is_hopper in ((True, False) if served else (True,)):
        got = emulated.call("forward", inputs, is_hopper=is_hopper)
        for i, (g, w) in enumerate(zip(got, wants, strict=True)):
            compare(g, w, torch.float32, f"{name} result {i}")
        if len(got) == 1 and is_hopper:
            assert torch.equal(got[0], call_library(COMMAND, formula, dict(zip(shapes, inputs)), tmp_path))
        mine = emulated.call("backward", [*inputs, *grads], is_hopper=is_hopper)
        for i, (g, w) in enumerate(zip(mine, theirs, strict=True)):
            compare(g, w if w is not None else torch.zeros_like(g), torch.float32, f"{name} gradient {i}")
    if len(shapes) == 1:
        lazy = lazy_negative(inputs[0])
        for g, w in zip(emulated.call("forward", [lazy]), emulated.call("forward", [-inputs[0]]), strict=True):
            assert torch.equal(g, w)
    with pytest.raises(ValueError, match="made for"):
        emulated.call("forward", [x[:1] for x in inputs])


@needs_stand_ins
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_shaped_dtypes(dtype, tmp_path):
    """Sums of small integers are exact in any order."""
    name = str(dtype)[6:]
    emit_module(tmp_path, "conv2d(x, w, padding=1) * s", f"x=2x64x8x8:{name}", f"w=64x64x3x3:{name}", "--init", "s",
                "--scalar", "s")
    emulated = EmulatedShapes(tmp_path / "emitted.py", tmp_path)
    torch.manual_seed(9)
    x, w = (torch.randint(-1, 2, s).to(dtype) * (torch.rand(s) < 0.1) for s in ((2, 64, 8, 8), (64, 64, 3, 3)))
    want = F.conv2d(x.double(), w.double(), padding=1) * 0.5
    for is_hopper in (True, False):
        got = emulated.call("forward", [x, w, 0.5], is_hopper=is_hopper)[0]
        assert got.dtype == dtype and torch.equal(got.double(), want)
    with pytest.raises(TypeError, match=f"made for torch.{name}"):
        emulated.call("forward", [x.float(), w, 0.5])


@needs_stand_ins
@pytest.mark.parametrize("name", ["max_pool", "conv2d", "depthwise", "glu"])
@pytest.mark.parametrize("layout", ["channels last", "transposed"])
def test_shaped_strides(name, layout, tmp_path):
    """Tensors of the example's strides are taken as they lie, others copied; results lie as PyTorch's."""
    formula, shapes, reference, served = SHAPED[name]
    if layout == "channels last" and len(shapes["x"]) != 4:
        pytest.skip("no such layout")
    torch.manual_seed(10)
    inputs = [torch.rand(s) - 0.4 for s in shapes.values()]
    arguments = shape_arguments(shapes)
    if layout == "channels last":
        arguments[0] += ":channels_last"
        inputs[0] = inputs[0].contiguous(memory_format=torch.channels_last)
    else:
        numpy.save(tmp_path / "x.npy", numpy.asfortranarray(inputs[0].numpy()))
        arguments[0] = f"x={tmp_path / 'x.npy'}"
        inputs[0] = torch.from_numpy(numpy.asfortranarray(inputs[0].numpy()))
    module = emit_module(tmp_path, formula, *arguments)
    emulated = EmulatedShapes(tmp_path / "emitted.py", tmp_path)
    assert not inputs[0].is_contiguous() and f"strides {inputs[0].stride()}" in (tmp_path / "emitted.py").read_text()
    exact = [x.double().requires_grad_() for x in inputs]
    want = reference(*exact)
    grad = torch.rand_like(want).float()
    theirs = torch.autograd.grad(want, exact, grad.double())
    for is_hopper in (True, False) if served else (True,):
        plan = module.FORWARD[0 if is_hopper else -1]
        one = plan["inputs"][0], plan["alignment"], torch.device("cpu")
        assert module._check(inputs[0], "x", *one) is inputs[0]
        assert module._check(inputs[0].contiguous(), "x", *one).stride() == inputs[0].stride()
        got = emulated.call("forward", inputs, is_hopper=is_hopper)[0]
        compare(got, want, torch.float32, name)
        if layout == "channels last" and got.dim() == 4:
            assert got.is_contiguous(memory_format=torch.channels_last) and not got.is_contiguous()
        other = emulated.call("forward", [x.contiguous() for x in inputs], is_hopper=is_hopper)[0]
        assert torch.equal(got, other)
        mine = emulated.call("backward", [*inputs, grad], is_hopper=is_hopper)
        for i, (g, w) in enumerate(zip(mine, theirs, strict=True)):
            compare(g, w, torch.float32, f"{name} gradient {i}")
        assert mine[0].stride() == inputs[0].stride()


def test_shaped_gradients_that_are_needed(tmp_path):
    """A gradient that nobody asks for costs no kernel of its own."""
    formula, shapes, _, _ = SHAPED["conv2d"]
    module = emit_module(tmp_path, formula, *shape_arguments(shapes), "--for-shapes")
    plan, run = module.BACKWARD[0], []
    module._unit = lambda name: lambda places, stream: run.append(name) or 0
    tensors = [torch.zeros(1)] * len(plan["inputs"])
    for needs in ([True] * 3, [False, False, True]):
        module._launch(plan, tensors, [torch.zeros(1)] * 3, torch.zeros(1), None, needs)
    assert 0 < run.count(run[-1]) <= 2 and len(run) < 2 * len(plan["units"])


def test_shaped_for_one_architecture(tmp_path, monkeypatch):
    """The same file without what serves other GPUs: of these it says that they are others."""
    formula, shapes, _, _ = SHAPED["linear"]
    whole, lean = (emit_module(tmp_path, formula, *shape_arguments(shapes), "--for-shapes", *more)
                   for more in ((), ("--arch", "90")))
    hopper = [name for name in whole.UNITS if name.endswith("_hopper")]
    assert hopper and list(lean.UNITS) == hopper and len(lean.FORWARD) == 1
    assert all(lean.UNITS[name] == whole.UNITS[name] for name in hopper)
    assert set(lean.KERNELS) < set(whole.KERNELS)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    with pytest.raises(RuntimeError, match="compute capability 9.0"):
        lean._choose(0)
    done = emit(formula, *shape_arguments(shapes), "--for-shapes", "--arch", "80")
    assert done.returncode == 4 and "options.arch is '80'" in done.stderr


@pytest.mark.skipif(not NVRTC, reason="OGIVE_TEST_NVRTC does not name NVRTC's library")
@pytest.mark.parametrize("name", SHAPED)
def test_shaped_compile(name, tmp_path):
    formula, shapes = SHAPED[name][:2]
    module = emit_module(tmp_path, formula, *shape_arguments(shapes), "--for-shapes")
    for unit, text in module.UNITS.items():
        source = module._inline(text[:text.index('#include "pytorch/')], set())
        arch = b"90a" if unit.endswith("_hopper") else b"80"
        compile_source(NVRTC, source, b"--fmad=false", b"--std=c++17", b"-diag-suppress=177,179,39",
                       b"--gpu-architecture=sm_" + arch)
