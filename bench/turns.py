#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two builds of the library beside each other on a GPU: the same bits, and in what time?

    python bench/turns.py OLD/libogive.so NEW/libogive.so [--seconds N] [NAME...]

Each formula is run by both, on the same inputs; results are compared bit by bit (NaN equals
NaN), then both are timed in turns, the L2 cache flushed before each call. Printed are medians
and old / new: above 1 the new one is faster. Exits with 1 if bits differ.
"""
import argparse
import sys

import torch

import timing
from binding import Library

f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16


def product(m, n, k, dtype=f32, tail="linear(x, w, b)", **more):
    return tail, {"x": (m, k), "w": (n, k), "b": (n,), **more}, dtype


SUM = "sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)"
SWISH = "z = linear(x, w, b); z + 2.0 * sigmoid(z)"
GATED = "silu(linear(x, w)) * linear(x, v)"
WORKS = { # inputs in the order in which the formula names them
    "sigmoid": ("sigmoid(x)", {"x": (4096, 65536)}, f32),
    "sigmoid-f16": ("sigmoid(x)", {"x": (4096, 65536)}, f16),
    **{f: (f + "(x)", {"x": (4096, 65536)}, f32)
       for f in ("gelu", "mish", "softplus", "logsigmoid", "tanhshrink")},
    "silu-add": ("x * sigmoid(x) + y", {"x": (8192, 8192), "y": (8192,)}, f32),
    "silu-add-bf16": ("x * sigmoid(x) + y", {"x": (8192, 8192), "y": (8192,)}, bf16),
    "strided": ("sigmoid(x) + y", {"x": (8192, 4096, "t"), "y": (8192, 4096)}, f32),
    "every-second": ("sigmoid(x)", {"x": (8192, 8192, "s")}, f32),
    "sum-rows": ("sum(x, 1)", {"x": (1 << 20, 64)}, f32),
    "sum-columns": ("sum(x, 0)", {"x": (65536, 1024)}, f32),
    "sum-all": ("sum(x)", {"x": (8192, 8192)}, f32),
    "softmax-1024": ("softmax(x, 1)", {"x": (16384, 1024)}, f32),
    "softmax-4096": ("softmax(x, 1)", {"x": (4096, 4096)}, f32),
    "softmax-4096-bf16": ("softmax(x, 1)", {"x": (4096, 4096)}, bf16),
    "softmax-16384": ("softmax(x, 1)", {"x": (4096, 16384)}, f32),
    "softmax-65536": ("softmax(x, 1)", {"x": (1024, 65536)}, f32),
    "softmax-65536-bf16": ("softmax(x, 1)", {"x": (1024, 65536)}, bf16),
    "softmax-131072": ("softmax(x, 1)", {"x": (4096, 131072)}, f32),
    "softmax-393216": ("softmax(x, 1)", {"x": (4096, 393216)}, f32),
    "softmax-columns": ("softmax(x, 0)", {"x": (4096, 16384)}, f32),
    "softmax-channels": ("softmax(x, 1)", {"x": (32, 64, 512, 512)}, f32),
    "rms-channels": ("x * rsqrt(mean(x * x, 1, true) + 1e-5)", {"x": (112, 64, 512, 512)}, f32),
    "instance-norm": ("instance_norm(x)", {"x": (112, 64, 512, 512)}, f32),
    "layer-norm-1024": ("layer_norm(x, 1024, w, b)",
                        {"x": (16384, 1024), "w": (1024,), "b": (1024,)}, f32),
    "layer-norm-4096-bf16": ("layer_norm(x, 4096, w, b)",
                             {"x": (8192, 4096), "w": (4096,), "b": (4096,)}, bf16),
    "layer-norm-20000": ("layer_norm(x, 20000)", {"x": (4096, 20000)}, f32),
    "rms-norm-16384": ("rms_norm(x, 16384)", {"x": (4096, 16384)}, f32),
    "divide-by-sum": ("x / sum(x, 1, true)", {"x": (4096, 4096)}, f32),
    "divide-by-sum-long": ("x / sum(x, 1, true)", {"x": (1024, 65536)}, f32),
    "gelu-softmax": ("softmax(gelu(x), 1)", {"x": (4096, 4096)}, f32),
    "linear-sum": product(128, 32768, 32768, tail=SUM),
    "linear-swish": product(1024, 8192, 8192, tail=SWISH),
    "linear-4096": product(4096, 4096, 4096),
    "linear-8192": product(8192, 8192, 8192),
    "linear-16-rows": product(16, 8192, 8192),
    "linear-parts": product(64, 1024, 65536),
    "linear-across": ("x @ w", {"x": (2048, 4096), "w": (4096, 4096)}, f32),
    "linear-small": product(8192, 64, 1024),
    "linear-few": product(8, 64, 8192),
    "linear-sum-bf16": product(128, 32768, 32768, bf16, SUM),
    "linear-swish-bf16": product(1024, 8192, 8192, bf16, SWISH),
    "linear-4096-bf16": product(4096, 4096, 4096, bf16),
    "linear-16-rows-f16": product(16, 8192, 8192, f16),
    "linear-long-bf16": product(2048, 4096, 16384, bf16),
    "gated-bf16": (GATED, {"x": (2048, 4096), "w": (11008, 4096), "v": (11008, 4096)}, bf16),
    "gated": (GATED, {"x": (2048, 4096), "w": (11008, 4096), "v": (11008, 4096)}, f32),
    "batches": ("x @ w", {"x": (64, 512, 512), "w": (64, 512, 512)}, f32),
    "softmax-of-linear": ("softmax(linear(x, w, b), 1)",
                          {"x": (2048, 1024), "w": (4096, 1024), "b": (4096,)}, f32),
}


def make(shape, dtype, generator):
    layout = shape[-1] if isinstance(shape[-1], str) else ""
    sizes = [s for s in shape if not isinstance(s, str)]
    if layout == "t":
        sizes = sizes[::-1]
    if layout == "s":
        sizes[-1] *= 2
    x = torch.randn(*sizes, device="cuda", generator=generator).to(dtype)
    return x.t() if layout == "t" else x[:, ::2] if layout == "s" else x


def same_bits(a, b):
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return bool(((a.view(kind) == b.view(kind)) | (a.isnan() & b.isnan())).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each formula")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    libraries = {"old": Library(args.old), "new": Library(args.new)}
    stream, failed = torch.cuda.current_stream().cuda_stream, 0
    print(f"{torch.cuda.get_device_name()}, old {args.old}, new {args.new}")
    for name in args.names or WORKS:
        text, shapes, dtype = WORKS[name]
        generator = torch.Generator("cuda").manual_seed(1)
        names = list(shapes)
        inputs = [make(shapes[n], dtype, generator) for n in names]
        out = infer(text, names, inputs)
        results = {k: torch.full_like(out, 7.0) for k in libraries}
        calls = {k: lib.plan(text, inputs, [results[k]]) for k, lib in libraries.items()}
        on_stream = {k: (lambda c=c: c(stream)) for k, c in calls.items()}
        times = timing.medians(timing.on_gpu(on_stream, 400, args.seconds, queued=True))
        same = same_bits(results["old"], results["new"])
        failed += not same
        print(f"{name:24} {times['old']:8.4f} {times['new']:8.4f} ms  {times['old'] / times['new']:.3f}"
              f"{'' if same else '  BITS DIFFER'}", flush=True)
        del inputs, results, calls, on_stream, out
        torch.cuda.empty_cache()
    return 1 if failed else 0


def infer(text, names, inputs):
    """A tensor like the result, found by PyTorch."""
    import torch.nn.functional as F
    scope = dict(zip(names, (t.to("meta") for t in inputs)))
    scope |= {"sigmoid": torch.sigmoid, "softmax": torch.softmax, "linear": F.linear,
              "gelu": F.gelu, "silu": F.silu, "mish": F.mish, "softplus": F.softplus,
              "logsigmoid": F.logsigmoid, "tanhshrink": F.tanhshrink, "rsqrt": torch.rsqrt, "mean": torch.mean,
              "instance_norm": F.instance_norm, "true": True, "sum": lambda x, dim=None, keepdim=False:
              torch.sum(x) if dim is None else torch.sum(x, dim, keepdim),
              "layer_norm": lambda x, n, *wb: F.layer_norm(x, (n,), *wb),
              "rms_norm": lambda x, n: F.rms_norm(x, (n,))}
    *lines, last = text.split(";")
    for line in lines:
        exec(line.strip(), scope)
    y = eval(last.strip(), scope)
    return torch.empty(y.shape, dtype=y.dtype, device="cuda")


if __name__ == "__main__":
    sys.exit(main())
