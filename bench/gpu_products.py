#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Products on a GPU: how fast, beside PyTorch. (tests/gpu/products.py tells whether they are
right; here results are compared roughly, so that no wrong one is timed.)

    python bench/gpu_products.py [--library build/libogive.so] [--seconds N] [PART...]

Medians, L2 flushed before each call, ours and torch's in turn. Parts (all by default):
    gated     silu(linear(x, w)) * linear(x, v) of halves, as one kernel and as two
    times     float32: plain products and tails
    half_times  the same of float16 and bfloat16
    edges     float32 products that are small, thin, long or in batches
    kernelbench  KernelBench's products L1-1 to L1-18
    wide      float32 data that pairs of float16 cannot hold: the share of sums computed again
    ways      CUDA cores, mma.sync and wgmma over rows, sizes and layouts of w

Ends with status 1 if anything is wrong. OGIVE_PRODUCT=cores takes the CUDA cores
instead, OGIVE_PRODUCT=mma mma.sync instead of wgmma.
"""
import argparse
import concurrent.futures
import os
import sys
import time

import torch

import binding
import timing
from gpu_data import find_marked, lay_out, product64, random

strict_bound = 2.0 ** -21  # of |e| / sum |x||w|
failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("WRONG:", what, flush=True)


def median_times(calls, seconds, least=20):
    return list(timing.medians(timing.on_gpu(dict(enumerate(calls)), seconds=seconds,
                                             least=least)).values())


def part_gated(seconds):
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu
    for dtype, m, n, k in ((torch.bfloat16, 2048, 11008, 4096), (torch.float16, 2048, 11008, 4096),
                           (torch.bfloat16, 4096, 14336, 4096), (torch.bfloat16, 128, 11008, 4096),
                           (torch.bfloat16, 16, 11008, 4096), (torch.bfloat16, 1, 11008, 4096)):
        x, w, v = (random(m, k).to(dtype), *((random(n, k) / k ** 0.5).to(dtype) for _ in "wv"))
        out, z = torch.empty(m, n, device="cuda", dtype=dtype), torch.empty(m, n, device="cuda")
        ours = ogive.plan("silu(linear(x, w)) * linear(x, v)", [x, w, v], [out])
        first = ogive.plan("float32(linear(x, w))", [x, w], [z])
        second = ogive.plan(f"{str(dtype)[6:]}(silu(z) * linear(x, v))", [z, x, v], [out])
        t = median_times([ours, lambda: (first(), second()),
                          lambda: silu(linear(x, w)) * linear(x, v)], seconds)
        print(f"gated  {m}x{n}x{k} {str(dtype)[6:]}: Ogive {t[0]:.4f} ms, as two kernels {t[1]:.4f}, "
              f"torch {t[2]:.4f}: {t[2] / t[0]:.2f}x, {4e-9 * m * n * k / t[0]:.0f} TFLOP/s",
              flush=True)


def part_times(seconds):
    linear = torch.nn.functional.linear
    works = {
        "sum(sigmoid(linear(x, w, b)), dim=1)":
            ((128, 32768, 32768), lambda x, w, b: torch.sum(torch.sigmoid(linear(x, w, b)), 1)),
        "z = linear(x, w, b); z + 2 * sigmoid(z)":
            ((1024, 8192, 8192), lambda x, w, b: (z := linear(x, w, b)) + 2 * torch.sigmoid(z)),
        "linear(x, w, b)": ((4096, 4096, 4096), linear),
    }
    plain = "linear(x, w, b)"
    works = [(text, *work, torch.float32) for text, work in works.items()]
    works += [(plain, shape, linear, torch.float32) for shape in (
        (512, 2048, 2048), (128, 4096, 4096), (64, 8192, 8192), (16, 8192, 8192), (1, 8192, 8192))]
    for text, (m, n, k), peer, dtype in works:
        x, w, b = torch.rand(m, k, device="cuda"), random(n, k) / k ** 0.5, random(n)
        x, w, b = x.to(dtype), w.to(dtype), b.to(dtype)
        want = peer(x, w, b)
        out = torch.empty_like(want)
        ours, strict, tf32 = (ogive.plan(text, [x, w, b], [out], i) for i in range(3))
        ours()
        e = ((out - want).abs().max() / want.abs().max()).item()
        check(e < (1e-5 if dtype == torch.float32 else 1e-2), f"{text}: {e} from torch's")
        def by_tf32():
            torch.backends.cuda.matmul.allow_tf32 = True
            peer(x, w, b)
            torch.backends.cuda.matmul.allow_tf32 = False
        t = median_times([ours, strict, lambda: peer(x, w, b), tf32, by_tf32], seconds)
        for _ in range(30 if m < 4096 else 8):
            ours()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        rounds = max(20, int(0.5e3 / t[0]))
        start.record()
        for _ in range(rounds):
            ours()
        end.record()
        torch.cuda.synchronize()
        print(f"times  {m}x{n}x{k} {str(dtype)[6:]} {text}: Ogive {t[0]:.4f} ms (back to back "
              f"{start.elapsed_time(end) / rounds:.4f}), strict {t[1]:.4f}, torch {t[2]:.4f}: "
              f"{t[2] / t[0]:.2f}x, {2e-9 * m * n * k / t[0]:.0f} TFLOP/s; tf32 {t[3]:.4f}, torch's "
              f"{t[4]:.4f}: {t[4] / t[3]:.2f}x", flush=True)


def part_half_times(seconds):
    linear = torch.nn.functional.linear
    plain = "linear(x, w, b)"
    works = [
        ("sum(sigmoid(linear(x, w, b)), dim=1)", (128, 32768, 32768),
         lambda x, w, b: torch.sum(torch.sigmoid(linear(x, w, b)), 1)),
        ("z = linear(x, w, b); z + 2 * sigmoid(z)", (1024, 8192, 8192),
         lambda x, w, b: (z := linear(x, w, b)) + 2 * torch.sigmoid(z))]
    works += [(plain, (m, n, n), linear) for m, n in (
        (4096, 4096), (1024, 8192), (8192, 8192), (256, 8192), (128, 8192), (64, 8192), (16, 8192),
        (1, 8192))]
    bound = []
    for dtype in (torch.bfloat16, torch.float16):
        for text, (m, n, k), peer in works[:3] if dtype == torch.float16 else works:
            x = torch.rand(m, k, device="cuda").to(dtype)
            w, b = (random(n, k) / k ** 0.5).to(dtype), random(n).to(dtype)
            out = torch.empty_like(peer(x, w, b))
            bound.append((text, (m, n, k), peer, dtype, [x, w, b], out,
                          ogive.plan(text, [x, w, b], [out])))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:  # compiles
        list(pool.map(lambda c: c[-1](), bound))
    for text, (m, n, k), peer, dtype, inputs, out, ours in bound:
        want = peer(*inputs)
        ours()
        e = ((out - want).abs().max() / want.abs().max()).item()
        check(e < 1e-2, f"{text}: {e} from torch's")
        t = median_times([ours, lambda: peer(*inputs)], seconds)
        print(f"times  {m}x{n}x{k} {str(dtype)[6:]} {text}: Ogive {t[0]:.4f} ms, torch {t[1]:.4f}: "
              f"{t[1] / t[0]:.2f}x, {2e-9 * m * n * k / t[0]:.0f} TFLOP/s", flush=True)


# ---- float32 products beside torch's -----------------------------------------------------

def ends(t, dim, count):
    """The first and the last of t along dim; all, if there are no more."""
    size = t.shape[dim]
    return t if size <= 2 * count else torch.cat([t.narrow(dim, 0, count),
                                                  t.narrow(dim, size - count, count)], dim)


def some_rows(x, w, y):
    """x, w and y for at most 256 rows of the first and the last product."""
    x = x.expand(*y.shape[:-1], x.shape[-1])
    if w.dim() > 2:
        w = w.expand(*y.shape[:-2], *w.shape[-2:])
        x, w, y = (ends(t, 0, 1) for t in (x, w, y))
    else:
        x, y = (t.reshape(-1, t.shape[-1]) for t in (x, y))
    return ends(x, -2, 128), w, ends(y, -2, 128)


def worst_error(x, w, y):
    """The greatest |e| / sum |x||w| of y = x @ w."""
    x, w, y = some_rows(x, w, y)
    x, w = x.double(), w.double()
    return ((y.double() - x @ w).abs() / (x.abs() @ w.abs()).clamp(min=1e-300)).max().item()


def bind_products(cases):
    """(name, x, w, result, run) of x @ w; compiled."""
    bound = []
    for name, x, w in cases:
        out = torch.full((*torch.broadcast_shapes(x.shape[:-2], w.shape[:-2]), x.shape[-2],
                          w.shape[-1]), float("nan"), device="cuda")
        bound.append((name, x, w, out, ogive.plan("x @ w", [x, w], [out])))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda b: b[-1](), bound))
    torch.cuda.synchronize()
    return bound


def compare_products(part, cases, seconds):
    for name, x, w, out, ours in bind_products(cases):
        e, peer = worst_error(x, w, out), worst_error(x, w, x @ w)
        check(e <= max(2 * strict_bound, 2 * peer), f"{name}: {e}, torch's {peer}")
        t = median_times([ours, lambda: x @ w], seconds)
        print(f"{part} {name}: Ogive {t[0]:.4f} ms, torch {t[1]:.4f}: {t[1] / t[0]:.2f}x; error "
              f"{e * 2 ** 24:.2f}, {peer * 2 ** 24:.2f}", flush=True)


def part_edges(seconds):
    square = random(8192, 8192) / 90
    cases = [(f"{m} x 8192 x 8192, w {lie}", random(m, 8192), w) for m in (1, 8, 16, 64)
             for lie, w in (("(n, k)", square.t()), ("(k, n)", square))]
    cases += [(f"{n}^3, w {lie}", random(n, n), w) for n in (4096, 8192)
              for lie, w in (("(n, k)", square[:n, :n].t()), ("(k, n)", square[:n, :n]))]
    cases += [("8192 x 8192 x 64", random(8192, 64), random(64, 8192)),
              ("8192 x 64 x 8192", random(8192, 8192), random(8192, 64)),
              ("8192 x 32 x 8192", random(8192, 8192), random(8192, 32)),
              ("8192 x 16 x 8192", random(8192, 8192), random(8192, 16)),
              ("8192 x 1 x 8192", random(8192, 8192), random(8192, 1)),
              ("1 x 64 x 65536", random(1, 65536), random(64, 65536).t()),
              ("1 x 1024 x 1024", random(1, 1024), random(1024, 1024)),
              ("512 x 512 x 512", random(512, 512), random(512, 512)),
              ("1024 x 128 x 1024", random(1024, 1024), random(1024, 128)),
              ("1024 x 16 x 1024", random(1024, 1024), random(1024, 16)),
              ("256 x 10 x 2048", random(256, 2048), random(2048, 10)),
              ("64 x 100 x 2048", random(64, 2048), random(2048, 100)),
              ("64 of 512 x 512 x 512", random(64, 512, 512), random(64, 512, 512)),
              ("8 x 16 of 512 x 512 x 512, transposed", lay_out((1, 0, 2, 3), 8, 16, 512, 512),
               lay_out((1, 0, 2, 3), 8, 16, 512, 512)),
              ("8 x 16 of 1024 x 1024 x 64, heads", lay_out((0, 2, 1, 3), 8, 16, 1024, 64),
               lay_out((0, 2, 1, 3), 8, 16, 1024, 64).mT),
              ("4 x 32 of 64 x 512 x 512, w 32", random(4, 32, 64, 512), random(32, 512, 512)),
              ("256 of 1 x 512 x 512", random(256, 1, 512), random(256, 512, 512)),
              ("512 of 128 x 128 x 64", random(512, 128, 64), random(512, 128, 64).mT)]
    compare_products("edges ", cases, seconds)


def part_kernelbench(seconds):
    def u(*shape):
        return torch.rand(*shape, device="cuda")
    works = {
        "L1-1 square": lambda: (u(4096, 4096), u(4096, 4096)),
        "L1-2 rectangular": lambda: (u(2048, 8192), u(8192, 4096)),
        "L1-3 batched": lambda: (u(128, 512, 1024), u(128, 1024, 2048)),
        "L1-4 mat-vec": lambda: (u(2048, 1048576), u(1048576, 1)),
        "L1-6 large K": lambda: (u(256, 524288), u(524288, 256)),
        "L1-7 small K": lambda: (u(32768, 64), u(64, 32768)),
        "L1-8 irregular": lambda: (u(8205, 2949), u(2949, 5921)),
        "L1-9 tall": lambda: (u(32768, 32), u(32, 32768)),
        "L1-10 3D": lambda: (u(16, 1024, 2048), u(2048, 768)),
        "L1-11 4D": lambda: (u(8, 256, 512, 256), u(256, 768)),
        "L1-16 A^T": lambda: (u(8192, 2048).t(), u(8192, 4096)),
        "L1-17 B^T": lambda: (u(2048, 8192), u(4096, 8192).t()),
        "L1-18 both": lambda: (u(8192, 2048).t(), u(4096, 8192).t()),
    }
    for name, make in works.items():
        compare_products("kernelbench", [(name, *make())], seconds)


def part_wide(seconds):
    m, n, k = 1024, 8192, 8192
    x, w = random(m, k), random(n, k)
    peaks, zeros = w.clone(), x.clone()
    peaks[:, 31::64] *= 2.0 ** 30
    zeros[:, 31::64] = 0
    works = {"normal": (x, w), "softmax(3 * normal)": ((3 * x).softmax(1), w),
             "softmax(6 * normal)": ((6 * x).softmax(1), w),
             "softmax(6 * normal) in every third row": (torch.where(
                 torch.arange(m, device="cuda")[:, None] % 3 == 0, (6 * x).softmax(1), x), w),
             "lognormal(1)": (x * random(m, k).exp(), w * random(n, k).exp()),
             "identity, ReLU": (x.relu(), torch.eye(n, device="cuda")),
             "every 64 k of w a peak of 2^30, x 0": (zeros, peaks)}
    for name, (x, w) in works.items():
        out = torch.empty(m, n, device="cuda")
        ours, strict = (ogive.plan("linear(x, w)", [x, w], [out], s) for s in (False, True))
        ours()
        exact, scale = product64(x, w)
        e = ((out - exact).abs() / scale.clamp(min=1e-300)).max().item() * 2 ** 24
        peer = ((x @ w.t() - exact).abs() / scale.clamp(min=1e-300)).max().item() * 2 ** 24
        check(e <= 274, f"{name}: {e} units")
        again = find_marked(x, w, exact).double().mean().item()
        t = median_times([ours, strict, lambda: x @ w.t()], seconds)
        print(f"wide   {m}x{n}x{k} {name}: Ogive {t[0]:.4f} ms, strict {t[1]:.4f}, torch {t[2]:.4f}: "
              f"{t[2] / t[0]:.2f}x; error {e:.3g}, {peer:.3g} units; {again:.2g} computed again",
              flush=True)


def part_ways(seconds):
    rows = 1, 8, 16, 64, 128, 1024, 4096
    for n in (8192, 4096, 1024):
        w = random(n, n + 1)[:, :n]
        for lie, w in (("(n, k)", random(n, n).t()), ("(k, n)", random(n, n)), ("odd", w)):
            xs = {m: random(m, n) for m in rows}
            times = {m: [] for m in rows}
            for way in ("cores", "mma", "sm90"):
                os.environ["OGIVE_PRODUCT"] = way
                bound = bind_products([(m, xs[m], w) for m in rows])
                for m, _, _, out, ours in bound:
                    check(worst_error(xs[m], w, out) < 2.0 ** -19, f"{m} x {n} {lie} {way}")
                    times[m] += median_times([ours], 0, 10)
            os.environ.pop("OGIVE_PRODUCT")
            for m in rows:
                cores, mma, sm90, peer = times[m] + median_times([lambda: xs[m] @ w], 0, 10)
                print(f"ways   {m:4d} x {n} x {n}, w {lie}: cores {cores:.4f}, mma {mma:.4f}, wgmma "
                      f"{sm90:.4f}, torch {peer:.4f} ms", flush=True)


def main():
    global ogive
    parts = {"gated": part_gated, "times": part_times, "half_times": part_half_times,
             "edges": part_edges, "kernelbench": part_kernelbench, "wide": part_wide,
             "ways": part_ways}
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*parts, []])
    parser.add_argument("--library", default=binding.root / "build/libogive.so")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each work")
    arguments = parser.parse_args()
    ogive = binding.Library(arguments.library)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "OGIVE_PRODUCT",
          os.environ.get("OGIVE_PRODUCT"), flush=True)
    for name in arguments.parts or parts:
        begin = time.time()
        parts[name](arguments.seconds)
        print(f"{name}: {time.time() - begin:.1f} s", flush=True)
    print(f"{len(failures)} wrong" if failures else "all right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
