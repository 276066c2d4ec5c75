#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Products on a GPU: are they right? (bench/gpu_products.py times them.)

    python tests/gpu/products.py [--library build/libogive.so] [PART...]

Parts (all by default):
    shapes    odd shapes and tails against float64
    rows      rows that tensor cores cannot hold have precision=strict's bits; a row alone has
              the bits that it has in a batch; repeated runs have the same bits
    errors    the error by distribution: ||e|| / ||z||, and the greatest |e| / sum |x||w|, of
              Ogive and of torch's SGEMM (TF32 off)
    halves    float16 and bfloat16: error, a row alone, repeats
    cover     layouts, batches, small and odd shapes against float64, a row alone, repeats; batches
              of several dims have the bits of one dim
    half_cover  the same of float16 and bfloat16
    gated     silu(linear(x, w)) * linear(x, v) of halves: the bits of one product after the other,
              float64

Ends with status 1 if anything is wrong. OGIVE_PRODUCT=cores takes the CUDA cores
instead, OGIVE_PRODUCT=mma mma.sync instead of wgmma.
"""
import argparse
import concurrent.futures
import os
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import binding  # noqa: E402
from gpu_data import different, fill, lay_out, product64, random  # noqa: E402

strict_bound = 2.0 ** -21  # of |e| / sum |x||w|, or 1.5 times SGEMM's
by_mma = os.environ.get("OGIVE_PRODUCT") == "mma"  # not Hopper's own kernel
failures = []


def run(text, inputs, shape, strict=False, dtype=torch.float32, turned=False):
    out = torch.full(shape, 60000, device="cuda", dtype=dtype)
    out = out.transpose(-1, -2) if turned else out
    ogive.plan(text, inputs, [out], strict)()
    torch.cuda.synchronize()
    return out


def check(good, what):
    if not good:
        failures.append(what)
        print("WRONG:", what, flush=True)


# ---- parts -----------------------------------------------------------------------------

def part_shapes():
    linear = "linear(x, w)"
    for m, n, k in ((1, 128, 128), (5, 130, 132), (127, 129, 196), (129, 300, 1000),
                    (300, 777, 2052), (64, 4096, 260), (1000, 200, 5000), (257, 1000, 128)):
        x, w = random(m, k), random(n, k)
        z, scale = product64(x, w)
        e = ((run(linear, [x, w], (m, n)).double() - z).abs() / scale).max().item()
        print(f"shapes {m:5d} x {n:5d} x {k:5d}: {e:.1e} of sum |x||w|", flush=True)
        check(e < strict_bound, f"linear {m}x{n}x{k}: {e}")
    for m, n, k in ((1, 129, 128), (130, 1000, 516), (257, 4100, 260)):
        x, w, b = random(m, k), random(n, k) / k ** 0.5, random(n)
        y, r = random(m, n), random(m, 1)
        z = torch.nn.functional.linear(x.double(), w.double(), b.double())
        tails = {
            "z = linear(x, w, b); z + 2 * sigmoid(z)": ([x, w, b], z + 2 * z.sigmoid()),
            "linear(x, w, b) * y + r": ([x, w, b, y, r], z * y.double() + r.double()),
            "sum(sigmoid(linear(x, w, b)), dim=1)": ([x, w, b], z.sigmoid().sum(1)),
            "amax(linear(x, w, b), dim=1)": ([x, w, b], z.amax(1)),
            "logsumexp(linear(x, w, b), dim=1)": ([x, w, b], z.logsumexp(1)),
        }
        for text, (inputs, want) in tails.items():
            got = run(text, inputs, want.shape).double()
            e = ((got - want).abs() / (1 + want.abs())).max().item()
            print(f"shapes {m} x {n} x {k}: {text}: {e:.1e}", flush=True)
            check(e < 4e-6, f"{text} {m}x{n}x{k}: {e}")
    x, w = random(3, 50, 256).transpose(0, 1), random(200, 256)  # rows of two dims
    want = torch.nn.functional.linear(x.double(), w.double())
    e = (run(linear, [x, w], (50, 3, 200)).double() - want).abs().max().item()
    check(e < 1e-4, f"rows of two dims: {e}")
    x = random(256, 77).t()  # k apart in memory
    want = torch.nn.functional.linear(x.double(), w.double())
    e = (run(linear, [x, w], (77, 200)).double() - want).abs().max().item()
    check(e < 1e-4, f"k apart: {e}")


def part_rows():
    linear, total = "linear(x, w)", "sum(sigmoid(linear(x, w)), dim=1)"
    inf, nan = float("inf"), float("nan")
    x, w = random(300, 1024), random(700, 1024)
    x[3] = 0
    x[4, 50], x[5, 7] = inf, nan
    x[6] *= 2.0 ** -80
    x[7] *= 2.0 ** 60
    x[8] *= torch.exp2(torch.randint(-12, 13, (1024,), device="cuda").float())
    x[200] *= 2.0 ** -120
    w[5, 100], w[9, 200] = nan, inf
    w[17] = 0
    w[20, :64] = 0
    w[30] *= 2.0 ** -100
    w[31] *= 2.0 ** 90
    w[40, 3] = 2.0 ** 100
    w[41] *= 2.0 ** -125
    z, scale = product64(x, w)
    got, want = run(linear, [x, w], (300, 700)), run(linear, [x, w], (300, 700), strict=True)
    for row in (4, 5, 200):  # every sum of theirs is computed again
        check(different(got[row], want[row]) == 0, f"row {row} has not strict's bits")
    for column in (5, 9):
        check(different(got[:, column], want[:, column]) == 0, f"column {column} ...")
    special = want.isnan() | want.isinf()
    check(bool((got.isnan() == want.isnan()).all() and (got.isinf() == want.isinf()).all()),
          "NaN and inf where strict has them")
    e = ((got.double() - z).abs() / scale)[~special & (scale > 2.0 ** -100)].max().item()
    print(f"rows   special values: {e:.1e} of sum |x||w|; redone rows as strict", flush=True)
    check(e < 2 * strict_bound, f"special values {e}")
    got, want = run(total, [x, w], (300,)), run(total, [x, w], (300,), strict=True)
    check(different(got[[4, 5, 200]], want[[4, 5, 200]]) == 0, "redone sums")
    check(bool((got.isnan() == want.isnan()).all()), "NaN sums")
    for k in (1024, 8200):  # a sum that is subnormal before x's scale is undone
        x, w = random(300, k) * 2.0 ** 100, random(140, k)
        w[7] = 0
        w[7, 5] = 2.0 ** -149
        got, want = run(linear, [x, w], (300, 140)), run(linear, [x, w], (300, 140), strict=True)
        far = (got - want)[:, 7].abs() / x.abs().amax(1)  # what is flushed to 0: less than w's ULP
        check(bool((far <= 2.0 ** -149 / 16).all()), f"subnormal w, k = {k}")
    x = random(300, 1024)
    flat = random(700 * 1024 + 1)
    moved = flat[1:].view(700, 1024)  # TMA takes no such address: it is computed strictly
    got, want = run(linear, [x, moved], (300, 700)), run(linear, [x, moved], (300, 700), strict=True)
    if not by_mma:
        check(different(got, want) == 0, "misaligned w")
    w = random(700, 1024)
    x = random(300, 1024)
    for text, columns in ((linear, (700,)), (total, ())):
        whole = run(text, [x, w], (300, *columns))
        for first, last in ((0, 1), (5, 6), (127, 129), (100, 150), (40, 300), (299, 300)):
            some = run(text, [x[first:last].clone(), w], (last - first, *columns))
            check(different(some, whole[first:last]) == 0, f"{text}: rows {first}..{last} alone")
    print("rows   alone and in a batch: the same bits", flush=True)
    for m, n, k, text in ((128, 8192, 32768, total), (1024, 8192, 8192, linear),
                          (1000, 3000, 1028, linear)):
        x, w = random(m, k), random(n, k)
        out = torch.empty((m,) if text == total else (m, n), device="cuda")
        bound = ogive.plan(text, [x, w], [out])
        bound()
        first, other = out.clone(), 0
        for _ in range(60):
            out.fill_(7e7)
            bound()
            other += not torch.equal(out, first)
        print(f"rows   {m}x{n}x{k} {text}: {other} of 60 repeats differ", flush=True)
        check(other == 0, f"repeats {m}x{n}x{k}")


def part_errors():
    print(f"{'errors':29}{'Ogive':20}{'SGEMM':20}", flush=True)
    for m, n, k in ((128, 4096, 32768), (512, 4096, 8192), (512, 2048, 1024)):
        x, w = torch.empty(m, k, device="cuda"), torch.empty(n, k, device="cuda")
        for kind in ("uniform", "normal", "positive", "lognormal(3)", "rows 2^+-20", "columns 2^4",
                     "columns 2^8", "columns 2^12", "x outlier", "w outlier"):
            fill(kind, x, w)
            z, scale = product64(x, w)
            row = []
            for y in (run("linear(x, w)", [x, w], (m, n)), x @ w.t()):
                e = y.double() - z
                row += [(e.norm() / z.norm()).item(), (e.abs() / scale).max().item()]
            print(f"K = {k:5d} {kind:14}     {row[0]:.1e} {row[1]:.1e}     {row[2]:.1e} "
                  f"{row[3]:.1e}", flush=True)
            check(row[1] <= max(1.5 * row[3], strict_bound), f"K = {k} {kind}: {row}")


def part_halves():
    plain, total = "linear(x, w) + b", "sum(sigmoid(linear(x, w)), dim=1)"
    print("halves, sum |x||w| is 1: Ogive's error, torch's", flush=True)
    for dtype in (torch.float16, torch.bfloat16):
        for m, n, k in ((1, 128, 128), (130, 1000, 520), (257, 4100, 264), (512, 4096, 8192)):
            x, w = random(m, k).to(dtype), random(n, k).to(dtype)
            b = torch.zeros(n, device="cuda")
            z, scale = product64(x, w)
            y = run(plain, [x, w, b], (m, n))  # float32: the sum is not rounded
            e = ((y.double() - z).abs() / scale).max().item()
            peer = ((torch.nn.functional.linear(x, w).double() - z).abs() / scale).max().item()
            print(f"halves {m} x {n} x {k} {dtype}: {e:.1e} {peer:.1e}", flush=True)
            check(e < 2.0 ** -19, f"{dtype} {m}x{n}x{k}: {e}")
            want = z.sigmoid().sum(1)
            e = ((run(total, [x, w], (m,), dtype=dtype).double() - want).abs() / want).max().item()
            check(e < (5e-4 if dtype == torch.float16 else 4e-3), f"{total} {dtype}: {e}")
            alone = run(plain, [x[m // 2:m // 2 + 1].clone(), w, b], (1, n))
            check(different(alone, y[m // 2:m // 2 + 1]) == 0, f"{dtype} a row alone {m}x{n}x{k}")
            again = sum(different(run(plain, [x, w, b], (m, n)), y) for _ in range(20))
            check(again == 0, f"{dtype} repeats {m}x{n}x{k}")
            moved = torch.empty(n * k + 1, device="cuda", dtype=dtype)[1:].view(n, k).copy_(w)
            if by_mma:
                strict = y
            else:
                strict = run(plain, [x, w, b], (m, n), strict=True)
            check(different(run(plain, [x, moved, b], (m, n)), strict) == 0, f"misaligned {dtype}")
    x[0, 5], w[7, 9] = float("inf"), float("nan")
    y, want = run(plain, [x, w, b], (m, n)), torch.nn.functional.linear(x.float(), w.float())
    check(bool((y.isnan() == want.isnan()).all() and (y.isinf() == want.isinf()).all()), "NaN, inf")


# ---- layouts ---------------------------------------------------------------------------

def cover_cases(dtype):
    """(name, formula, inputs, float64's result, float64's sum of magnitudes, batched dims)"""
    def case(name, text, x, w, turn):
        x, w = x.to(dtype), w.to(dtype)  # keeps strides
        xd, wd = x.double(), w.double()
        wd = wd.transpose(-1, -2) if turn else wd
        return name, text, [x, w], xd @ wd, xd.abs() @ wd.abs()
    matmul, linear = "x @ w", "linear(x, w)"
    rm, cm = (0, 1), (1, 0)  # rows of neighbours, columns of neighbours
    out = [case(f"linear {m}x{n}x{k}", linear, random(m, k), random(n, k), True)
           for m, n, k in ((1, 16, 16), (3, 20, 24), (70, 64, 32), (257, 33, 100), (130, 1000, 520),
                           (257, 4100, 264), (1000, 200, 5000), (300, 777, 2053), (40, 300, 20008),
                           (600, 520, 1000), (100, 33000, 264), (300, 1000, 9000),
                           (2100, 3076, 1160), (200, 18000, 520))]  # more tiles than blocks
    for left in (rm, cm):
        for right in (rm, cm):
            for m, n, k in ((300, 520, 1032), (77, 136, 64), (129, 131, 133)):
                out.append(case(f"matmul {left}{right} {m}x{n}x{k}", matmul, lay_out(left, m, k),
                                lay_out(right, k, n), False))
    out += [case("batch", matmul, random(5, 70, 264), random(5, 264, 136), False),
            case("batch, odd", matmul, random(3, 70, 101), random(3, 101, 77), False),
            case("batch, one x", matmul, random(70, 264), random(5, 264, 136), False),
            case("batch, one w", matmul, random(5, 70, 264), random(264, 136), False),
            case("heads", matmul, lay_out((0, 2, 1, 3), 2, 3, 130, 64),
                 lay_out((0, 3, 1, 2), 2, 3, 64, 136), False),
            case("two dims of rows", linear, lay_out((1, 0, 2), 50, 3, 256), random(200, 256), True)]
    return out


def check_case(dtype, name, text, inputs, z, scale):
    shape = z.shape
    y = run(text, inputs, shape, dtype=dtype)
    rounding = {torch.float32: 0, torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}[dtype]
    over = ((y.double() - z).abs() - rounding * z.abs()).clamp(min=0) / scale
    e = over.max().item()
    check(e < 2.0 ** -19, f"{dtype} {name}: {e}")
    again = sum(different(run(text, inputs, shape, dtype=dtype), y) for _ in range(3))
    check(again == 0, f"{dtype} {name}: repeats differ")
    turned = run(text, inputs, shape[:-2] + (shape[-1], shape[-2]), dtype=dtype, turned=True)
    check(different(turned, y) == 0, f"{dtype} {name}: {different(turned, y)} differ in a "
          "transposed result")
    for rows in (slice(shape[-2] // 2, shape[-2] // 2 + 1), slice(3, 103)):
        x = inputs[0][..., rows, :]
        some = run(text, [x, inputs[1]], z[..., rows, :].shape, dtype=dtype)
        n = different(some, y[..., rows, :].contiguous())
        check(n == 0, f"{dtype} {name}: rows {rows.start}..{rows.stop} alone: {n} differ")
    return e


def batch_cases():
    """(name, x, w) of x @ w in batches of several dims, longer than what is summed at once."""
    m, n, k = 70, 200, 4600
    return [("x of two dims", random(2, 3, m, k), random(3, k, n)),
            ("w of two dims, one x", random(m, k), lay_out((1, 0, 2, 3), 2, 3, k, n)),
            ("each a dim", random(2, 1, m, k), random(1, 3, k, n)),
            ("a dim between", random(2, 3, 4, m, k), random(2, 1, 4, k, n)),
            ("transposed", lay_out((1, 0, 2, 3), 2, 3, m, k), lay_out((1, 0, 2, 3), 2, 3, k, n)),
            ("w transposed, (n, k)", random(2, 3, m, k), lay_out((1, 0, 3, 2), 2, 3, k, n)),
            ("heads", lay_out((0, 2, 1, 3), 2, 3, m, k), lay_out((0, 3, 1, 2), 2, 3, k, n)),
            ("heads, (k, n)", lay_out((0, 2, 1, 3), 2, 3, m, k), lay_out((0, 2, 1, 3), 2, 3, k, n)),
            ("copied w", random(2, 3, m, k), lay_out((1, 0, 2, 3), 2, 3, k, n + 3)),
            ("copied x", lay_out((1, 0, 3, 2), 2, 3, m, k), lay_out((1, 0, 2, 3), 2, 3, k, n)),
            ("expanded", random(2, 1, m, k).expand(2, 3, m, k),
             random(3, 1, k, n).transpose(0, 1).expand(2, 3, k, n)),
            ("a row each", random(2, 3, 1, k), lay_out((1, 0, 2, 3), 2, 3, k, n))]


def check_batch(dtype, name, x, w):
    """Has every product the bits that it has alone, as matrices of neighbouring rows?"""
    x, w = x.to(dtype), w.to(dtype)
    batch = torch.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    got = run("x @ w", [x, w], (*batch, x.shape[-2], w.shape[-1]), dtype=dtype)
    xs, ws = (t.expand(*batch, *t.shape[-2:]).flatten(0, -3).contiguous() for t in (x, w))
    z, scale = xs[0].double() @ ws[0].double(), xs[0].double().abs() @ ws[0].double().abs()
    together = run("x @ w", [xs, ws], (*xs.shape[:2], w.shape[-1]), dtype=dtype)
    if dtype == torch.float32:
        e = ((together[0].double() - z).abs() / scale).max().item()
        check(e < 2.0 ** -19, f"batch, {name}: {e}")
    n = different(together.view_as(got), got)
    check(n == 0, f"{dtype} batch, {name}: {n} of {got.numel()} differ from one batch dim's")
    for i in (0, len(xs) - 1):
        turned = ws[i].t().contiguous().t()
        for what, right in (("alone", ws[i]), ("w (n, k)", turned)):
            one = run("x @ w", [xs[i], right], together.shape[1:], dtype=dtype)
            n = different(one, together[i])
            check(n == 0, f"{dtype} batch, {name}: product {i} {what}: {n} differ")


def part_cover(dtypes=(torch.float32,)):
    for dtype in dtypes:
        cases = cover_cases(dtype)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:  # compiles
            worst = list(pool.map(lambda c: check_case(dtype, *c), cases))
            for c, e in zip(cases, worst):
                print(f"cover  {str(dtype)[6:]} {c[0]}: {e:.1e} of sum |x||w|", flush=True)
            batches = batch_cases()
            list(pool.map(lambda c: check_batch(dtype, *c), batches))
            print(f"cover  {str(dtype)[6:]} batches: {len(batches)} as one dim, and alone",
                  flush=True)


def part_half_cover():
    part_cover((torch.float16,))
    for dtype in (torch.float16, torch.bfloat16):
        for k in (128, 1024, 8192, 32768):
            x, w = torch.rand(128, k, device="cuda").to(dtype), torch.rand(512, k,
                                                                           device="cuda").to(dtype)
            z, scale = product64(x, w)
            e = (run("linear(x, w) + b", [x, w, torch.zeros(512, device="cuda")],
                     (128, 512)).double() - z) / scale
            print(f"cover  {str(dtype)[6:]} all positive, k = {k}: {e.min().item():.1e} .. "
                  f"{e.max().item():.1e}", flush=True)
            check(e.abs().max().item() < 2.0 ** -14, f"{dtype} positive {k}: {e.min().item()}")


def gated_cases(dtype):
    """(name, x, w, v): w and v are (n, k), or (k, n) transposed, or what they are copied for."""
    rm, cm = (0, 1), (1, 0)
    out = []
    for order in (rm, cm):
        for m, n, k in ((1, 16, 16), (16, 1000, 520), (300, 1000, 520), (77, 130, 72),
                        (129, 257, 100), (5, 66, 64), (200, 131, 264), (2100, 3076, 1160),
                        (65, 260, 9000), (1030, 8192, 264), (100, 17000, 72)):
            x, w, v = (lay_out(o, *s) for o, s in ((rm, (m, k)), (order, (n, k)), (order, (n, k))))
            w, v = w / k ** 0.5, v / k ** 0.5  # results that float16 has
            out.append((f"{m}x{n}x{k} {order}", x.to(dtype), w.to(dtype), v.to(dtype)))
    m, n, k = 300, 520, 1032
    x, w, v = random(m, k), random(n, k) / k ** 0.5, random(2 * n, k) / k ** 0.5
    x, w, v = x.to(dtype), w.to(dtype), v.to(dtype)
    moved = torch.empty(n * k + 1, device="cuda", dtype=dtype)[1:].view(n, k).copy_(w)
    return out + [("w and v of one tensor", x, v[:n], v[n:]), ("not alike", x, w, v[::2]),
                  ("x transposed", x.t().contiguous().t(), w, v[:n]), ("w moved", x, moved, v[:n]),
                  ("both moved", x, moved, moved)]


def check_gated(dtype, name, x, w, v):
    text, rounded = "silu(linear(x, w)) * linear(x, v)", str(dtype)[6:]
    shape, strict = (x.shape[0], w.shape[0]), "moved" in name
    y = run(text, [x, w, v], shape, dtype=dtype)
    total = run(f"sum({text}, dim=1)", [x, w, v], shape[:1], dtype=dtype)
    z = run("float32(linear(x, w))", [x, w], shape, strict)
    tail = "silu(z) * linear(x, v)"
    n = different(run(f"{rounded}({tail})", [z, x, v], shape, strict, dtype), y)
    check(n == 0, f"gated {dtype} {name}: {n} of {y.numel()} differ from one after the other")
    n = different(run(f"{rounded}(sum({tail}, dim=1))", [z, x, v], shape[:1], strict, dtype), total)
    check(n == 0, f"gated {dtype} {name}: {n} sums of {len(total)} differ")
    (z64, z_scale), (u64, u_scale) = product64(x, w), product64(x, v)
    want = torch.nn.functional.silu(z64) * u64
    # silu's slope is at most 1.1, and half a unit of the last place is lost in the end.
    bound = (1.1 * z_scale * u64.abs() + u_scale * z64.abs()) * 2.0 ** -19
    rounding = 2.0 ** (-11 if dtype == torch.float16 else -8) * want.abs() + 2.0 ** -24
    check(bool(((y.double() - want).abs() <= bound + rounding).all()), f"gated {dtype} {name}: error")
    again = sum(different(run(text, [x, w, v], shape, dtype=dtype), y) for _ in range(3))
    check(again == 0, f"gated {dtype} {name}: repeats differ")


def part_gated():
    for dtype in (torch.bfloat16, torch.float16):
        cases = gated_cases(dtype)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:  # compiles
            list(pool.map(lambda c: check_gated(dtype, *c), cases))
        print(f"gated  {str(dtype)[6:]}: {len(cases)} cases", flush=True)


def main():
    global ogive
    parts = {"shapes": part_shapes, "rows": part_rows, "errors": part_errors,
             "halves": part_halves, "cover": part_cover,
             "half_cover": part_half_cover, "gated": part_gated}
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*parts, []])
    parser.add_argument("--library", default=binding.root / "build/libogive.so")
    arguments = parser.parse_args()
    ogive = binding.Library(arguments.library)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "OGIVE_PRODUCT",
          os.environ.get("OGIVE_PRODUCT"), flush=True)
    for name in arguments.parts or parts:
        begin = time.time()
        parts[name]()
        print(f"{name}: {time.time() - begin:.1f} s", flush=True)
    print(f"{len(failures)} wrong" if failures else "all right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
