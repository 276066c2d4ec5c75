#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""KernelBench's problems as they are written, on a GPU: eager, torch.compile(backend="ogive") and, if
asked for, Inductor, all of one problem in one process.

    python bench/kernelbench_sweep.py FOLDER [--level 2] [--only REGEX] [--inductor] [--seconds S]
                                      [--warm PROCESSES] [--record FILE] [--aten] [--explain]
                                      [--float32] [--timeline] [--rounds N] [--whole]

FOLDER holds the benchmark's level1, level2, ... (github.com/ScalingIntelligence/KernelBench, its
folder KernelBench). A line each: milliseconds, medians, the L2 cache flushed before each call; eager's
over ogive's and the best peer's over ogive's; the greatest distance from eager's float32 result, over
its greatest element, of ogive and of eager with TF32. Inputs are KernelBench's own, without gradients.
--float32 times eager without TF32, too; --whole a model of which the backend takes all that it can,
whatever it estimates. --warm has kernels compiled by so many processes first,
Inductor's too. --timeline shows the kernels of a call, with microseconds. --record appends JSON lines.
"""
import argparse
import contextlib
import copy
import functools
import importlib.util
import json
import pathlib
import re
import time
import warnings

import timing
import torch
from torch.profiler import ProfilerActivity, profile

import ogive.torch as ot
from ogive.torch import _regions


def load(path):
    spec = importlib.util.spec_from_file_location("problem", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(42)
    with torch.device("cuda"):
        inputs = [each.cuda() if torch.is_tensor(each) else each for each in module.get_inputs()]
        model = module.Model(*module.get_init_inputs()).cuda()
    return model, inputs


def distance(got, want):
    return ((got - want).abs().max() / want.abs().max()).item()


def exactly(model, inputs):
    """By PyTorch, without TF32."""
    torch.backends.cudnn.allow_tf32 = False
    try:
        return model(*inputs)
    finally:
        torch.backends.cudnn.allow_tf32 = True


def compile_model(model, options):
    torch._dynamo.reset()
    return torch.compile(model, backend="ogive" if options.installed else ot.backend,
                         options={"level": "aten" if options.aten else "torch"})


@contextlib.contextmanager
def estimating_nothing():
    """Formulas count as faster than PyTorch, whatever they are."""
    kept = _regions.estimate_formula
    _regions.estimate_formula = lambda *given: min(kept(*given), 1e-9)
    try:
        yield
    finally:
        _regions.estimate_formula = kept


def compile_whole(model, options, inputs):
    """All that can be is taken, at once, while nothing is estimated."""
    with estimating_nothing():
        compiled = torch.compile(copy.deepcopy(model), backend=ot.backend,
                                 options={"level": "aten" if options.aten else "torch"})
        compiled(*inputs)
    return compiled


def timeline(call):
    """What runs on the GPU in a call, in order, without what takes next to nothing."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    return ", ".join(f"{event.name[:48]} {event.device_time_total:.0f}" for event in profiled.events()
                     if event.device_time_total >= 4)


def run(path, options):
    model, inputs = load(path)
    row = {"problem": path.stem}
    if options.explain:
        row["explained"] = ot.explain(
            model, *inputs, options={"level": "aten" if options.aten else "torch"})
        print(row["explained"])
    calls = {"eager": model, "ogive": compile_model(model, options)}
    want = exactly(model, inputs)
    row["error"], row["eager_error"] = (distance(calls[name](*inputs), want)
                                        for name in ("ogive", "eager"))
    del want
    torch.cuda.empty_cache()
    if options.whole:
        calls["whole"] = compile_whole(model, options, inputs)
    if options.inductor:
        calls["inductor"] = torch.compile(model)
    if options.float32:
        calls["float32"] = lambda *given: exactly(model, given)
    row.update(timing.medians(timing.on_gpu(
        {name: functools.partial(call, *inputs) for name, call in calls.items()},
        rounds=options.rounds, seconds=0.15, least=min(5, options.rounds))))
    if options.timeline:
        row["kernels"] = {name: timeline(functools.partial(call, *inputs))
                          for name, call in calls.items() if name in ("ogive", "inductor")}
    return row


def show(row):
    best = min(row[name] for name in ("eager", "inductor") if name in row)
    times = "".join(f"{row.get(name, float('nan')):9.3f}"
                    for name in ("eager", "float32", "inductor", "ogive", "whole"))
    print(f"{row['problem'][:48]:48}{times}{row['eager'] / row['ogive']:7.2f}"
          f"{best / row['ogive']:7.2f}  {row['error']:.1e} {row['eager_error']:.1e}", flush=True)
    for name, kernels in row.get("kernels", {}).items():
        print(f"    {name}: {kernels}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--level", default="2")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--record")
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--aten", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--timeline", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--installed", action="store_true", help="the backend by its registered name")
    timing.add_warm(parser)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    paths = sorted((options.folder / f"level{options.level}").glob("*.py"),
                   key=lambda path: int(path.stem.split("_")[0]))
    begin = time.monotonic()
    paths = timing.share_cases(options, [path for path in paths if re.search(options.only, path.stem)])
    if not options.part:
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; ready after "
              f"{time.monotonic() - begin:.0f} s\n{'':48}{'eager':>9}{'float32':>9}{'Inductor':>9}{'ogive':>9}{'whole':>9}"
              f"{'eager/':>7}{'best/':>7}  error, of eager", flush=True)
    for path in paths:
        if time.monotonic() - begin > options.seconds:
            print(f"time is up before {path.stem}")
            break
        try:
            with torch.no_grad():
                if options.part:
                    model, inputs = load(path)
                    compile_model(model, options)(*inputs)
                    if options.whole:
                        compile_whole(model, options, inputs)
                    if options.inductor:
                        torch.compile(model)(*inputs)
                    model = inputs = None
                else:
                    row = run(path, options)
                    show(row)
                    if options.record:
                        with open(options.record, "a") as out:
                            out.write(json.dumps(row) + "\n")
        except Exception as error:  # the others are still worth knowing
            print(f"{path.stem}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
