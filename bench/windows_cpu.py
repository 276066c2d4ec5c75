#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Poolings and convolutions beside PyTorch's on the CPU, in one process.

    python bench/windows_cpu.py [--rounds 30] [--threads 1] [NAME...]

A line: milliseconds of Ogive, of PyTorch, PyTorch's over Ogive's (above 1 Ogive is faster), and the
greatest difference over the result's greatest element. Both take turns; a time is the least of all
rounds. With one thread it is the thread's own time that counts, which others on the machine disturb
less. NAME: lines that contain it.
"""
import argparse
import platform
import time

import torch
import torch.nn.functional as F

import ogive.torch as ot

# function, shape of the input, of the weight (or None), arguments behind these
CASES = [
    ("conv2d", (4, 96, 56, 56), (96, 1, 3, 3), {"padding": 1, "groups": 96}),
    ("conv2d", (4, 96, 56, 56), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
    ("conv2d", (4, 96, 56, 56), (96, 1, 3, 3), {"padding": 1, "groups": 96, "stride": 2}),
    ("conv2d", (4, 384, 14, 14), (384, 1, 3, 3), {"padding": 1, "groups": 384}),
    ("conv1d", (4, 96, 4096), (96, 1, 5), {"padding": 2, "groups": 96}),
    ("max_pool2d", (4, 64, 112, 112), None, {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("max_pool2d", (4, 64, 112, 112), None, {"kernel_size": 2}),
    ("max_pool2d", (4, 64, 56, 56), None, {"kernel_size": 3, "stride": 1, "padding": 1}),
    ("avg_pool2d", (4, 64, 112, 112), None, {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("avg_pool2d", (4, 64, 112, 112), None, {"kernel_size": 2}),
    ("avg_pool2d", (4, 64, 56, 56), None, {"kernel_size": 3, "stride": 1, "padding": 1}),
    ("max_pool1d", (4, 64, 16384), None, {"kernel_size": 4, "stride": 2}),
    ("avg_pool3d", (2, 16, 32, 32, 32), None, {"kernel_size": 2}),
    ("adaptive_avg_pool2d", (4, 256, 56, 56), None, {"output_size": 7}),
    ("adaptive_avg_pool2d", (4, 256, 13, 13), None, {"output_size": 6}),
    ("adaptive_avg_pool2d", (4, 64, 100, 100), None, {"output_size": 7}),
    ("adaptive_max_pool2d", (4, 256, 13, 13), None, {"output_size": 6}),
    ("adaptive_max_pool2d", (4, 64, 100, 100), None, {"output_size": 7}),
    ("conv2d", (4, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    ("conv2d", (2, 64, 64, 64), (128, 64, 3, 3), {"padding": 1}),
    ("conv2d", (2, 64, 56, 56), (256, 64, 3, 3), {"padding": 1}),
    ("conv2d", (4, 64, 56, 56), (64, 64, 3, 3), {"padding": 1, "stride": 2}),
    ("conv2d", (4, 256, 56, 56), (64, 256, 1, 1), {}),
    ("conv_transpose2d", (4, 64, 32, 32), (64, 64, 3, 3), {}),
    ("conv_transpose2d", (4, 64, 32, 32), (64, 64, 4, 4), {"stride": 2, "padding": 1}),
]


def describe(name, shape, weight, options):
    sizes = "x".join(map(str, shape))
    filters = "" if weight is None else " w " + "x".join(map(str, weight))
    return f"{name} {sizes}{filters} " + " ".join(f"{k}={v}" for k, v in options.items())


def measure(case, rounds, clock):
    name, shape, weight, options = case
    tensors = [torch.randn(shape)] + ([] if weight is None else [torch.randn(weight)])
    calls = [getattr(ot, name), getattr(F, name)]
    got, want = (call(*tensors, **options) for call in calls)
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = clock()
            call(*tensors, **options)
            best[i] = min(best[i], clock() - start)
    error = ((got - want).abs().max() / want.abs().max()).item()
    print(f"{describe(*case):76}{best[0] * 1e3:9.3f}{best[1] * 1e3:9.3f}{best[1] / best[0]:7.2f}x"
          f"  {error:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    print(f"{platform.machine()}, {arguments.threads} threads, PyTorch {torch.__version__}")
    for case in CASES:
        if not arguments.names or any(name in describe(*case) for name in arguments.names):
            measure(case, arguments.rounds, clock)


if __name__ == "__main__":
    main()
