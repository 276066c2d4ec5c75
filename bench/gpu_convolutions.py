#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""KernelBench's lone convolutions and poolings on a GPU beside PyTorch's, at its defaults (cuDNN
may take TF32) and in float32, all in one process.

    gpu_convolutions.py [--inductor] [NUMBER ...]

A line: ours, eager, float32 (eager without TF32), Inductor; the floor, which is the greater of
bytes / 4.2 TB/s and operations / 60 TF of CUDA cores; the best peer's time over ours; the greatest
difference from a float32 result, over the result's greatest element."""
import argparse
import statistics
import sys
import warnings

import timing
import torch
import torch.nn.functional as F

import ogive.torch as ot

# number, transposed, channels, filters, taps, stride, padding, dilation, groups, batch and extents
CONVOLUTIONS = [
    (50, 0, 3, 96, (11, 11), 4, 2, 1, 1, (256, 224, 224)),
    (54, 0, 3, 64, (3, 3, 3), 1, 0, 1, 1, (16, 64, 64, 64)),
    (55, 0, 64, 128, (3, 3), 1, 0, 1, 1, (8, 512, 1024)),
    (56, 0, 64, 128, (5, 7), 1, 0, 1, 1, (8, 512, 256)),
    (57, 1, 64, 64, (3, 3), 1, 0, 1, 1, (8, 1024, 1024)),
    (58, 1, 32, 16, (3, 5, 7), 1, 0, 1, 1, (16, 16, 32, 64)),
    (59, 0, 3, 64, (3, 3, 1), 1, 0, 1, 1, (16, 256, 256, 10)),
    (60, 0, 3, 64, (3, 5, 7), 1, 0, 1, 1, (16, 64, 64, 64)),
    (61, 1, 48, 48, (3, 3, 3), 1, 0, 1, 1, (8, 64, 64, 64)),
    (62, 0, 32, 64, (5, 9), 1, 0, 1, 1, (8, 512, 512)),
    (63, 0, 16, 128, (3, 3), 1, 0, 1, 1, (16, 1024, 1024)),
    (64, 1, 128, 128, (3,), 1, 0, 1, 1, (64, 65536)),
    (65, 1, 64, 64, (3, 7), 1, 0, 1, 1, (8, 512, 512)),
    (66, 0, 3, 64, (3, 5, 7), 1, 0, 1, 1, (8, 16, 128, 128)),
    (67, 0, 64, 128, (3,), 1, 0, 1, 1, (32, 131072)),
    (68, 1, 32, 64, (3, 5, 5), 1, 0, 1, 1, (16, 64, 64, 64)),
    (69, 1, 64, 128, (3, 5), 1, 0, 1, 1, (64, 128, 256)),
    (70, 1, 48, 24, (3, 3, 3), 1, 0, 1, 1, (8, 96, 96, 96)),
    (71, 1, 32, 32, (3, 3), 1, 0, 1, 1, (8, 512, 1024)),
    (72, 1, 32, 32, (3, 5, 7), 2, (1, 2, 3), 1, 4, (8, 12, 24, 48)),
    (73, 1, 32, 32, (3, 3, 3), 2, 1, 1, 1, (4, 32, 64, 128)),
    (74, 1, 32, 64, (5,), 1, 0, 3, 1, (32, 131072)),
    (75, 1, 32, 64, (3, 5), (2, 3), (1, 2), (2, 1), 4, (16, 128, 256)),
    (76, 0, 64, 128, (3,), 3, 0, 4, 1, (64, 524280)),
    (77, 1, 32, 64, (3, 3, 3), 2, 1, 2, 1, (16, 16, 32, 32)),
    (78, 1, 32, 32, (3, 7), 1, (1, 3), 1, 1, (8, 512, 1024)),
    (79, 1, 32, 64, (3,), 2, 1, 2, 1, (16, 131072)),
    (80, 0, 32, 64, (5, 9), 1, (2, 4), (2, 3), 1, (8, 512, 512)),
    (81, 1, 32, 64, (3, 3), 5, 1, 2, 1, (16, 64, 128)),
    (82, 0, 64, 64, (3, 3), 1, 0, 1, 64, (16, 512, 512)),
    (83, 0, 8, 8, (3, 1), 1, 0, 1, 8, (64, 512, 512)),
    (84, 0, 128, 128, (3, 3), 1, 0, 1, 128, (64, 256, 512)),
    (85, 0, 128, 128, (3, 7), 1, 0, 1, 128, (32, 128, 256)),
    (87, 0, 64, 128, (1, 1), 1, 0, 1, 1, (16, 1024, 1024)),
]
# number, function, shape, arguments
POOLINGS = [
    (41, "max_pool1d", (64, 192, 65536), (8, 1, 4, 3)),
    (42, "max_pool2d", (32, 64, 512, 512), (4, 1, 1, 1)),
    (43, "max_pool3d", (16, 32, 128, 128, 128), (3, 2, 1, 3)),
    (44, "avg_pool1d", (64, 128, 65536), (8, 1, 4)),
    (45, "avg_pool2d", (16, 64, 2048, 2048), (11,)),
    (46, "avg_pool3d", (16, 32, 128, 128, 256), (3, 2, 1)),
]
BYTES_PER_MS, OPERATIONS_PER_MS = 4.2e9, 60e9


def make_convolution(case):
    _, transposed, channels, filters, taps, stride, padding, dilation, groups, sizes = case
    x = torch.rand(sizes[0], channels, *sizes[1:], device="cuda")
    shape = (channels, filters // groups) if transposed else (filters, channels // groups)
    w = (torch.rand(*shape, *taps, device="cuda") - 0.5) / (channels // groups * len(taps)) ** 0.5
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    name = f"conv{'_transpose' * transposed}{len(taps)}d"
    return name, (x, w), options


def make_pooling(case):
    _, name, shape, arguments = case
    return name, (torch.rand(shape, device="cuda"), *arguments), {}


def count_operations(case, tensors, result):
    if len(case) == 4:
        return 0
    x, w = tensors
    meets = x if case[1] else result
    return 2 * meets.numel() * w.numel() / w.shape[0]


def measure(case, inductor):
    name, arguments, options = (make_pooling if len(case) == 4 else make_convolution)(case)
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    theirs, ours = getattr(F, name), getattr(ot, name)

    def exact():
        torch.backends.cudnn.allow_tf32 = False
        result = theirs(*arguments, **options)
        torch.backends.cudnn.allow_tf32 = True
        return result

    calls = {"ours": lambda: ours(*arguments, **options),
             "eager": lambda: theirs(*arguments, **options), "float32": exact}
    if inductor:
        torch._dynamo.reset()
        compiled = torch.compile(lambda *a: theirs(*a, **options))
        calls["inductor"] = lambda: compiled(*arguments)
    result, want = calls["ours"](), exact()
    error = ((result - want).abs().max() / want.abs().max()).item()
    moved = 4 * (sum(t.numel() for t in tensors) + result.numel())
    operations = count_operations(case, tensors, result)
    floor = max(moved / BYTES_PER_MS, operations / OPERATIONS_PER_MS)
    del result, want
    times = {key: statistics.median(each)
             for key, each in timing.on_gpu(calls, rounds=5, least=5, queued=True).items()}
    peer = min(times[key] for key in times if key not in ("ours", "float32"))
    shown = "".join(f"{times.get(key, float('nan')):10.3f}"
                    for key in ("ours", "eager", "float32", "inductor"))
    print(f"L1-{case[0]:<3} {name:17}{shown}{floor:10.3f}{times['ours'] / floor:8.2f}x"
          f"{peer / times['ours']:8.2f}x{operations / times['ours'] / 1e9:8.1f} TF  {error:.1e}",
          flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("numbers", nargs="*", type=int)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda},"
          f" {' '.join(sys.argv)}\n{'':22}{'ours':>10}{'eager':>10}{'float32':>10}{'inductor':>10}"
          f"{'floor':>10}{'of floor':>9}{'peer':>9}   ms")
    for case in POOLINGS + CONVOLUTIONS:
        if not arguments.numbers or case[0] in arguments.numbers:
            try:
                measure(case, arguments.inductor)
            except Exception as error:  # the others are still worth knowing
                print(f"L1-{case[0]}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
