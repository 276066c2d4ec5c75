#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Convolutions' gradients by their weights on a GPU, by Ogive and by PyTorch.

    python bench/gpu_weights.py [--dtype bfloat16] [--rounds N] [--only TEXT] [--warm PROCESSES]
                                [--kernels]

A line each: milliseconds of Ogive and of PyTorch with channels last, of both without; PyTorch's time
over Ogive's; multiplications a second, 1e12, two of each; the greatest error of Ogive's and of
PyTorch's. Of halves that is over the rounding of float64's result, of float32 over sum |x||w|, in
units of 2^-24. Medians of rounds in which all take turns. float32: PyTorch's are with TF32, as it is
by default, and, without channels last, in float32. --kernels: what each kernel of Ogive's takes.
"""
import argparse

import torch

import ogive
import timing

# name, transposed, channels, filters, taps, stride, padding, dilation, groups, batch and extents of x
CASES = [
    ("R56", 0, 64, 64, (3, 3), 1, 1, 1, 1, (64, 56, 56)),
    ("R28", 0, 128, 128, (3, 3), 1, 1, 1, 1, (64, 28, 28)),
    ("R14", 0, 256, 256, (3, 3), 1, 1, 1, 1, (64, 14, 14)),
    ("R7", 0, 512, 512, (3, 3), 1, 1, 1, 1, (64, 7, 7)),
    ("R256-64", 0, 256, 64, (1, 1), 1, 0, 1, 1, (64, 56, 56)),
    ("R64-256", 0, 64, 256, (1, 1), 1, 0, 1, 1, (64, 56, 56)),
    ("R56s2", 0, 128, 128, (3, 3), 2, 1, 1, 1, (64, 56, 56)),
    ("R1x1s2", 0, 256, 512, (1, 1), 2, 0, 1, 1, (64, 56, 56)),
    ("Rstem", 0, 3, 64, (7, 7), 2, 3, 1, 1, (64, 224, 224)),
    ("L1-50", 0, 3, 96, (11, 11), 4, 2, 1, 1, (256, 224, 224)),
    ("L1-63", 0, 16, 128, (3, 3), 1, 0, 1, 1, (16, 1024, 1024)),
    ("L1-62", 0, 32, 64, (5, 9), 1, 0, 1, 1, (8, 512, 512)),
    ("L1-55", 0, 64, 128, (3, 3), 1, 0, 1, 1, (8, 512, 1024)),
    ("L1-57", 1, 64, 64, (3, 3), 1, 0, 1, 1, (8, 1024, 1024)),
    ("phases", 1, 64, 64, (4, 4), 2, 1, 1, 1, (32, 128, 128)),
    ("groups", 0, 128, 128, (3, 3), 1, 1, 1, 4, (64, 28, 28)),
    ("one", 0, 64, 64, (3, 3), 1, 1, 1, 1, (1, 56, 56)),
    ("1d", 0, 64, 128, (3,), 1, 0, 1, 1, (32, 16384)),
    ("3d", 0, 32, 64, (3, 3, 3), 1, 1, 1, 1, (4, 32, 64, 64)),
]
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


class Case:
    def __init__(self, case, dtype):
        self.label, transposed, channels, filters, taps, stride, padding, dilation, groups, sizes = case
        rank = len(taps)
        self.name = f"conv{'_transpose' * transposed}{rank}d"
        self.x = torch.randn(sizes[0], channels, *sizes[1:], device="cuda", dtype=dtype)
        shape = (channels, filters // groups) if transposed else (filters, channels // groups)
        self.w = torch.zeros(*shape, *taps, device="cuda", dtype=dtype)
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        result = getattr(torch.nn.functional, self.name)(self.x.to("meta"), self.w.to("meta"), **options)
        self.grad = torch.randn(result.shape, device="cuda", dtype=dtype)
        self.rest = ([stride] * rank, [padding] * rank, [dilation] * rank, bool(transposed),
                     [0] * rank, groups, [False, True, False])
        meets = self.x if transposed else result
        self.operations = 2 * meets.numel() * self.w.numel() / self.w.shape[0]
        given = "".join(f", {name}={value}" for name, value in options.items())
        self.formula = ogive.compile(f"{self.name}(x, w{given})").gradient("w")
        layout = FORMATS.get(rank, torch.contiguous_format)
        self.last = tuple(each.contiguous(memory_format=layout) for each in (self.x, self.w, self.grad))

    def calls(self):
        """By Ogive and PyTorch, channels last; the same of contiguous tensors; of float32 without
        TF32, too."""
        found = []
        for x, w, grad in (self.last, (self.x, self.w, self.grad)):
            out = torch.empty_like(w)
            found.append(lambda x=x, w=w, grad=grad, out=out: self.formula(x=x, w=w, grad=grad, out=out))
            found.append(lambda x=x, w=w, grad=grad: torch.ops.aten.convolution_backward(
                grad, x, w, None, *self.rest)[1])
        if self.x.dtype == torch.float32:
            theirs = found[3]

            def exact():
                torch.backends.cudnn.allow_tf32 = False
                try:
                    return theirs()
                finally:
                    torch.backends.cudnn.allow_tf32 = True
            found.append(exact)
        return found

    def errors(self, results):
        """Of some filters and channels of the first group, whose sums are taken in float64."""
        if self.rest[5] > 1 and self.rest[3]:
            return []
        x = self.x[:, :3].double()
        grad = self.grad[:, :2].double()
        w = torch.zeros(*((3, 2) if self.rest[3] else (2, 3)), *self.w.shape[2:], device="cuda",
                        dtype=torch.float64)
        rest = (*self.rest[:5], 1, self.rest[6])
        want = torch.ops.aten.convolution_backward(grad, x, w, None, *rest)[1]
        scale = torch.ops.aten.convolution_backward(grad.abs(), x.abs(), w, None, *rest)[1]
        unit = scale * 2**-24
        if self.x.dtype != torch.float32:
            bits = 9 if self.x.dtype == torch.bfloat16 else 12
            unit = want.abs() * 2.0**-bits + scale * 2**-20
        first, second = want.shape[:2]
        return [((result[:first, :second].double() - want).abs() / unit.clamp_min(1e-30)).max().item()
                for result in results]


def show_kernels(call):
    from torch.profiler import ProfilerActivity, profile
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    print("         " + ", ".join(f"{event.key[:40]} {event.device_time_total / 5e3:.4f}"
                                  for event in profiler.key_averages()), flush=True)


def measure(case, rounds, kernels):
    calls = case.calls()
    results = [call() for call in calls]
    errors = case.errors(results)
    del results
    found = timing.several_in_turn(calls, rounds, most=20)
    ratios = [found[1] / found[0], *(each / found[2] for each in found[3:])]
    print(f"{case.label:8}" + "".join(f"{each:9.4f}" for each in found) + " "
          + "".join(f"{each:6.2f}" for each in ratios)
          + "".join(f"{case.operations / each / 1e9:7.0f}" for each in found)
          + "  errors" + "".join(f" {each:.2f}" for each in errors), flush=True)
    if kernels:
        for call in calls[:4:2]:
            show_kernels(call)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--kernels", action="store_true")
    timing.add_warm(parser)
    options = parser.parse_args()
    cases = timing.share_cases(options, [case for case in CASES if options.only in case[0]])
    if not options.part:
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {options.dtype}", flush=True)
    for each in cases:
        try:
            case = Case(each, getattr(torch, options.dtype))
            if options.part:
                for call in case.calls()[:4:2]:
                    call()
            else:
                measure(case, options.rounds, options.kernels)
        except Exception as error:  # the others are still worth knowing
            print(f"{each[0]}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
