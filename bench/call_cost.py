#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""call_cost.py [cuda]: what a call costs where the work itself is next to nothing (16
float32 numbers, 1024 on a GPU), beside torch.sigmoid in the same run. Calls take turns, so
that a noisy machine slows all of them; the least of many rounds counts. On a GPU it is the
time until a call returns, its kernel queued."""

import sys
import time

import numpy as np
import torch

import ogive
import ogive.torch as ot

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
ROUNDS, CALLS = 600, 100

formula = ogive.compile("sigmoid(x)")
operator = torch.ops.ogive.run.default
plain = torch.randn(16 if device == "cpu" else 1024, device=device)
differentiable = plain.clone().requires_grad_()


def chain(x):
    return torch.sigmoid(x) * 2.0 + x


# What compiled functions cost besides: Dynamo's guards and wrappers.
ours = {level: torch.compile(chain, backend=ot.backend, options={"level": level})
        for level in ("torch", "aten")}
whole = ogive.compile("sigmoid(x) * 2.0 + x")
array, out = np.ones(16, np.float32), torch.empty_like(plain)

CASES = {
    "torch.sigmoid(x)": lambda: torch.sigmoid(plain),
    "ogive.torch.sigmoid(x)": lambda: ot.sigmoid(plain),
    "ogive.compile('sigmoid(x)')(x)": lambda: formula(plain),
    "torch.sigmoid(x, out=y)": lambda: torch.sigmoid(plain, out=out),
    "ogive.torch.sigmoid(x, out=y)": lambda: ot.sigmoid(plain, out=out),
    "torch.ops.ogive.run([x], 'sigmoid(x)')": lambda: operator([plain], "sigmoid(x)"),
    "torch.sigmoid(x), x requires grad": lambda: torch.sigmoid(differentiable),
    "ogive.torch.sigmoid(x), x requires grad": lambda: ot.sigmoid(differentiable),
    "ogive.torch.softmax(x, 0)": lambda: ot.softmax(plain, 0),
    "torch.softmax(x, 0)": lambda: torch.softmax(plain, 0),
    "chain(x) = torch.sigmoid(x) * 2.0 + x": lambda: chain(plain),
    "ogive.compile('sigmoid(x) * 2.0 + x')(x)": lambda: whole(plain),
    "torch.compile(chain, backend='ogive')(x)": lambda: ours["torch"](plain),
    "the same at the level 'aten'": lambda: ours["aten"](plain),
    "ogive.compile('sigmoid(x)')(x), NumPy": lambda: formula(array),
    "np.exp(x)": lambda: np.exp(array),
}


def seconds_a_call(function):
    if device != "cpu":
        torch.cuda.synchronize()  # queues are empty, and have room for all calls
    start = time.perf_counter()
    for _ in range(CALLS):
        function()
    return (time.perf_counter() - start) / CALLS


if __name__ == "__main__":
    torch.set_num_threads(1)
    least = dict.fromkeys(CASES, 1.0)
    for _ in range(ROUNDS):
        for name, function in CASES.items():
            least[name] = min(least[name], seconds_a_call(function))
    print("| call | us | of torch.sigmoid |\n|---|---|---|")
    for name, seconds in least.items():
        print(f"| `{name}` | {seconds * 1e6:.2f} | {seconds / least['torch.sigmoid(x)']:.2f} |")
