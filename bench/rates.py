#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What this machine's CPU does in a second, by Ogive and by PyTorch: the numbers of src/api/rates.def.

    OMP_NUM_THREADS=N python bench/rates.py [--rounds N]

Prints, for each kind of work and dtype, the seconds of a call that has next to nothing to do, and
bytes, functions and multiplications a second of big ones, PyTorch's first; medians of rounds in
which both take turns. With one thread it is the thread's own time that counts, which others on the
machine disturb less.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F

import ogive

FLOAT32, HALF, BFLOAT16, FLOAT64 = torch.float32, torch.float16, torch.bfloat16, torch.float64


def in_turns(calls, rounds):
    """Median seconds of each."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    times = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, taken in zip(calls, times):
            begin, count = clock(), 0
            while count == 0 or clock() - begin < 0.01:
                call()
                count += 1
            taken.append((clock() - begin) / count)
    return [statistics.median(taken) for taken in times]


def report(kind, dtype, what, theirs, ours, work=None):
    name = str(dtype).removeprefix("torch.")
    if work is None:
        print(f"{kind:9} {name:9} {what:22} {theirs * 1e6:9.2f} {ours * 1e6:9.2f} us", flush=True)
    else:
        print(f"{kind:9} {name:9} {what:22} {work / theirs / 1e9:9.2f} {work / ours / 1e9:9.2f} e9/s",
              flush=True)


def pairs(dtype):
    """kind, formula, PyTorch's function, shapes of the big one, what is counted."""
    yield "ELEMENTS", "hardsigmoid(x)", F.hardsigmoid, (1 << 24,), "bytes"
    yield "ELEMENTS", "sigmoid(x)", torch.sigmoid, (1 << 20,), "operations"
    yield "SOFTMAX", "softmax(x, 1)", lambda x: torch.softmax(x, 1), (4096, 4096), "bytes"
    yield "NORM", "layer_norm(x, [4096])", lambda x: F.layer_norm(x, (4096,)), (4096, 4096), "bytes"
    yield "ROWS", "sum(x, 1)", lambda x: x.sum(1), (8192, 4096), "bytes"


def measure_functions(dtype, rounds):
    for kind, text, function, shape, what in pairs(dtype):
        formula = ogive.compile(text)
        small = torch.randn(16) if len(shape) == 1 else torch.randn(2, 4096)
        small, big = small.to(dtype), torch.randn(shape).to(dtype)
        report(kind, dtype, "call", *in_turns([lambda: function(small), lambda: formula(small)], rounds))
        moved = big.element_size() * (big.numel() + function(big).numel())
        report(kind, dtype, what, *in_turns([lambda: function(big), lambda: formula(big)], rounds),
               big.numel() if what == "operations" else moved)


def measure_products(dtype, rounds):
    formula = ogive.compile("linear(x, w)")
    for m, n, k, what in (16, 16, 16, "call"), (1, 4096, 4096, "bytes"), (8, 4096, 4096, "bytes"), (
            512, 1024, 1024, "multiplications"):
        x, w = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
        work = None if what == "call" else (
            2 * m * n * k if what == "multiplications" else w.numel() * w.element_size())
        label = what if what == "call" else f"{what} {m}x{n}x{k}"
        report("PRODUCT", dtype, label, *in_turns([lambda: F.linear(x, w), lambda: formula(x, w)], rounds),
               work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; PyTorch's, Ogive's")
    with torch.no_grad():
        for dtype in (FLOAT32, BFLOAT16, HALF, FLOAT64):
            measure_functions(dtype, options.rounds)
            measure_products(dtype, options.rounds)


if __name__ == "__main__":
    main()
