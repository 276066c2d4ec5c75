#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Blocks of models on the CPU, forward and in training: PyTorch's eager mode beside
torch.compile(backend="ogive") at both of its levels, in turns in one process.

    OMP_NUM_THREADS=2 python bench/blocks_cpu.py [--rounds 60] [--cpu-time] [NAME...]

A training step is the block, a loss and the gradients by all parameters and the input. Medians, and
eager's time / the time at each level: above 1 Ogive is faster. --cpu-time: the least CPU time of the
process instead, which other work on the machine changes less. Results are compared first.
docs/pytorch.md has the figures ("When not to use Ogive").
"""
import argparse
import functools
import platform
import re
import time

import torch
import torch.nn.functional as F
from torch import nn

import timing
from ogive import torch as ot

LEVELS = ("torch", "aten")


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Llama(nn.Module):
    """A layer as Hugging Face writes it."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.first, self.second = (nn.Parameter(torch.ones(width)) for _ in range(2))

    @staticmethod
    def norm(x, weight):
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    @staticmethod
    def turn(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, cos, sin):
        batch, tokens, width = x.shape
        r = self.norm(x, self.first)
        q, k, v = (each(r).view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for each in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(self.turn(q, cos, sin), self.turn(k, cos, sin), v,
                                               is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, tokens, width))
        r = self.norm(x, self.second)
        return x + self.down(F.silu(self.gate(r)) * self.up(r))


class Bert(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = self.first(x + self.o(mixed.reshape(batch, tokens, width)))
        return self.second(x + self.down(F.gelu(self.up(x))))


class Lstm(nn.Module):
    """Cells written out, step by step."""

    def __init__(self, width):
        super().__init__()
        self.inward, self.again = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1:])
        for step in self.inward(x):
            i, f, g, o = (step + self.again(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


BLOCKS = {  # name: how to make the block, shapes of its inputs
    "mlp 2048x128x512": (lambda: Mlp(128, 512), [(2048, 128)]),
    "mlp 512x512x2048": (lambda: Mlp(512, 2048), [(512, 512)]),
    "llama 256 tokens, 256, 896": (lambda: Llama(256, 8, 896), [(1, 256, 256), (256, 32), (256, 32)]),
    "bert 8x128 tokens, 256": (lambda: Bert(256, 4), [(8, 128, 256)]),
    "lstm 16 steps, 32x128": (lambda: Lstm(128), [(16, 32, 128)]),
}


def measure(make, shapes, training, rounds, cpu_time):
    """{way: milliseconds}."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    block = make()
    inputs = [torch.randn(shape) for shape in shapes]
    inputs[0].requires_grad_(training)
    wanted = [inputs[0], *block.parameters()]

    def step(block):
        if training:
            return torch.autograd.grad(block(*inputs).square().mean(), wanted)
        with torch.no_grad():
            return [block(*inputs)]

    calls = {"eager": lambda: step(block)}
    for level in LEVELS:
        compiled = torch.compile(block, backend=ot.backend, options={"level": level})
        for ours, theirs in zip(step(compiled), step(block)):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        calls[level] = functools.partial(step, compiled)
    if cpu_time:
        found = timing.on_cpu(calls, rounds, clock=time.process_time)
        return {way: min(times) for way, times in found.items()}
    return timing.medians(timing.on_cpu(calls, rounds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    with open("/proc/cpuinfo") as file:
        cpu = re.search("model name\\s*: (.*)", file.read())
    print(f"{cpu[1] if cpu else platform.machine()}, PyTorch {torch.__version__}, "
          f"{torch.get_num_threads()} threads, {'least CPU time' if args.cpu_time else 'medians'} "
          f"of {args.rounds}")
    print(f"{'':28} {'':8} {'eager':>8} {'torch':>8} {'aten':>8} ms, eager's time / these")
    for name, (make, shapes) in BLOCKS.items():
        if args.names and not any(each in name for each in args.names):
            continue
        for training in (False, True):
            times = measure(make, shapes, training, args.rounds, args.cpu_time)
            print(f"{name:28} {'training' if training else 'forward':8}"
                  + "".join(f" {each:8.3f}" for each in times.values()) + "   "
                  + "".join(f" {times['eager'] / times[level]:.2f}" for level in LEVELS), flush=True)


if __name__ == "__main__":
    main()
