#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Convolutions of bfloat16 on a GPU, by Ogive and by PyTorch, both with channels last and without.

    python bench/convolutions_halves.py [--rounds N] [--only TEXT] [--warm PROCESSES]

A line each: milliseconds of Ogive and of PyTorch with channels last, of both without; PyTorch's best
time over Ogive's; multiplications a second of Ogive's, 1e12, two of each; the greatest error of Ogive's
and of PyTorch's over that of rounding float64's result to bfloat16. Medians of rounds in which all
take turns. L1-50 and so on are KernelBench's, others are of ResNets and of rates.
"""
import argparse

import torch
import torch.nn.functional as F

import ogive.torch as ot
import timing

# name, transposed, channels, filters, taps, stride, padding, dilation, groups, batch and extents
CASES = [
    ("L1-55", 0, 64, 128, (3, 3), 1, 0, 1, 1, (8, 512, 1024)),
    ("L1-62", 0, 32, 64, (5, 9), 1, 0, 1, 1, (8, 512, 512)),
    ("L1-67", 0, 64, 128, (3,), 1, 0, 1, 1, (32, 131072)),
    ("R56", 0, 64, 64, (3, 3), 1, 1, 1, 1, (64, 56, 56)),
    ("R14", 0, 256, 256, (3, 3), 1, 1, 1, 1, (64, 14, 14)),
    ("L1-50", 0, 3, 96, (11, 11), 4, 2, 1, 1, (256, 224, 224)),
    ("L1-57", 1, 64, 64, (3, 3), 1, 0, 1, 1, (8, 1024, 1024)),
    ("L1-63", 0, 16, 128, (3, 3), 1, 0, 1, 1, (16, 1024, 1024)),
    ("L1-69", 1, 64, 128, (3, 5), 1, 0, 1, 1, (64, 128, 256)),
    ("L1-76", 0, 64, 128, (3,), 3, 0, 4, 1, (64, 524280)),
    ("L1-80", 0, 32, 64, (5, 9), 1, (2, 4), (2, 3), 1, (8, 512, 512)),
    ("L1-87", 0, 64, 128, (1, 1), 1, 0, 1, 1, (16, 1024, 1024)),
    ("R28", 0, 128, 128, (3, 3), 1, 1, 1, 1, (64, 28, 28)),
    ("R7", 0, 512, 512, (3, 3), 1, 1, 1, 1, (64, 7, 7)),
    ("R56s2", 0, 128, 128, (3, 3), 2, 1, 1, 1, (64, 56, 56)),
    ("R1x1s2", 0, 256, 512, (1, 1), 2, 0, 1, 1, (64, 56, 56)),
    ("Rstem", 0, 3, 64, (7, 7), 2, 3, 1, 1, (64, 224, 224)),
    ("groups", 0, 128, 128, (3, 3), 1, 1, 1, 4, (64, 28, 28)),
    ("one", 0, 64, 64, (3, 3), 1, 1, 1, 1, (1, 56, 56)),
    ("3d", 0, 32, 64, (3, 3, 3), 1, 1, 1, 1, (4, 32, 64, 64)),
    ("phases", 1, 64, 64, (4, 4), 2, 1, 1, 1, (32, 128, 128)),
]
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


class Case:
    def __init__(self, case):
        self.label, transposed, channels, filters, taps, stride, padding, dilation, groups, sizes = case
        self.name = f"conv{'_transpose' * transposed}{len(taps)}d"
        self.x = torch.randn(sizes[0], channels, *sizes[1:], device="cuda", dtype=torch.bfloat16)
        shape = (channels, filters // groups) if transposed else (filters, channels // groups)
        self.w = torch.randn(*shape, *taps, device="cuda", dtype=torch.bfloat16) / 8
        self.options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        result = getattr(F, self.name)(self.x.to("meta"), self.w.to("meta"), **self.options)
        meets = self.x if transposed else result
        self.operations = 2 * meets.numel() * self.w.numel() / self.w.shape[0]
        layout = FORMATS.get(len(taps), torch.contiguous_format)
        self.last = self.x.contiguous(memory_format=layout), self.w.contiguous(memory_format=layout)

    def calls(self):
        """By Ogive and PyTorch, channels last; the same of contiguous tensors."""
        found = []
        for x, w in (self.last, (self.x, self.w)):
            theirs, ours = (getattr(module, self.name) for module in (F, ot))
            out = torch.empty_like(theirs(x, w, **self.options))  # as PyTorch has it in memory
            found.append(lambda ours=ours, x=x, w=w, out=out: ours(x, w, **self.options, out=out))
            found.append(lambda theirs=theirs, x=x, w=w: theirs(x, w, **self.options))
        return found

    def errors(self, results):
        """Over float64's rounding; of the first image, whose sums are taken on the GPU."""
        x, w = self.x[:1].double(), self.w.double()
        want = getattr(F, self.name)(x, w, **self.options)
        scale = getattr(F, self.name)(x.abs(), w.abs(), **self.options)
        unit = (want.abs() * 2**-9 + scale * 2**-20).clamp_min(1e-30)
        return [((result[:1].double() - want).abs() / unit).max().item() for result in results]


def measure(case, rounds):
    calls = case.calls()
    results = [call() for call in calls]
    errors = case.errors(results)
    del results
    ours, theirs, ours_plain, theirs_plain = found = timing.several_in_turn(calls, rounds, most=10)
    print(f"{case.label:8}" + "".join(f"{each:9.4f}" for each in found)
          + f"  {theirs / ours:6.2f}{theirs_plain / ours_plain:6.2f}"
          + "".join(f"{case.operations / each / 1e9:7.0f}" for each in found)
          + "  errors" + "".join(f"{each:6.2f}" for each in errors), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    timing.add_warm(parser)
    options = parser.parse_args()
    cases = timing.share_cases(options, [case for case in CASES if options.only in case[0]])
    if not options.part:
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for each in cases:
        try:
            case = Case(each)
            if options.part:
                for call in case.calls()[::2]:
                    call()
            else:
                measure(case, options.rounds)
        except Exception as error:  # the others are still worth knowing
            print(f"{each}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
