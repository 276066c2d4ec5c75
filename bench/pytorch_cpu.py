#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ogive beside PyTorch on the CPU, in one process.

    python bench/pytorch_cpu.py [--library build/libogive.so] [--threads 2] [--rounds 21] [NAME...]

Both write into given memory (out=). A round times PyTorch, then Ogive, after a
pause in which either's idle threads go to sleep; the table shows medians over
the rounds and PyTorch's time / Ogive's: above 1 Ogive is faster. Ogive's has some
half a microsecond of ctypes in it.
"""
import argparse
import platform
import sys

import torch

import binding
import timing

aten = torch.ops.aten


def rand(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


def pointwise(text, eager, n, inputs=1, dtype=torch.float32):
    """eager(inputs, out) computes the same with PyTorch's operators."""
    def make():
        args = [rand(n, dtype=dtype) for _ in range(inputs)]
        out = torch.empty(n, dtype=dtype)
        return text, args, out, lambda: eager(*args, out)
    return make


def sigmoid(x, out):
    torch.sigmoid(x, out=out)


def hardsigmoid(x, out):
    aten.hardsigmoid.out(x, out=out)


def swish_add(x, y, out):
    torch.sigmoid(x, out=out)
    torch.mul(x, out, out=out)
    torch.add(out, y, out=out)


def five(x, y, out):
    torch.tanh(x, out=out)
    torch.mul(out, y, out=out)
    torch.add(out, x, out=out)
    torch.clamp(out, -1.0, 1.0, out=out)
    torch.mul(out, 0.5, out=out)


def matrix(text, shape, out_shape, eager, extra=()):
    def make():
        x, out = rand(*shape), torch.empty(*out_shape)
        more = [rand(*s) for s in extra]
        return text, [x, *more], out, lambda: eager(x, *more, out)
    return make


def layer_norm(x, w, b, out):
    rows = x.shape[0]
    layer_norm.mean = getattr(layer_norm, "mean", None)
    if layer_norm.mean is None or layer_norm.mean.shape[0] != rows:
        layer_norm.mean, layer_norm.rstd = torch.empty(rows, 1), torch.empty(rows, 1)
    aten.native_layer_norm.out(x, [x.shape[1]], w, b, 1e-5, out0=out, out1=layer_norm.mean,
                               out2=layer_norm.rstd)


# name -> (workload, least ratio we aim for)
workloads = {}
for power, goals in ((12, 1.2), (16, 1.0), (20, 1.0), (26, 0.98)):
    workloads[f"sigmoid 2^{power}"] = (pointwise("sigmoid(x)", sigmoid, 2**power), goals)
    workloads[f"hardsigmoid 2^{power}"] = (
        pointwise("hardsigmoid(x)", hardsigmoid, 2**power), goals)
for power in (20, 26):
    workloads[f"x*sigmoid(x)+y 2^{power}"] = (
        pointwise("x * sigmoid(x) + y", swish_add, 2**power, 2), 1.5)
    workloads[f"five operators 2^{power}"] = (
        pointwise("clamp(tanh(x) * y + x, -1, 1) * 0.5", five, 2**power, 2), 1.5)
workloads["softmax 4096x4096"] = (
    matrix("softmax(x, 1)", (4096, 4096), (4096, 4096),
           lambda x, out: aten._softmax.out(x, 1, False, out=out)), 1.0)
workloads["layer_norm 4096x4096"] = (
    matrix("layer_norm(x, 4096, w, b)", (4096, 4096), (4096, 4096), layer_norm,
           ((4096,), (4096,))), 1.0)
workloads["sum over rows 8192x8192"] = (
    matrix("sum(x, 1)", (8192, 8192), (8192,), lambda x, out: torch.sum(x, 1, out=out)), 0.98)
workloads["sum over columns 8192x8192"] = (
    matrix("sum(x, 0)", (8192, 8192), (8192,), lambda x, out: torch.sum(x, 0, out=out)), 0.98)
for name, dtype in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
    workloads[f"sigmoid {name} 2^20"] = (
        pointwise("sigmoid(x)", sigmoid, 2**20, dtype=dtype), 1.0)


def check(text, got, want):
    tolerance = 1e-5 if got.dtype == torch.float32 else 1e-2
    if not torch.allclose(got.float(), want.float(), rtol=tolerance, atol=1e-3):
        sys.exit(f"{text}: results differ by {(got.float() - want.float()).abs().max()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=binding.root / "build/libogive.so")
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--rounds", default=21, type=int)
    parser.add_argument("names", nargs="*", help="only workloads whose names contain one of these")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    ogive = binding.Library(options.library)
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, "
          f"{options.threads} threads, {platform.machine()}, median of {options.rounds} rounds")
    print(f"{'workload':30} {'PyTorch us':>12} {'Ogive us':>12} {'ratio':>7} {'goal':>6}")
    for name, (make, goal) in workloads.items():
        if options.names and not any(part in name for part in options.names):
            continue
        text, inputs, out, peer = make()
        mine = torch.empty_like(out)
        calls = {"torch": peer,
                 "ogive": ogive.plan(text, inputs, [mine], threads=options.threads)}
        for call in calls.values():
            call()
        check(text, mine, out)
        least = min(timing.on_cpu({"torch": peer}, 3)["torch"])
        repeats = dict.fromkeys(calls, max(1, int(2 / max(0.001, least))))
        # libgomp spins for some 10 ms after its last region.
        times = timing.medians(timing.on_cpu(calls, options.rounds, repeats, pause=0.02))
        theirs, ours = times["torch"] * 1e3, times["ogive"] * 1e3
        mark = "" if theirs / ours >= goal else "  below"
        print(f"{name:30} {theirs:12.2f} {ours:12.2f} {theirs / ours:7.2f} {goal:6.2f}{mark}",
              flush=True)


if __name__ == "__main__":
    main()
