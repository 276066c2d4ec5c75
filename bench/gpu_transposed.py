#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Transposed convolutions on a GPU by builds of the library, in turns, beside PyTorch's at its
defaults (cuDNN may take TF32).

    python bench/gpu_transposed.py [NAME=]LIBRARY.so... [--seconds N] [--only NAME...]

A line: milliseconds of each build and of eager; the last build's TFLOP/s; eager's time over the last
build's; its greatest error against float64, over that of the first of them: of one image."""
import argparse
import sys

import torch
import torch.nn.functional as F

import timing
from binding import Library

# name: channels, filters, taps, batch and extents, arguments
CASES = {
    "2d-k3-16": (64, 64, (3, 3), (16, 128, 128), dict(stride=2, padding=1, output_padding=1)),
    "2d-k3-128": (64, 64, (3, 3), (128, 128, 128), dict(stride=2, padding=1, output_padding=1)),
    "3d-k3": (32, 64, (3, 3, 3), (16, 16, 32, 32), dict(stride=2, padding=1)),
    "3d-k3-even": (32, 64, (3, 3, 3), (16, 16, 32, 32), dict(stride=2, padding=1, output_padding=1)),
    "2d-k4-16": (64, 64, (4, 4), (16, 128, 128), dict(stride=2, padding=1)),
    "2d-k2-16": (64, 64, (2, 2), (16, 128, 128), dict(stride=2)),
    "2d-k5-16": (64, 64, (5, 5), (16, 128, 128), dict(stride=2, padding=2, output_padding=1)),
    "2d-wide": (256, 128, (3, 3), (16, 64, 64), dict(stride=2, padding=1, output_padding=1)),
    "2d-small": (128, 64, (4, 4), (8, 32, 32), dict(stride=2, padding=1)),
    "L1-57": (64, 64, (3, 3), (8, 1024, 1024), {}),
    "L1-58": (32, 16, (3, 5, 7), (16, 16, 32, 64), {}),
    "L1-68": (32, 64, (3, 5, 5), (16, 64, 64, 64), {}),
    "L1-69": (64, 128, (3, 5), (64, 128, 256), {}),
    "L1-70": (48, 24, (3, 3, 3), (8, 96, 96, 96), {}),
    "L1-71": (32, 32, (3, 3), (8, 512, 1024), {}),
    "L1-72": (32, 32, (3, 5, 7), (8, 12, 24, 48), dict(stride=2, padding=(1, 2, 3),
                                                         output_padding=1, groups=4)),
    "L1-73": (32, 32, (3, 3, 3), (4, 32, 64, 128), dict(stride=2, padding=1)),
    "L1-74": (32, 64, (5,), (32, 131072), dict(dilation=3)),
    "L1-75": (32, 64, (3, 5), (16, 128, 256), dict(stride=(2, 3), padding=(1, 2), dilation=(2, 1),
                                                    groups=4)),
    "L1-77": (32, 64, (3, 3, 3), (16, 16, 32, 32), dict(stride=2, padding=1, dilation=2)),
    "L1-78": (32, 32, (3, 7), (8, 512, 1024), dict(padding=(1, 3))),
    "L1-79": (32, 64, (3,), (16, 131072), dict(stride=2, padding=1, dilation=2)),
    "L1-81": (32, 64, (3, 3), (16, 64, 128), dict(stride=5, padding=1, dilation=2)),
    "L2-10": (64, 64, (3, 3), (128, 256, 256), dict(padding=1)),
    "L2-20": (32, 64, (3, 3, 3), (16, 16, 32, 32), dict(stride=2, padding=1, output_padding=1)),
    "L2-38": (32, 64, (3, 3, 3), (32, 16, 32, 32), dict(stride=2, padding=1, output_padding=1)),
    "L2-58": (3, 16, (3, 3, 3), (128, 16, 32, 32), dict(stride=2, padding=1)),
    "L2-74": (16, 32, (3, 3, 3), (16, 16, 32, 32), dict(stride=2, padding=1, output_padding=1)),
    "L2-78": (32, 64, (5, 5, 5), (16, 32, 32, 32), dict(stride=2, padding=2)),
    "L2-96": (3, 16, (3, 3, 3), (128, 16, 32, 32), dict(stride=2, padding=1)),
    "L2-100": (64, 128, (3, 3, 3), (16, 24, 48, 48), dict(stride=2, padding=1)),
    "L2-61": (64, 128, (3, 3, 3), (16, 32, 32, 32), {}),
}


def text_of(dims, options):
    """The formula; Ogive takes PyTorch's names."""
    said = "".join(f", {key}={value}" for key, value in options.items())
    return f"conv_transpose{dims}d(x, w{said})"


def measure(name, libraries, seconds):
    channels, filters, taps, sizes, options = CASES[name]
    torch.manual_seed(1)
    groups = options.get("groups", 1)
    x = torch.randn(sizes[0], channels, *sizes[1:], device="cuda")
    w = torch.randn(channels, filters // groups, *taps, device="cuda")
    theirs = getattr(F, f"conv_transpose{len(taps)}d")
    like = theirs(x, w, **options)
    results = {each: torch.full_like(like, 7.0) for each in libraries}
    stream = torch.cuda.current_stream().cuda_stream
    calls = {}
    for each, library in libraries.items():
        plan = library.plan(text_of(len(taps), options), [x, w], [results[each]])
        calls[each] = lambda plan=plan: plan(stream)
    calls["eager"] = lambda: theirs(x, w, **options)
    times = timing.medians(timing.on_gpu(calls, 60, seconds, least=5, queued=True))
    exact = theirs(x[:1].double(), w.double(), **options)
    scale = theirs(x[:1].double().abs(), w.double().abs(), **options)
    errors = [((results[each][:1] - exact).abs() / scale).nan_to_num(0).max().item() * 2**24
              for each in libraries]
    operations = 2 * x.numel() * w.numel() / w.shape[0]
    last = list(libraries)[-1]
    print(f"{name:12}" + "".join(f"{times[each]:10.4f}" for each in calls) +
          f"{operations / times[last] / 1e9:8.1f} TF{times['eager'] / times[last]:8.2f}x"
          f"{times[list(libraries)[0]] / times[last]:8.2f}x  " +
          " ".join(f"{e:.2f}" for e in errors), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("libraries", nargs="+")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each case")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    libraries = {}
    for each in arguments.libraries:
        name, _, path = each.rpartition("=")
        libraries[name or f"build {len(libraries)}"] = Library(path)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n{'':12}" +
          "".join(f"{each:>10}" for each in [*libraries, "eager"]) +
          "   ms; last: speed, eager / last, first / last; errors, 2^-24 of sum |x||w|", flush=True)
    for name in arguments.only or CASES:
        try:
            measure(name, libraries, arguments.seconds)
        except Exception as error:  # the others are still worth knowing
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
