#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ogive beside PyTorch on a GPU, in one process.

    python bench/gpu.py [--library build/libogive.so] [--record FILE] [--seconds N] [NAME...]

Each work is timed by CUDA events, the L2 cache flushed before each call, all
competitors in turn; medians over the rounds. Peers: PyTorch's operators ("torch
eager"), torch.compile while --compile-seconds last (of products of halves also with
mode="max-autotune", while --autotune-seconds last), and a copy of as many bytes on
the device ("copy"), which is also what "floor" is taken from. Ratios are a peer's
time / Ogive's: above 1 Ogive is faster; losses are printed like the rest.

error: greatest |result - float64's| / greatest |float64's|, over some rows.

--smoke runs tiny shapes on the CPU, to try this script where there is no GPU.
"""
import argparse
import datetime
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

import torch

import binding
import timing
from binding import Refused, root

f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16


# ---- timing ------------------------------------------------------------------------

class Gpu:
    """Times calls on the GPU, each with cold caches; medians in ms."""
    device = "cuda"

    def __init__(self):
        self.name = torch.cuda.get_device_name()

    def stream(self):
        return torch.cuda.current_stream().cuda_stream

    def time(self, calls, rounds, seconds):
        return timing.medians(timing.on_gpu(calls, rounds, seconds, queued=True))


class Cpu:
    """The same shape for --smoke."""
    name, device = "CPU (smoke test)", "cpu"

    def stream(self):
        return None

    def time(self, calls, rounds, seconds):
        return timing.medians(timing.on_cpu(calls, 1))


# ---- works -------------------------------------------------------------------------

class Work:
    """One line of the table. make(rand) gives inputs; eager(*inputs) the result by
    PyTorch's operators; most: (peer or None, factor or ms) to stay below."""
    def __init__(self, name, text, shape, eager, dtype=f32, layout="contiguous", make=None,
                 most=None, rows=None, compiles=True, autotunes=False):
        self.name, self.text, self.shape, self.eager = name, text, shape, eager
        self.dtype, self.layout, self.most, self.rows = dtype, layout, most, rows
        self.make = make or (lambda rand: [rand(*shape)])
        self.compiles, self.autotunes = compiles, autotunes

    def label(self):
        return f"{self.name} {'x'.join(map(str, self.shape))} {name_of(self.dtype)} {self.layout}"


def name_of(dtype):
    return str(dtype).replace("torch.", "")


def sliced(rand, rows, columns):
    return [rand(rows, 2 * columns)[:, ::2]]


def transposed(rand, rows, columns):
    return [rand(columns, rows + 64)[:, :rows].t()]


def linear_inputs(rand, rows, k, n):
    return [rand(rows, k), rand(n, k) * k**-0.5, rand(n)]


def gated_inputs(rand, rows, k, n):
    return [rand(rows, k), rand(n, k) * k**-0.5, rand(n, k) * k**-0.5]


def list_works(small):
    """small: tiny shapes, for --smoke."""
    def s(*shape):
        return tuple(max(n // 4096, 3) if small else n for n in shape)

    nn = torch.nn.functional
    wide, half = s(4096, 393216), s(4096, 196608)
    works = [
        Work("sigmoid", "sigmoid(x)", wide, torch.sigmoid, most=("copy", 1.005)),
        Work("hardsigmoid", "hardsigmoid(x)", wide, nn.hardsigmoid, most=("copy", 1.005)),
        Work("sigmoid", "sigmoid(x)", half, torch.sigmoid, f16, most=(None, 0.775)),
        Work("gelu", "gelu(x)", half, nn.gelu, f16),
        Work("tanh", "tanh(x)", half, torch.tanh),
        Work("gelu", "gelu(x)", half, nn.gelu),
        Work("x * sigmoid(x) + y", "x * sigmoid(x) + y", half,
             lambda x, y: x * torch.sigmoid(x) + y, make=lambda rand: [rand(*half), rand(*half)]),
        Work("sigmoid", "sigmoid(x)", half, torch.sigmoid, layout="x[:, ::2]",
             make=lambda rand: sliced(rand, *half), most=(None, 2.35)),
        Work("sigmoid", "sigmoid(x)", s(65536, 4096), torch.sigmoid, layout="transposed slice",
             make=lambda rand: transposed(rand, *s(65536, 4096)), most=(None, 0.55)),
    ]
    for shape in ((4096, 393216), (1, 2**30), (65536, 4096), (2**20, 256), (2**22, 64),
                  (100000, 1000)):
        works.append(Work("sum over rows", "sum(x, dim=1)", s(*shape), lambda x: torch.sum(x, 1)))
    for shape in ((4096, 393216), (2**20, 256), (65536, 4096)):
        works.append(
            Work("sum over columns", "sum(x, dim=0)", s(*shape), lambda x: torch.sum(x, 0)))
    for dtype in (f32, bf16):
        for columns in (1024, 4096, 16384, 65536):
            shape = s(4096, columns)
            n = shape[1]
            works += [
                Work("softmax", "softmax(x, dim=1)", shape, lambda x: torch.softmax(x, 1), dtype),
                Work("layer_norm", f"layer_norm(x, {n})", shape,
                     lambda x, n=n: nn.layer_norm(x, (n,)), dtype),
                Work("rms_norm", f"rms_norm(x, {n})", shape, lambda x, n=n: nn.rms_norm(x, (n,)),
                     dtype),
            ]
    return works + list_products(s)


def list_products(s):
    """s: a shape, tiny for --smoke. Shapes are (m, k, n)."""
    nn = torch.nn.functional
    a, b = s(128, 32768, 32768), s(1024, 8192, 8192)
    works = []
    for dtype in (f32, bf16, f16):
        works += [
            Work("linear_sigmoid_sum", "sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", a,
                 lambda x, w, b: torch.sum(torch.sigmoid(nn.linear(x, w, b)), 1, keepdim=True),
                 dtype, make=lambda rand: linear_inputs(rand, *a), autotunes=dtype != f32,
                 most=(None, 1.55 if dtype == f32 else 0.56)),
            Work("linear_sigmoid_residual", "z = linear(x, w, b); z + 2.0 * sigmoid(z)", b,
                 lambda x, w, b: (z := nn.linear(x, w, b)) + 2.0 * torch.sigmoid(z),
                 dtype, make=lambda rand: linear_inputs(rand, *b), autotunes=dtype != f32,
                 most=(None, 0.72 if dtype == f32 else 0.211)),
        ]
    for m, k, n in ((4096, 4096, 4096), (8192, 8192, 8192), (1, 8192, 8192), (8, 8192, 8192),
                    (16, 8192, 8192), (64, 8192, 8192), (8192, 64, 8192), (8192, 8192, 1)):
        shape = s(m, k, n)
        works.append(Work("linear", "linear(x, w, b)", shape, nn.linear, compiles=False,
                          make=lambda rand, shape=shape: linear_inputs(rand, *shape),
                          most=("torch eager", 1.05)))
    for m, dtype in ((2048, f32), (2048, bf16), (16, bf16)):
        shape = s(m, 4096, 11008)
        works.append(Work("gated pair", "silu(linear(x, w)) * linear(x, v)", shape,
                          lambda x, w, v: nn.silu(nn.linear(x, w)) * nn.linear(x, v), dtype,
                          make=lambda rand, shape=shape: gated_inputs(rand, *shape)))
    return works


# ---- one work ----------------------------------------------------------------------

def bytes_of(tensors):
    """Each element once, as a kernel must."""
    return sum(t.numel() * t.element_size() for t in tensors)


def first_rows(work, inputs):
    """Inputs of a part that is small enough for float64: rows of x."""
    x = inputs[0]
    rows = x.shape[0]
    if "columns" in work.name:
        return [x[:, :max(2**26 // rows, 1)]], (slice(None, max(2**26 // rows, 1)),)
    count = max(2**26 // max(x.numel() // rows, 1), 1)
    return [t[:count] if t.shape == x.shape else t for t in inputs], (slice(None, count),)


def find_error(work, inputs, result):
    """Against float64, over part of the rows (or columns)."""
    part, index = first_rows(work, inputs)
    want = work.eager(*[t.double() for t in part])
    got = result[index].double()
    return float((got - want).abs().max() / want.abs().max())


def make_peers(work, inputs, out, compilers, gpu):
    peers = {"torch eager": lambda: work.eager(*inputs)}
    for compiler, wanted in zip(compilers, (work.compiles, work.autotunes)):
        compiled = compiler.compile(work.eager, inputs) if wanted else None
        if compiled:
            peers[compiler.name] = lambda compiled=compiled: compiled(*inputs)
    # A copy of as many bytes as the work reads and writes.
    moved = bytes_of(inputs) + bytes_of([out])
    source = torch.empty(max(moved // 8, 1), dtype=f32, device=gpu.device)
    target = torch.empty_like(source)
    peers["copy"] = lambda: target.copy_(source)
    return peers, moved


class Compiler:
    """torch.compile in this mode, until its seconds are spent."""
    def __init__(self, name, seconds, mode=None):
        self.name, self.left, self.mode = name, seconds, mode

    def compile(self, function, inputs):
        if self.left <= 0:
            return None
        start = time.monotonic()
        try:
            torch._dynamo.reset()
            compiled = torch.compile(function, dynamic=False, mode=self.mode)
            compiled(*inputs)
        except Exception as problem:  # a peer that fails is no failure of ours
            print(f"{self.name}: {str(problem).splitlines()[0]}", file=sys.stderr)
            compiled = None
        self.left -= time.monotonic() - start
        return compiled


def run_work(work, ogive, gpu, compilers, rounds, seconds):
    generator = torch.Generator(device=gpu.device).manual_seed(1)

    def rand(*shape):
        # Filled in place: randn() of a half type would need a float32 copy.
        return torch.empty(shape, dtype=work.dtype, device=gpu.device).normal_(generator=generator)

    inputs = work.make(rand)
    row = {"work": work.name, "shape": list(work.shape), "dtype": name_of(work.dtype),
           "layout": work.layout, "ours_ms": None, "peers": {}, "floor_ms": None, "error": None,
           "peer_error": None}
    expected = work.eager(*inputs)
    out = torch.empty_like(expected, memory_format=torch.contiguous_format)
    peers, moved = make_peers(work, inputs, out, compilers, gpu)
    try:
        ours = ogive.plan(work.text, inputs, [out])
        calls = {"ogive": lambda: ours(gpu.stream()), **peers}
        calls["ogive"]()
        row["error"] = find_error(work, inputs, out)
    except Refused as problem:
        row["problem"] = str(problem)
        calls = peers
    row["peer_error"] = find_error(work, inputs, expected)
    del expected
    times = gpu.time(calls, rounds, seconds)
    row["ours_ms"] = times.pop("ogive", None)
    row["peers"] = times
    row["floor_ms"] = times["copy"]
    row["bytes"] = moved
    if work.most and row["ours_ms"] is not None:
        peer, factor = work.most
        row["goal_ms"] = factor * times[peer] if peer else factor
    return row


# ---- small things ------------------------------------------------------------------

def run_small(ogive, gpu):
    """1024 elements, as part of a CUDA graph of 1000 calls."""
    calls = 1000
    x = torch.randn(1024, device="cuda")
    out = torch.empty_like(x)
    ours = ogive.plan("sigmoid(x)", [x], [out])
    row = {"work": "sigmoid in a CUDA graph", "shape": [1024], "dtype": "float32",
           "layout": "contiguous", "peers": {}, "floor_ms": None, "error": None,
           "peer_error": None}
    graphs = {}
    for name, call in (("ogive", lambda: ours(gpu.stream())),
                       ("torch eager", lambda: torch.sigmoid(x, out=out)),
                       ("copy", lambda: out.copy_(x))):
        call()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(calls):
                call()
    out.zero_()
    graphs["ogive"].replay()
    torch.cuda.synchronize()
    row["error"] = float((out.double() - torch.sigmoid(x.double())).abs().max())
    times = gpu.time({name: graph.replay for name, graph in graphs.items()}, 25, 2)
    row["ours_ms"] = times.pop("ogive") / calls
    row["peers"] = {name: value / calls for name, value in times.items()}
    row["floor_ms"] = row["peers"]["copy"]
    return row


first_result = """
import sys, time, torch
sys.path.insert(0, {bench!r})
import binding, gpu
text, eager, inputs = gpu.first_works[{name!r}]
inputs = [torch.randn(shape, device="cuda") for shape in inputs]
out = torch.empty_like(eager(*inputs))
torch.cuda.synchronize()
start = time.perf_counter()
if {compiled}:
    torch.compile(eager)(*inputs)
else:
    call = binding.Library({library!r}).plan(text, inputs, [out])
    call(torch.cuda.current_stream().cuda_stream)
torch.cuda.synchronize()
print("ms", (time.perf_counter() - start) * 1e3)
"""

first_works = {
    "softmax(x * sigmoid(x))": (
        "softmax(x * sigmoid(x), dim=1)", lambda x: torch.softmax(x * torch.sigmoid(x), 1),
        [(4096, 4096)]),
    "linear_sigmoid_residual": (
        "z = linear(x, w, b); z + 2.0 * sigmoid(z)",
        lambda x, w, b: (z := torch.nn.functional.linear(x, w, b)) + 2.0 * torch.sigmoid(z),
        [(1024, 8192), (8192, 8192), (8192,)]),
}


def time_first(library, folder, name, compiled):
    environment = dict(os.environ, OGIVE_CACHE_DIR=str(folder),
                       TORCHINDUCTOR_CACHE_DIR=str(folder), TRITON_CACHE_DIR=str(folder))
    script = first_result.format(bench=str(root / "bench"), library=str(library), name=name,
                                 compiled=compiled)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True,
                          text=True, timeout=300)
    if done.returncode != 0:
        raise Refused(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split("ms ")[1])


def run_first(library, name):
    """The first result of a process that has a CUDA context: nothing cached, then again."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        for cache in ("cold", "warm"):
            row = {"work": f"first result, {cache} cache, {name}", "shape": first_works[name][2][0],
                   "dtype": "float32", "layout": "contiguous", "ours_ms": None, "peers": {},
                   "floor_ms": None, "error": None, "peer_error": None}
            try:
                row["ours_ms"] = time_first(library, ours, name, False)
                row["peers"]["torch.compile"] = time_first(library, theirs, name, True)
            except Refused as problem:
                row["problem"] = str(problem)
            yield row


# ---- the table ---------------------------------------------------------------------

def number(value, form="{:.4g}"):
    return "-" if value is None else form.format(value)


def print_row(row):
    name = f"{row['work']} {'x'.join(map(str, row['shape']))} {row['dtype']}"
    if row["layout"] != "contiguous":
        name += f", {row['layout']}"
    peers = row["peers"]
    ours = row["ours_ms"]
    ratios = [peers[p] / ours if ours and p in peers else None
              for p in ("torch eager", "torch.compile", "max-autotune", "copy")]
    cells = [number(ours)] + [number(r, "{:.3f}") for r in ratios]
    cells += [number(row["error"], "{:.1e}"), number(row["peer_error"], "{:.1e}")]
    goal = row.get("goal_ms")
    note = row.get("problem", "")
    if goal:
        note = f"{'met' if ours <= goal else 'MISSED'}: goal {goal:.4g} ms"
    print(f"{name:<58}" + "".join(f"{c:>10}" for c in cells) + ("  " + note if note else ""),
          flush=True)


def print_head():
    print(f"{'':<58}" + "".join(f"{c:>10}" for c in ("ours ms", "eager", "compile", "autotune",
                                                      "copy", "error", "eager's")))


def driver_version():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def describe_run(ogive, gpu):
    versions = {"ogive": ogive.version(), "torch": torch.__version__,
                "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    try:
        import triton
        versions["triton"] = triton.__version__
    except ImportError:
        pass
    return {"date": datetime.date.today().isoformat(), "gpu": gpu.name,
            "driver": driver_version(), "versions": versions,
            "command": shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
            "error_is": "greatest |result - float64's| / greatest |float64's|, over some rows",
            "rows": []}


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="works to time (a part of their label)")
    parser.add_argument("--library", type=pathlib.Path, default=root / "build/libogive.so")
    parser.add_argument("--record", type=pathlib.Path, help="write the numbers there, as JSON")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=1.0, help="a work, beyond 20 rounds")
    parser.add_argument("--compile-seconds", type=float, default=100,
                        help="for torch.compile's compiling, in all")
    parser.add_argument("--autotune-seconds", type=float, default=40,
                        help="the same for mode=max-autotune")
    parser.add_argument("--smoke", action="store_true")
    return parser.parse_args()


def run_all(args, ogive, gpu):
    """Yields rows."""
    compilers = [
        Compiler("torch.compile", 0 if args.smoke else args.compile_seconds),
        # Without CUDA graphs: all others are timed as separate launches, too.
        Compiler("max-autotune", 0 if args.smoke else args.autotune_seconds,
                 "max-autotune-no-cudagraphs")]
    for work in list_works(args.smoke):
        if args.names and not any(name in work.label() for name in args.names):
            continue
        yield run_work(work, ogive, gpu, compilers, args.rounds, args.seconds)
        if not args.smoke:
            torch.cuda.empty_cache()
    if args.smoke:
        return
    if not args.names:
        yield run_small(ogive, gpu)
    for name in first_works:
        if not args.names or any(part in f"first result, {name}" for part in args.names):
            yield from run_first(args.library.resolve(), name)


def main():
    args = read_arguments()
    if not args.smoke and not torch.cuda.is_available():
        sys.exit("error: PyTorch finds no GPU (--smoke tries this script on the CPU)")
    torch.backends.cuda.matmul.allow_tf32 = False
    gpu = Cpu() if args.smoke else Gpu()
    ogive = binding.Library(args.library)
    record = describe_run(ogive, gpu)
    print(f"{record['gpu']}, driver {record['driver']}, {record['versions']}")
    print_head()
    for row in run_all(args, ogive, gpu):
        record["rows"].append(row)
        print_row(row)
        if args.record:  # each time: what was measured is kept, whatever happens next
            args.record.write_text(json.dumps(record, indent=1) + "\n")
    missed = [row for row in record["rows"]
              if row.get("goal_ms") and row["ours_ms"] > row["goal_ms"]]
    print(f"{len(record['rows'])} works, {len(missed)} goals missed, "
          f"{sum(1 for row in record['rows'] if row.get('problem'))} not done")


if __name__ == "__main__":
    main()
