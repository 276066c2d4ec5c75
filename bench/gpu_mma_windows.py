#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Convolutions by mma.sync, as GPUs from sm_80 on without wgmma have them, on a Hopper by override
(OGIVE_PRODUCT=mma) beside the kernel on CUDA cores and PyTorch's, in turns in one process.

    gpu_mma_windows.py LIBOGIVE.SO [NAME ...]

First small convolutions of every kind, element by element against float64: the greatest error, in
units of 2^-24 of sum |x||w|; and whether the last image has the same bits alone. Then milliseconds:
by mma.sync, on CUDA cores, eager and, of float32, eager without TF32 (float32)."""
import os
import sys

import timing
import torch
import torch.nn.functional as F
from binding import Library

f32, bf16, f16 = torch.float32, torch.bfloat16, torch.float16
# Name, transposed, channels, filters, taps, stride, padding, dilation, groups, batch and extents; a
# name that ends in "last": with channels last.
LARGE = [
    ("L1-50", 0, 3, 96, (11, 11), 4, 2, 1, 1, (256, 224, 224)),
    ("L1-55", 0, 64, 128, (3, 3), 1, 0, 1, 1, (8, 512, 1024)),
    ("L1-56", 0, 64, 128, (5, 7), 1, 0, 1, 1, (8, 512, 256)),
    ("L1-62", 0, 32, 64, (5, 9), 1, 0, 1, 1, (8, 512, 512)),
    ("L1-63", 0, 16, 128, (3, 3), 1, 0, 1, 1, (16, 1024, 1024)),
    ("L1-67", 0, 64, 128, (3,), 1, 0, 1, 1, (32, 131072)),
    ("L1-71", 1, 32, 32, (3, 3), 1, 0, 1, 1, (8, 512, 1024)),
    ("56x56", 0, 64, 64, (3, 3), 1, 1, 1, 1, (64, 56, 56)),
    ("14x14", 0, 256, 256, (3, 3), 1, 1, 1, 1, (64, 14, 14)),
    ("first", 0, 3, 64, (7, 7), 2, 3, 1, 1, (64, 224, 224)),
    ("56x56 last", 0, 64, 64, (3, 3), 1, 1, 1, 1, (64, 56, 56)),
    ("14x14 last", 0, 256, 256, (3, 3), 1, 1, 1, 1, (64, 14, 14)),
]
SMALL = [
    ("same", 0, 64, 128, (3, 3), 1, 1, 1, 1, (3, 28, 28)),
    ("7x7", 0, 128, 128, (3, 3), 1, 1, 1, 1, (5, 7, 7)),
    ("stride", 0, 32, 70, (3, 3), 2, 1, 1, 1, (4, 33, 47)),
    ("1x1", 0, 96, 64, (1, 1), 2, 0, 1, 1, (4, 28, 28)),
    ("dilated", 0, 33, 40, (3, 5), (2, 1), (4, 6), (2, 3), 1, (2, 20, 31)),
    ("groups", 0, 48, 96, (3, 3), 1, 1, 1, 3, (2, 19, 21)),
    ("few", 0, 3, 64, (7, 7), 2, 3, 1, 1, (4, 64, 65)),
    ("1d", 0, 64, 64, (5,), 1, 2, 1, 1, (4, 999)),
    ("3d", 0, 16, 32, (3, 3, 3), 1, 1, 1, 1, (2, 9, 10, 17)),
    ("back", 1, 64, 48, (3, 3), 1, 1, 1, 1, (2, 17, 23)),
    ("back, 2", 1, 64, 48, (4, 4), 2, 1, 1, 1, (2, 17, 23)),
    ("last", 0, 64, 70, (3, 3), 1, 1, 1, 1, (3, 17, 23)),
    ("long", 0, 1000, 64, (3, 3), 1, 1, 1, 1, (2, 14, 14)),
]
KINDS = ((f32, 0, False), (f32, 0, True), (f32, 2, False), (bf16, 0, False), (f16, 0, False))


def make(case, dtype, wide=False):
    name, transposed, channels, filters, taps, *_, groups, sizes = case
    shape = (channels, filters // groups) if transposed else (filters, channels // groups)
    x = torch.randn(sizes[0], channels, *sizes[1:], device="cuda")
    w = torch.randn(*shape, *taps, device="cuda")
    if wide:
        x, w = x * torch.exp2(torch.randn_like(x) * 8), w * torch.exp2(torch.randn_like(w) * 4)
    x = x.to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if "last" in name else x, w.to(dtype)


def theirs(case, x, w):
    _, transposed, _, _, taps, stride, padding, dilation, groups, _ = case
    convolve = getattr(F, f"conv{'_transpose' * transposed}{len(taps)}d")
    return convolve(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


def plan(library, case, x, w, units, precision=0):
    _, transposed, _, _, taps, *numbers, _ = case
    names = ("stride", "padding", "dilation", "groups")
    options = ", ".join(f"{name}={number}" for name, number in zip(names, numbers))
    os.environ["OGIVE_PRODUCT"] = units
    y = torch.empty_like(theirs(case, x, w))
    text = f"conv{'_transpose' * transposed}{len(taps)}d(x, w, {options})"
    return library.plan(text, [x, w], [y], precision), y


def find_units(case, x, w, y):
    exact = theirs(case, x.double(), w.double())
    scale = theirs(case, x.double().abs(), w.double().abs())
    error = (y.double() - exact).abs()
    return torch.where(error == 0, error, error / scale).max().item() * 2**24


def check(library, case):
    found, differ = [], 0
    for dtype, precision, wide in KINDS:
        x, w = make(case, dtype, wide)
        call, y = plan(library, case, x, w, "mma", precision)
        call()
        last, alone = plan(library, case, x[-1:].clone(), w, "mma", precision)
        last()
        bits = torch.int32 if dtype == f32 else torch.int16
        differ += not torch.equal(alone[0].view(bits), y[-1].view(bits))
        found.append(f"{str(dtype)[6:]}{' tf32' * (precision == 2)}{' wide' * wide} "
                     f"{find_units(case, x, w, y):.2f}")
    print(f"{case[0]:8} {'; '.join(found)}; {differ} differ alone", flush=True)


def measure(library, case, dtype):
    x, w = make(case, dtype)
    (mma, y), (cores, _) = (plan(library, case, x, w, units) for units in ("mma", "cores"))

    def exact():
        torch.backends.cudnn.allow_tf32 = False
        result = theirs(case, x, w)
        torch.backends.cudnn.allow_tf32 = True
        return result

    calls = {"mma": mma, "cores": cores, "eager": lambda: theirs(case, x, w)}
    if dtype == f32:
        calls["float32"] = exact
    times = timing.medians(timing.on_gpu(calls, rounds=5, least=5, queued=True))
    shown = "".join(f" {name} {time:8.3f}" for name, time in times.items())
    operations = 2 * (x if case[1] else y).numel() * w.numel() / w.shape[0]
    print(f"{case[0]:11}{str(dtype)[6:]:9}{shown}  cores / mma {times['cores'] / times['mma']:.2f}"
          f" eager / mma {times['eager'] / times['mma']:.2f}"
          f" {operations / times['mma'] / 1e9:.0f} TF", flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    library, names = Library(sys.argv[1]), sys.argv[2:]
    torch.backends.cudnn.allow_tf32 = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {' '.join(sys.argv)}")
    for case in SMALL:
        if not names or case[0] in names:
            check(library, case)
    for case in LARGE:
        for dtype in (f32, bf16):
            if not names or case[0] in names:
                measure(library, case, dtype)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
