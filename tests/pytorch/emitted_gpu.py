#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files of `ogive emit --pytorch` on a GPU, against PyTorch in float64.

    python tests/pytorch/emitted_gpu.py FOLDER [NAME...]

FOLDER holds NAME.py for the cases of emitted_cases.py (tests/pytorch/emit_cases writes
them). Every file is built and run in a process of its own, as many at a time as there are
cores, since each dtype and layout has kernels compiled: dtypes, strides, gradients, streams,
special values, bad input. Exits with 1 if anything is wrong; the last line is "N cases, N failed".
"""
import concurrent.futures
import importlib.util
import math
import os
import pathlib
import subprocess
import sys
import traceback

import torch

from emitted_cases import CASES

# Of the largest magnitude. (PyTorch's own float64 hardsigmoid and hardswish have a float32's
# 1/6 in them on a GPU: the references below do not call these.)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def load(path):
    spec = importlib.util.spec_from_file_location("emitted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def layouts(x):
    """The same values, laid out differently."""
    yield "contiguous", x
    if x.dim() > 1:
        yield "transposed", x.transpose(0, -1).contiguous().transpose(0, -1)
        wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=x.dtype, device=x.device)
        wide[..., 1::2] = x
        yield "strided", wide[..., 1::2]


def error_of(got, want):
    """Greatest difference, of the greatest magnitude; what is not finite counts for nothing."""
    got, want = got.detach().double(), want.detach().double()
    scale = want[want.isfinite()].abs().max() if want.isfinite().any() else 1.0
    return float((got - want).abs().nan_to_num(0.0, 0.0, 0.0).max() / max(float(scale), 1e-30))


def compare(got, want, dtype, what, eager=None):
    """eager: the same by PyTorch's operations in float32. Where a formula is ill-conditioned (the
    exponential of a sum of products has the sum's absolute error as a relative one), these are as
    far from float64, whoever computes: three times their error is allowed then."""
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    assert got.dtype == dtype, f"{what}: {got.dtype}"
    assert torch.equal(got.isnan(), want.isnan()), f"{what}: NaN"
    if got.numel() == 0:
        return
    assert torch.equal(got.isinf(), want.isinf()), f"{what}: infinities"
    theirs = error_of(eager, want) if eager is not None and dtype == torch.float32 else 0.0
    wrong, bound = error_of(got, want), max(TOLERANCE[dtype], 3 * theirs)
    assert wrong <= bound, f"{what}: off by {wrong:.2e} of the greatest; PyTorch's own {theirs:.2e}"


def check_values(model, name, run, dtype):
    _, _, _, reference, low, high = CASES[name]
    for layout in ("contiguous", "transposed", "strided")[:3 if dtype == torch.float32 else 1]:
        inputs = [torch.empty(shape, dtype=torch.float64, device="cuda").uniform_(low, high).to(dtype)
                  for shape in run.values()]
        inputs = [dict(layouts(x)).get(layout, x).detach().requires_grad_() for x in inputs]
        exact = [x.detach().double().requires_grad_() for x in inputs]
        plain = [x.detach().requires_grad_() for x in inputs]
        got, want, eager = (as_tuple(f(*x)) for f, x in ((model, inputs), (reference, exact),
                                                         (reference, plain)))
        what = f"{name} {run} {dtype} {layout}"
        for i, (g, w, e) in enumerate(zip(got, want, eager, strict=True)):
            compare(g, w, dtype, f"{what} result {i}", e)
        grads = [torch.rand_like(w).to(dtype) for w in want]
        mine, theirs, plainly = (torch.autograd.grad(y, x, [g.to(y[0].dtype) for g in grads])
                                 for y, x in ((got, inputs), (want, exact), (eager, plain)))
        for i, (g, w, e) in enumerate(zip(mine, theirs, plainly, strict=True)):
            compare(g, w, dtype, f"{what} gradient {i}", e)


def check_rest(model, name):
    """Streams, partial gradients, what is refused."""
    _, _, runs, reference, low, high = CASES[name]
    shapes = list(runs[0].values())
    inputs = [torch.empty(s, device="cuda").uniform_(low, high) for s in shapes]
    want = as_tuple(model(*inputs))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        other = as_tuple(model(*inputs))
    torch.cuda.current_stream().wait_stream(stream)
    for a, b in zip(want, other, strict=True):
        assert torch.equal(a, b), f"{name}: another stream, other bits"
    for i in range(len(inputs)):  # by one input alone
        some = [x.clone().requires_grad_(i == j) for j, x in enumerate(inputs)]
        torch.autograd.grad(as_tuple(model(*some))[0].sum(), some[i], allow_unused=True)
    for error, bad in ((TypeError, [x.int() for x in inputs]),
                       (TypeError, [x.cfloat() for x in inputs])):
        try:
            model(*bad)
        except error:
            continue
        raise AssertionError(f"{name}: {error.__name__} expected")
    if len(inputs) > 1:
        for bad in (inputs[:-1] + [inputs[-1].double()], inputs[:-1] + [inputs[-1].cpu()]):
            try:
                model(*bad)
            except (TypeError, ValueError):
                continue
            raise AssertionError(f"{name}: mixed inputs were taken")


def check_specials(model):
    """What pairs of halves cannot hold: linear()."""
    x = torch.randn(200, 300, device="cuda")
    w = torch.randn(140, 300, device="cuda")
    b = torch.randn(140, device="cuda")
    x[3, 5], x[4, 6], x[7, 0], x[9] = math.inf, math.nan, 3e38, 0.0
    w[2, 9], w[5] = -math.inf, 1e-42
    w[11, ::2] *= 1e30
    x[12, 1::2] *= 1e-25
    x[150] *= 1e-36
    got = model(x, w, b).double()
    want = torch.nn.functional.linear(x.double(), w.double(), b.double())
    bound = x.abs().double() @ w.abs().double().t() + b.abs()
    assert torch.equal(got.isnan(), want.isnan()), "NaN"
    finite = want.isfinite() & got.isfinite()
    assert torch.equal(got[~finite].isfinite(), want[~finite].float().isfinite()), "overflow"
    worst = ((got - want).abs() / bound)[finite].nan_to_num(0.0).max().item()
    assert worst < 2.0 ** -21, f"specials: {worst:.2e} of the sum of magnitudes"
    for k in (64, 1024, 8192):
        x, w = torch.rand(256, k, device="cuda"), torch.rand(256, k, device="cuda")
        got, sgemm = model(x, w, torch.zeros(256, device="cuda")), x @ w.t()
        want = x.double() @ w.double().t()
        mine = ((got - want).abs() / want).max().item()
        theirs = ((sgemm - want).abs() / want).max().item()
        print(f"linear k={k}: greatest error {mine:.1e}, PyTorch's {theirs:.1e}")
        assert mine <= max(1.5 * theirs, 2.0 ** -21)


def check_file(path):
    name = path.stem
    module = load(path)
    model = module.ModelNew()
    for run in CASES[name][2]:
        for dtype in TOLERANCE:
            check_values(model, name, run, dtype)
    check_rest(model, name)
    if name == "linear":
        check_specials(model)
        print("\n".join(module.kernels()))
        is_hopper = torch.cuda.get_device_capability() == (9, 0)
        assert is_hopper == any("wgmma" in line for line in module.kernels()), "which kernels served"


def check_apart(folder, name):
    """One case, in a process of its own: what it prints, and whether it is right."""
    done = subprocess.run([sys.executable, __file__, folder, name], capture_output=True, text=True,
                          env={**os.environ, "MAX_JOBS": "2"})
    text = done.stdout[:done.stdout.rfind("1 cases")]
    if done.returncode != 0:
        text += f"FAIL {name} ended with status {done.returncode}: {done.stderr[-3000:]}\n"
    return text, done.returncode == 0


def main():
    folder = pathlib.Path(sys.argv[1])
    names = sys.argv[2:] or sorted(CASES)
    failed = 0
    if len(names) == 1:
        torch.manual_seed(1)
        try:
            check_file(folder / f"{names[0]}.py")
            print("ok  ", names[0], flush=True)
        except Exception:
            failed = 1
            print("FAIL", names[0], traceback.format_exc()[-1500:], flush=True)
    else:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for text, is_right in pool.map(lambda name: check_apart(folder, name), names):
                failed += not is_right
                print(text, end="", flush=True)
    print(f"{len(names)} cases, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
