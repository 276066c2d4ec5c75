#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The KernelBench examples on a GPU, at the benchmark's own sizes, beside PyTorch.

    python bench/kernelbench.py [--record FILE] [--rounds 100] [--small] [NAME...]

Every file of examples/kernelbench/formula and examples/kernelbench/emitted (NAME picks
some: "emitted", "level2/56") is run against its reference: eager and torch.compile, in
float32 with TF32 off, as the benchmark judges: |got - want| <= 1e-4 + 1e-4 |want|. Then
each is timed by CUDA events, all in turn in every round, the L2 cache flushed before each
call; mean and median over the rounds. Ratios are a peer's median / the file's: above 1
the file is faster.

error: greatest |result - float64's| / greatest |float64's|, over some rows.
--small runs tiny sizes, on the CPU if there is no GPU, to try this script.
"""
import argparse
import datetime
import importlib.util
import json
import pathlib
import statistics

import torch
import torch.nn as nn

import timing

root = pathlib.Path(__file__).resolve().parent.parent
examples = root / "examples" / "kernelbench"


def load(path):
    spec = importlib.util.spec_from_file_location("model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load(examples / "reference.py")


def build(make, arguments, device):
    torch.manual_seed(42)
    with torch.device(device):
        return make(*arguments)


def error_of(model, got, x):
    """Over some rows, against float64."""
    rows = slice(0, min(64, x.shape[0]))
    want = run_double(model, x[rows])
    return ((got[rows].double() - want).abs().max() / want.abs().max()).item()


def run_double(model, x):
    """The reference in float64, a layer's weight a slice at a time: it may be some GB."""
    layer = next((m for m in model.children() if isinstance(m, nn.Linear)), None)
    if layer is None:
        return model(x.double())
    z = torch.cat([torch.nn.functional.linear(x.double(), w.double(), b.double()) for w, b in
                   zip(layer.weight.split(4096), layer.bias.split(4096))], dim=1)
    if isinstance(model, reference.MatmulSigmoidSum):
        return torch.sigmoid(z).sum(1, keepdim=True)
    return torch.sigmoid(z) * model.scaling_factor + z


def run_problem(name, options, device):
    make, arguments, shape, small_arguments, small_shape = reference.problems[name]
    if options.small:
        arguments, shape = small_arguments, small_shape
    torch.manual_seed(7)
    x = torch.rand(shape, device=device)
    eager = build(make, arguments, device)
    models = {"torch eager": eager}
    if not options.no_compile:
        models["torch.compile"] = torch.compile(eager)
    rows = {}
    with torch.no_grad():
        want = eager(x)
        for kind in ("formula", "emitted"):
            path = examples / kind / name
            if options.names and not any(n in f"{kind}/{name}" for n in options.names):
                continue
            model = build(load(path).ModelNew, arguments, device)
            for a, b in zip(eager.parameters(), model.parameters(), strict=True):
                assert torch.equal(a, b), "parameters are not drawn in the reference's order"
            before = x.clone() if x.numel() < 1 << 28 else None
            got = model(x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
            assert before is None or torch.equal(before, x), "the input was changed"
            rows[kind] = {"error": error_of(eager, got, x)}
            models[kind] = model
            del got
        rows["torch eager"] = {"error": error_of(eager, want, x)}
        del want
        calls = {kind: (lambda model=model: model(x)) for kind, model in models.items()}
        times = (timing.on_cpu(calls, options.rounds) if device == "cpu" else
                 timing.on_gpu(calls, options.rounds, least=options.rounds))
    for kind, each in times.items():
        rows.setdefault(kind, {}).update(mean_ms=statistics.mean(each),
                                         median_ms=statistics.median(each), least_ms=min(each))
    return rows


def report(name, rows):
    peers = [k for k in rows if k.startswith("torch")]
    for kind, row in rows.items():
        ratios = "" if kind in peers else "  ".join(
            f"{rows[p]['median_ms'] / row['median_ms']:5.2f}x {p}" for p in peers)
        error = f"{row['error']:8.1e}" if "error" in row else " " * 8
        print(f"{name[:38]:38} {kind:14} mean {row['mean_ms']:7.3f}  median {row['median_ms']:7.3f}"
              f" ms  error {error}  {ratios}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.small:
        parser.error("no GPU: --small runs on the CPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    record = {"date": datetime.date.today().isoformat(), "torch": torch.__version__,
              "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
              "rounds": options.rounds, "problems": {}}
    for name in reference.problems:
        record["problems"][name] = run_problem(name, options, device)
        report(name, record["problems"][name])
        if device == "cuda":
            torch.cuda.empty_cache()
    if options.record:
        pathlib.Path(options.record).write_text(json.dumps(record, indent=1) + "\n")


main()
