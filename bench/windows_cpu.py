#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Poolings and convolutions beside PyTorch's on the CPU, in one process.

    python bench/windows_cpu.py [--rounds 30] [--threads 1] [--half] [--last] [NAME...]

A line: milliseconds of Ogive, of PyTorch, PyTorch's over Ogive's (above 1 Ogive is faster) by
these and by the median of rounds, and the greatest difference over the result's greatest element.
Both take turns; a time is the least of all rounds. The process keeps to as many CPUs as it has
threads; with one it is the process's own time that counts, which others on the machine disturb
less. --half: in bfloat16; --last: images are channels-last, and results, which are given to Ogive as
out=, as PyTorch's are. NAME: lines that contain it.

Memory of results is kept by malloc(): else what is timed is the kernel's zeroing of pages.
"""
import argparse
import ctypes
import platform
import statistics

import torch
import torch.nn.functional as F

import timing
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


def keep_memory():
    """free() gives nothing back to the system, and large blocks come from the heap, too."""
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    for parameter, bytes_of in ((mmap_threshold, 1 << 30), (trim_threshold, 1 << 30),
                                (top_pad, 64 << 20)):
        ctypes.CDLL(None).mallopt(parameter, bytes_of)


def measure(case, arguments, clock):
    name, shape, weight, options = case
    dtype = torch.bfloat16 if arguments.half else torch.float32
    tensors = [torch.randn(shape, dtype=dtype)]
    if arguments.last and len(shape) == 4:
        tensors[0] = tensors[0].contiguous(memory_format=torch.channels_last)
    tensors += [] if weight is None else [torch.randn(weight, dtype=dtype)]
    calls = [getattr(ot, name), getattr(F, name)]
    if arguments.last and len(shape) == 4:
        like, mine = calls[1](*tensors, **options), calls[0]
        calls[0] = lambda *t, **o: mine(*t, **o, out=torch.empty_like(like))
    got, want = (call(*tensors, **options) for call in calls)
    times = [[], []]
    for _ in range(arguments.rounds):
        for call, spent in zip(calls, times):
            start = clock()
            call(*tensors, **options)
            spent.append(clock() - start)
    best = [min(spent) for spent in times]
    middle = statistics.median(theirs / ours for ours, theirs in zip(*times))
    error = ((got - want).abs().max() / want.abs().max()).item()
    print(f"{describe(*case):76}{best[0] * 1e3:9.3f}{best[1] * 1e3:9.3f}{best[1] / best[0]:7.2f}x"
          f"{middle:7.2f}x  {error:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--last", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    keep_memory()
    clock = timing.keep_to_cpus(arguments.threads)
    print(f"{platform.machine()}, {arguments.threads} threads, PyTorch {torch.__version__}")
    for case in CASES:
        if not arguments.names or any(name in describe(*case) for name in arguments.names):
            measure(case, arguments, clock)


if __name__ == "__main__":
    main()
