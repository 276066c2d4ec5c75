#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ogive's matrix products beside PyTorch's on the CPU, each in a process of its own.

    python bench/pytorch_products.py [--library build/libogive.so] [--threads 2] [--rounds 5]
        [NAME...]

Both write into given memory (out=). In each round first one process, then the
other works for a while (--seconds) and the other sleeps; the table shows the least
time of a call over all rounds and PyTorch's / Ogive's: above 1 Ogive is faster.
--cpu-time counts the process's CPU time instead of the clock's, for a machine with
other work on it; with one thread the two are comparable.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

root = pathlib.Path(__file__).resolve().parent.parent

# name -> (formula, shapes of its inputs in order of appearance, dtype, least ratio aimed for)
workloads = {}
for m, goal in ((1, .9), (2, .9), (4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (128, 1)):
    workloads[f"{m}x4096x4096"] = ("linear(x, w)", [(m, 4096), (4096, 4096)], "float32", goal)
for m, n, k, goal in ((1024, 2048, 2048, .93), (2048, 2048, 2048, .93), (4096, 64, 64, .8),
                      (128, 10, 512, .8), (1, 1000, 512, .8), (64, 64, 64, .8)):
    workloads[f"{m}x{n}x{k}"] = ("linear(x, w)", [(m, k), (n, k)], "float32", goal)
for m in (1, 4, 128):
    workloads[f"{m}x4096x4096 x @ y"] = ("x @ y", [(m, 4096), (4096, 4096)], "float32", .8)
# Where less than PyTorch's speed is aimed for: its bfloat16 products of several rows use
# an instruction (AVX-512's VDPBF16PS) that adds two products in an order of its own, which
# no other CPU repeats; a single row of float16 waits for w to change sides in registers.
below = {("bfloat16", 8): .65, ("bfloat16", 128): .45, ("float16", 1): .7}
for dtype in ("float16", "bfloat16", "float64"):
    for m in (1, 8, 128):
        workloads[f"{m}x4096x4096 {dtype}"] = ("linear(x, w)", [(m, 4096), (4096, 4096)], dtype,
                                               below.get((dtype, m), 1))
workloads["sum(sigmoid(linear)) 128x4096x4096"] = (
    "sum(sigmoid(linear(x, w, b)), dim=1)", [(128, 4096), (4096, 4096), (4096,)], "float32", 1.05)
workloads["gated pair 128x4096x1024"] = (
    "silu(linear(x, v)) * linear(x, w)", [(128, 1024), (4096, 1024), (4096, 1024)], "float32", 1.05)
workloads["z + 2 sigmoid(z) 1024x2048x2048"] = (
    "z = linear(x, w, b); z + 2.0 * sigmoid(z)", [(1024, 2048), (2048, 2048), (2048,)],
    "float32", 1.05)


def make_torch(formula, shapes, dtype, threads):
    import torch
    torch.set_num_threads(threads)
    args = [torch.rand(*shape).to(getattr(torch, dtype)) for shape in shapes]
    x, w = args[:2]
    n = w.shape[1] if "@" in formula else w.shape[0]
    z = torch.empty(x.shape[0], n, dtype=x.dtype)
    transposed = w if "@" in formula else w.t()
    if len(args) == 2:
        return lambda: torch.mm(x, transposed, out=z)
    b, s, out = args[2], torch.empty_like(z), torch.empty(x.shape[0])

    def gated():
        torch.mm(x, transposed, out=z)
        torch.mm(x, b.t(), out=s)
        torch.mul(torch.nn.functional.silu(z), s, out=z)

    def fused():
        torch.addmm(b, x, transposed, out=z)
        torch.sigmoid(z, out=s)
        if formula.startswith("sum"):
            torch.sum(s, dim=1, out=out)
        else:
            torch.add(z, s, alpha=2.0, out=s)
    return gated if "silu" in formula else fused


def make_ogive(formula, shapes, dtype, threads, library):
    import torch

    import binding
    args = [torch.rand(*shape).to(getattr(torch, dtype)) for shape in shapes]
    n = shapes[1][1] if "@" in formula else shapes[1][0]
    out = torch.empty(*((shapes[0][0],) if formula.startswith("sum") else (shapes[0][0], n)),
                      dtype=args[0].dtype)
    return binding.Library(library).plan(formula, args, [out], threads=threads)


def work(options):
    """A worker: for each line, a workload's name, the least milliseconds of a call."""
    import timing
    made = {}
    clock = time.process_time if options.cpu_time else time.perf_counter
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            made.clear()
            formula, shapes, dtype, _ = workloads[name]
            made[name] = (make_torch(formula, shapes, dtype, options.threads)
                          if options.worker == "torch" else
                          make_ogive(formula, shapes, dtype, options.threads, options.library))
            made[name]()
        print(json.dumps(timing.least_on_cpu(made[name], options.seconds, clock)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=root / "build/libogive.so")
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--seconds", default=0.3, type=float)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="only workloads whose names contain one of these")
    options = parser.parse_args()
    if options.worker:
        return work(options)
    shared = [f"--library={options.library}", f"--threads={options.threads}",
              f"--seconds={options.seconds}"] + ["--cpu-time"] * options.cpu_time
    workers = [subprocess.Popen([sys.executable, __file__, f"--worker={side}", *shared], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
               for side in ("torch", "ogive")]
    print(f"{'workload':36} {'PyTorch us':>12} {'Ogive us':>12} {'ratio':>7} {'goal':>6}")
    for name, (*_, goal) in workloads.items():
        if options.names and not any(part in name for part in options.names):
            continue
        best = [float("inf"), float("inf")]
        for _ in range(options.rounds):
            for side, worker in enumerate(workers):
                time.sleep(0.25)  # the other's idle threads stop spinning
                worker.stdin.write(name + "\n")
                worker.stdin.flush()
                best[side] = min(best[side], json.loads(worker.stdout.readline()))
        ratio = best[0] / best[1]
        print(f"{name:36} {best[0] * 1e3:12.1f} {best[1] * 1e3:12.1f} {ratio:7.2f} {goal:6.2f}"
              f"{'' if ratio >= goal else '  below'}", flush=True)


if __name__ == "__main__":
    main()
