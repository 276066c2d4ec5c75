#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long convolutions take, by Ogive and by PyTorch: where src/api/rates.def has its rates from.

    python bench/rates_convolutions.py [--device cuda] [--rounds N] [--warm PROCESSES] [--gradients]

A line each: milliseconds of Ogive, of PyTorch as it is by default (on a GPU cuDNN may take TF32), of
PyTorch in float32; the multiplications a second of all three, 1e12 (CPU: 1e9), two of each; then what
ogive_estimate() says of Ogive's and of PyTorch's. Medians of rounds in which all take turns. With
--gradients those by the input and by the weight follow. --warm has kernels compiled by so many
processes first. With one thread of a CPU (OMP_NUM_THREADS=1) it is the thread's own time that
counts, which others on the machine disturb less.
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F

import ogive.torch as ot
import timing

# transposed, channels, filters, taps, stride, padding, output padding, dilation, groups, batch and
# extents; whether its gradients are measured, too
ON_GPU = [
    (0, 64, 128, (3, 3), 1, 0, 0, 1, 1, (128, 128, 128), 1),
    (0, 64, 128, (3, 3), 1, 0, 0, 1, 1, (64, 256, 256), 0),
    (0, 64, 64, (3, 3), 1, 0, 0, 1, 1, (64, 256, 256), 1),
    (0, 16, 64, (3, 3), 1, 0, 0, 1, 1, (128, 256, 256), 0),
    (0, 8, 64, (3, 3), 1, 0, 0, 1, 1, (128, 128, 128), 1),
    (0, 8, 64, (3, 3), 1, 0, 0, 1, 1, (128, 256, 256), 0),
    (0, 8, 32, (3, 3), 1, 0, 0, 1, 1, (128, 256, 256), 0),
    (0, 3, 64, (7, 7), 2, 3, 0, 1, 1, (64, 224, 224), 1),
    (0, 64, 64, (3, 3), 1, 1, 0, 1, 1, (64, 56, 56), 1),
    (0, 128, 128, (3, 3), 1, 1, 0, 1, 1, (64, 28, 28), 0),
    (0, 256, 256, (3, 3), 1, 1, 0, 1, 1, (64, 14, 14), 0),
    (0, 512, 512, (3, 3), 1, 1, 0, 1, 1, (64, 7, 7), 0),
    (0, 128, 128, (3, 3), 2, 1, 0, 1, 1, (64, 56, 56), 1),
    (0, 256, 512, (1, 1), 2, 0, 0, 1, 1, (64, 56, 56), 0),
    (0, 256, 64, (1, 1), 1, 0, 0, 1, 1, (64, 56, 56), 1),
    (0, 64, 256, (1, 1), 1, 0, 0, 1, 1, (64, 56, 56), 1),
    (0, 1024, 256, (1, 1), 1, 0, 0, 1, 1, (64, 14, 14), 0),
    (0, 128, 128, (3, 3), 1, 1, 0, 1, 4, (64, 28, 28), 0),
    (0, 128, 128, (3, 3), 1, 1, 0, 1, 32, (64, 28, 28), 0),
    (0, 96, 96, (7, 7), 1, 3, 0, 1, 96, (64, 56, 56), 1),
    (0, 64, 64, (3, 3), 1, 1, 0, 1, 1, (1, 56, 56), 0),
    (0, 16, 16, (3, 3), 1, 1, 0, 1, 1, (64, 64, 64), 0),
    (0, 64, 128, (3,), 1, 0, 0, 1, 1, (32, 16384), 1),
    (0, 3, 16, (3, 3, 3), 1, 0, 0, 1, 1, (128, 16, 64, 64), 0),
    (0, 3, 24, (3, 3, 3), 1, 0, 0, 1, 1, (128, 24, 32, 32), 0),
    (0, 3, 16, (4, 4, 4), 1, 0, 0, 1, 1, (1024, 16, 32, 32), 0),
    (0, 8, 32, (3, 3, 3), 1, 0, 0, 1, 1, (64, 32, 64, 64), 1),
    (0, 8, 16, (3, 3, 3), 1, 0, 0, 1, 1, (128, 16, 64, 64), 0),
    (0, 8, 64, (3, 3, 3), 1, 0, 0, 1, 1, (128, 16, 64, 64), 0),
    (0, 32, 64, (3, 3, 3), 1, 1, 0, 1, 1, (4, 32, 128, 128), 1),
    (0, 32, 64, (3, 3, 3), 1, 0, 0, 1, 1, (16, 32, 64, 64), 0),
    (1, 64, 64, (3, 3), 1, 1, 0, 1, 1, (128, 256, 256), 0),
    (1, 64, 128, (5, 5), 1, 1, 0, 1, 1, (512, 32, 32), 0),
    (1, 64, 128, (3, 3), 1, 0, 0, 1, 1, (16, 512, 512), 0),
    (1, 64, 64, (3, 3), 2, 1, 1, 1, 1, (128, 128, 128), 1),
    (1, 64, 64, (4, 4), 2, 1, 1, 1, 1, (32, 256, 256), 0),
    (1, 64, 128, (3, 3), 2, 1, 1, 1, 1, (16, 128, 128), 0),
    (1, 64, 128, (4, 4), 2, 1, 1, 1, 1, (128, 64, 64), 0),
    (1, 3, 16, (3, 3, 3), 2, 1, 0, 1, 1, (128, 16, 32, 32), 0),
    (1, 16, 32, (3, 3, 3), 2, 1, 0, 1, 1, (16, 16, 32, 32), 0),
    (1, 32, 64, (3, 3, 3), 2, 1, 1, 1, 1, (32, 16, 32, 32), 1),
    (1, 32, 64, (4, 4, 4), 2, 1, 0, 1, 1, (32, 16, 32, 32), 0),
    (1, 32, 64, (5, 5, 5), 2, 2, 0, 1, 1, (16, 32, 32, 32), 0),
    (1, 64, 128, (3, 3, 3), 2, 1, 0, 1, 1, (16, 24, 48, 48), 0),
    (1, 16, 64, (3, 3, 3), 1, 1, 0, 1, 1, (16, 32, 128, 128), 0),
    (1, 64, 128, (3, 3, 3), 1, 0, 0, 1, 1, (16, 32, 32, 32), 0),
    (1, 64, 128, (5, 5, 5), 1, 0, 0, 1, 1, (16, 16, 32, 32), 0),
]
ON_CPU = [
    (0, 64, 64, (3, 3), 1, 1, 0, 1, 1, (4, 56, 56), 1),
    (0, 64, 128, (3, 3), 1, 0, 0, 1, 1, (2, 64, 64), 0),
    (0, 256, 256, (3, 3), 1, 1, 0, 1, 1, (4, 14, 14), 0),
    (0, 16, 16, (3, 3), 1, 1, 0, 1, 1, (1, 16, 16), 1),
    (0, 64, 64, (3, 3), 2, 1, 0, 1, 1, (4, 56, 56), 1),
    (0, 3, 64, (7, 7), 2, 3, 0, 1, 1, (4, 224, 224), 1),
    (0, 3, 16, (3, 3), 1, 1, 0, 1, 1, (4, 128, 128), 1),
    (0, 256, 64, (1, 1), 1, 0, 0, 1, 1, (4, 56, 56), 1),
    (0, 256, 64, (1, 1), 2, 0, 0, 1, 1, (4, 56, 56), 0),
    (0, 128, 128, (3, 3), 1, 1, 0, 1, 4, (4, 28, 28), 1),
    (0, 128, 128, (3, 3), 1, 1, 0, 1, 32, (4, 28, 28), 0),
    (0, 96, 96, (3, 3), 1, 1, 0, 1, 96, (4, 56, 56), 1),
    (0, 96, 96, (7, 7), 1, 3, 0, 1, 96, (4, 56, 56), 0),
    (0, 64, 64, (3,), 1, 1, 0, 1, 1, (4, 4096), 1),
    (0, 3, 16, (3, 3, 3), 1, 0, 0, 1, 1, (2, 16, 32, 32), 1),
    (0, 16, 32, (3, 3, 3), 1, 0, 0, 1, 1, (2, 16, 32, 32), 0),
    (1, 64, 64, (3, 3), 1, 1, 0, 1, 1, (4, 32, 32), 0),
    (1, 64, 64, (4, 4), 2, 1, 0, 1, 1, (4, 32, 32), 1),
    (1, 16, 32, (3, 3, 3), 2, 1, 0, 1, 1, (2, 8, 16, 16), 0),
]


class Case:
    """A convolution's tensors and its calls by name."""

    def __init__(self, case, device):
        (transposed, channels, filters, taps, stride, padding, output_padding, dilation, groups,
         sizes, self.derives) = case
        self.name = f"conv{'_transpose' * transposed}{len(taps)}d"
        self.x = torch.randn(sizes[0], channels, *sizes[1:], device=device)
        shape = (channels, filters // groups) if transposed else (filters, channels // groups)
        self.w = torch.randn(*shape, *taps, device=device) / 8
        self.options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        if transposed:
            self.options["output_padding"] = output_padding
        self.label = (f"{self.name:17}{channels:5}>{filters:<4}{'x'.join(map(str, taps)):6}"
                      f"s{stride} g{groups:<3}{'x'.join(map(str, sizes)):15}")
        self.result = getattr(F, self.name)(self.x.to("meta"), self.w.to("meta"), **self.options)
        meets = self.x if transposed else self.result
        self.operations = 2 * meets.numel() * self.w.numel() / self.w.shape[0]

    def calls(self, by=None):
        """By Ogive, by PyTorch, by PyTorch in float32: the convolution, or its gradient by one of its
        factors."""
        x, w = (each.detach().requires_grad_(i == by) for i, each in enumerate((self.x, self.w)))

        def make(function):
            if by is None:
                return lambda: function(self.x, self.w, **self.options)
            result = function(x, w, **self.options)
            seed = torch.ones_like(result)
            return lambda: torch.autograd.grad(result, (x, w)[by], seed, retain_graph=True)

        theirs = make(getattr(F, self.name))

        def exact():
            torch.backends.cudnn.allow_tf32 = False
            try:
                return theirs()
            finally:
                torch.backends.cudnn.allow_tf32 = True

        made = [make(getattr(ot, self.name)), theirs]
        return made + [exact] if self.x.is_cuda else made

    def estimates(self):
        """Milliseconds by Ogive and by PyTorch, as a model's explanation has them."""
        text = ot.explain(lambda x, w: getattr(F, self.name)(x, w, **self.options), self.x, self.w)
        return text.splitlines()[0].rpartition("(")[2].rstrip(")")


def seconds(call, device):
    """Of a call, several in a row."""
    if device == "cuda":
        return timing.several_on_gpu(call, most=10, milliseconds=5) / 1e3
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    begin, count = clock(), 0
    while count == 0 or clock() - begin < 0.02:
        call()
        count += 1
    return (clock() - begin) / count


def measure(case, by, device, rounds):
    calls = case.calls(by)
    for call in calls:
        call()
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, taken in zip(calls, times):
            taken.append(seconds(call, device))
    found = [statistics.median(taken) for taken in times]
    unit = 1e12 if device == "cuda" else 1e9
    print(f"{case.label}{('by input', 'by weight')[by] if by is not None else '':10}"
          + "".join(f"{each * 1e3:10.4f}" for each in found) + " ms"
          + "".join(f"{case.operations / each / unit:9.2f}" for each in found)
          + ("  " + case.estimates() if by is None else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=3)
    timing.add_warm(parser)
    parser.add_argument("--gradients", action="store_true")
    options = parser.parse_args()
    cases = timing.share_cases(options, ON_GPU if options.device == "cuda" else ON_CPU)
    if not options.part:
        name = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
        print(f"{name}, PyTorch {torch.__version__}")
    for each in cases:
        try:
            case = Case(each, options.device)
            for by in (None, 0, 1) if options.gradients and case.derives else (None,):
                if options.part:
                    case.calls(by)[0]()
                else:
                    measure(case, by, options.device, options.rounds)
        except Exception as error:  # the others are still worth knowing
            print(f"{each}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        if options.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
