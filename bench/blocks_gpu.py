#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Blocks of models on a GPU, by eager mode, Inductor and torch.compile(backend="ogive").

Forward and in training, Ogive's backend at both of its levels, in turns in one process:

    python bench/blocks_gpu.py [--seconds 0.6] [--dtype bfloat16] [--kernels 12] [NAME...]

A training step is the block, a loss and the gradients by all parameters and the input. Medians in
milliseconds, the L2 cache flushed before each call; err is the greatest difference of the result
from eager mode's over its greatest element. --kernels: for each way also how long the host takes to
queue a call, and the kernels, so many of them, that take longest, in microseconds of a call.
"""
import argparse
import collections
import gc
import re
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

import timing
from blocks_cpu import Bert, Llama, Mlp
from ogive import torch as ot


class WideNorms(Llama):
    """With norms computed in float32."""

    @staticmethod
    def norm(x, weight):
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Bottleneck(nn.Module):
    """Of a ResNet."""

    def __init__(self, width, narrow):
        super().__init__()
        self.convolutions = nn.ModuleList([
            nn.Conv2d(width, narrow, 1, bias=False), nn.Conv2d(narrow, narrow, 3, padding=1, bias=False),
            nn.Conv2d(narrow, width, 1, bias=False)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(each.out_channels) for each in self.convolutions])

    def forward(self, x):
        h = x
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms)):
            h = norm(convolution(h))
            h = F.relu(h if i < 2 else h + x)
        return h


def tokens(shape, turned=0):
    """Inputs: of that shape, and a layer's cosines and sines."""
    def make(dtype):
        made = [torch.randn(shape, dtype=dtype, device="cuda")]
        return made + [torch.randn(shape[1], turned, dtype=dtype, device="cuda")
                       for _ in range(2 if turned else 0)]
    return make


BLOCKS = {  # block, inputs, whether it is trained, too
    "llama-8b layer 2048 tokens": (lambda: WideNorms(4096, 32, 14336), tokens((1, 2048, 4096), 128),
                                   True),
    "llama-8b layer decode 16": (lambda: WideNorms(4096, 32, 14336), tokens((16, 1, 4096), 128),
                                 False),
    "bert-large layer 32x512": (lambda: Bert(1024, 16), tokens((32, 512, 1024)), True),
    "mlp block 4096x2048x8192": (lambda: Mlp(2048, 8192), tokens((4096, 2048)), True),
    "resnet bottleneck 64x256x56x56": (lambda: Bottleneck(256, 64), tokens((64, 256, 56, 56)), True),
    "batch_norm, relu 64x256x56x56": (lambda: nn.Sequential(nn.BatchNorm2d(256), nn.ReLU()),
                                      tokens((64, 256, 56, 56)), True),
}
WAYS = {"eager": None, "inductor": {"backend": "inductor"},
        "torch": {"backend": ot.backend, "options": {"level": "torch"}},
        "aten": {"backend": ot.backend, "options": {"level": "aten"}}}


def steps(block, inputs, training):
    """{way: a call}."""
    calls = {}
    torch._dynamo.reset()
    for name, how in WAYS.items():
        compiled = block if how is None else torch.compile(block, **how)

        def forward(compiled=compiled):
            with torch.no_grad():
                return compiled(*inputs)

        def train(compiled=compiled):
            block.zero_grad(set_to_none=True)
            inputs[0].grad = None
            result = compiled(*inputs)
            result.square().mean().backward()
            return result

        calls[name] = train if training else forward
    return calls


def host_time(call, rounds=30):
    """Microseconds until call returns, the GPU being idle before it."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def show_kernels(way, call, most, rounds=5):
    host = host_time(call)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(rounds):
            call()
        torch.cuda.synchronize()
    found = collections.defaultdict(list)
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name].append(event.device_time)
    total = {name: sum(times) / rounds for name, times in found.items()}
    count = sum(map(len, found.values())) / rounds
    print(f"    {way}: host {host:.0f}, {count:.0f} kernels {sum(total.values()):.0f} us", flush=True)
    for name, time_ in sorted(total.items(), key=lambda each: -each[1])[:most]:
        short = re.sub(r"^void |at::native::|\s+", " ", name).strip()[:110]
        print(f"      {time_:8.1f} {len(found[name]) / rounds:3.0f}x {short}", flush=True)


def measure(name, dtype, args):
    make, inputs_of, trained = BLOCKS[name]
    for training in (True,) if trained and args.training else (False, True)[:1 + trained]:
        torch.manual_seed(0)
        block, inputs = make().to("cuda", dtype).train(training), inputs_of(dtype)
        inputs[0].requires_grad_(training)
        calls = steps(block, inputs, training)
        want = calls["eager"]()
        errors = [float((call() - want).detach().abs().max() / want.detach().abs().max())
                  for call in list(calls.values())[2:]]
        times = timing.medians(timing.on_gpu(calls, seconds=args.seconds, least=7))
        print(f"{name:32} {str(dtype)[6:]:9} {'training' if training else 'forward':9}"
              + "".join(f"{times[way]:9.4f}" for way in WAYS)
              + "".join(f"  {error:.1e}" for error in errors), flush=True)
        for way, call in calls.items() if args.kernels else ():
            show_kernels(way, call, args.kernels)
        del block, inputs, calls, want
        gc.collect()
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.6, help="for each line")
    parser.add_argument("--dtype", action="append", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--kernels", type=int, default=0, help="how many to list")
    parser.add_argument("--training", action="store_true", help="nothing but training")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; ms")
    print(f"{'':52}" + "".join(f"{way:>9}" for way in WAYS) + "  err of torch, aten")
    for dtype in args.dtype or ["bfloat16", "float32"]:
        for name in BLOCKS:
            if not args.names or any(each in name for each in args.names):
                measure(name, getattr(torch, dtype), args)


if __name__ == "__main__":
    main()
