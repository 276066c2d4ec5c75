#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Formulas of several kernels that share rows (src/cpu/cpu_slabs.c), beside PyTorch on the CPU, in one
process: attention, layers behind each other, norms and poolings behind products and convolutions.

    python bench/chains_cpu.py [--rounds 9] [--threads 1] [NAME...]

A line: milliseconds of Ogive, of PyTorch, PyTorch's over Ogive's (above 1 Ogive is faster), and the
greatest difference over the result's greatest element. Both take turns; a time is the least of all rounds,
with one thread of the process's own time. NAME: lines that contain it. Memory is malloc()'s, as in a program
that knows nothing of either.
"""
import argparse
import platform

import torch
import torch.nn.functional as F

import timing
import ogive
import ogive.torch  # noqa: F401  lends PyTorch's threads

ATTENTION = "softmax(q @ transpose(k, -2, -1) * 0.125, -1) @ v"


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, scale=0.125)


def mlp(x, a, b, c):
    return F.linear(F.gelu(F.linear(x, a, b)), c)


# formula, PyTorch's function, shapes of the inputs
CASES = [
    *[(ATTENTION, attend, [shape] * 3) for shape in
      ((8, 4, 128, 64), (1, 4, 256, 64), (1, 12, 1024, 64), (4, 8, 512, 64), (1, 8, 2048, 64), (1, 2, 4096, 64))],
    *[("linear(gelu(linear(x, a, b)), c)", mlp, [(m, k), (n, k), (n,), (k, n)])
      for m, k, n in ((2048, 128, 512), (4096, 512, 2048))],
    ("softmax(linear(x, a), 1)", lambda x, a: F.softmax(F.linear(x, a), 1), [(4096, 512), (2048, 512)]),
    *[("layer_norm(linear(x, a) + r, (1024,))",
       lambda x, a, r: F.layer_norm(F.linear(x, a) + r, (1024,)), [(m, 256), (1024, 256), (m, 1024)])
      for m in (1024, 4096)],
    ("max_pool2d(avg_pool2d(relu(x), 3, stride=1, padding=1), 2)",
     lambda x: F.max_pool2d(F.avg_pool2d(F.relu(x), 3, 1, 1), 2), [(16, 64, 56, 56)]),
    *[("instance_norm(conv_transpose2d(x, w, stride=2))",
       lambda x, w: F.instance_norm(F.conv_transpose2d(x, w, stride=2)), [(n, 64, 56, 56), (64, 64, 3, 3)])
      for n in (8, 32)],
    ("softmax(conv2d(x, w), 1)", lambda x, w: F.softmax(F.conv2d(x, w), 1), [(8, 64, 56, 56), (64, 64, 1, 1)]),
]


def measure(case, rounds, clock):
    text, eager, shapes = case
    inputs = [torch.randn(shape) for shape in shapes]
    formula = ogive.compile(text)
    got, want = formula(*inputs), eager(*inputs)
    best = [float("inf")] * 2
    for _ in range(rounds):
        for i, call in enumerate((formula, eager)):
            start = clock()
            call(*inputs)
            best[i] = min(best[i], (clock() - start) * 1e3)
    error = ((got - want).abs().max() / want.abs().max()).item()
    print(f"{text:60} {'x'.join(map(str, shapes[0])):12} {best[0]:9.3f} {best[1]:9.3f} "
          f"{best[1] / best[0]:6.2f}x  {error:.0e}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    clock = timing.keep_to_cpus(arguments.threads)
    print(f"{platform.machine()}, {arguments.threads} threads, PyTorch {torch.__version__}")
    with torch.no_grad():
        for case in CASES:
            if not arguments.names or any(name in case[0] for name in arguments.names):
                measure(case, arguments.rounds, clock)


if __name__ == "__main__":
    main()
