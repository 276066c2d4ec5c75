#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The error of float32 products on a GPU, by distribution and k, beside SGEMM's.

    python bench/gpu_errors.py [--library build/libogive.so] [--record FILE]

Prints Markdown: two tables, of |e| / sum |x||w| and of |e| / (||x_i|| ||w_j||), where e is the
error of element (i, j) of linear(x, w) against float64; greatest and root mean square over all
elements, in units of 2^-24. Columns: Ogive by wgmma (Hopper's own kernel), by mma.sync,
strict, with precision=tf32; torch's SGEMM (TF32 off), and TF32x3: three of torch's TF32 products of
x = hi + lo, the small ones first. A star: the greatest error is greater than SGEMM's.

mma.sync takes k from 128 on; below, its column is the strict kernel's.
"""
import argparse
import json
import os
import pathlib
import sys

import torch

import binding
from gpu_data import different, fill, product64, round_tf32

rows, columns = 256, 1024
ks = 64, 256, 1024, 8192, 32768
kinds = ("uniform", "normal", "positive", "lognormal(3)", "rows 2^+-20", "columns 2^4",
         "columns 2^8", "columns 2^12", "x outlier", "w outlier")
ways = {"wgmma": ("sm90", 0), "mma.sync": ("mma", 0), "strict": ("cores", 1), "tf32": ("sm90", 2)}


def multiply_by_tf32(x, w):
    """x w^T as three TF32 products."""
    both = [(t := round_tf32(f), round_tf32(f - t)) for f in (x, w)]
    (x_hi, x_lo), (w_hi, w_lo) = both
    torch.backends.cuda.matmul.allow_tf32 = True
    y = x_lo @ w_hi.t()
    y = torch.addmm(y, x_hi, w_lo.t())
    y = torch.addmm(y, x_hi, w_hi.t())
    torch.backends.cuda.matmul.allow_tf32 = False
    return y


def products(x, w):
    """linear(x, w) by each way."""
    for way, (forced, precision) in ways.items():
        os.environ["OGIVE_PRODUCT"] = forced
        out = torch.full((len(x), len(w)), float("nan"), device="cuda")
        ogive.plan("linear(x, w)", [x, w], [out], precision)()
        torch.cuda.synchronize()
        yield way, out
    yield "SGEMM", x @ w.t()
    yield "TF32x3", multiply_by_tf32(x, w)


def measure(kind, k):
    x = torch.empty(rows, k, device="cuda")
    w = torch.empty(columns, k, device="cuda")
    fill(kind, x, w)
    exact, sums = product64(x, w)
    norms = x.double().norm(dim=1)[:, None] * w.double().norm(dim=1)
    row = {"kind": kind, "k": k}
    results = dict(products(x, w))
    row["differ"] = different(results["wgmma"], results["mma.sync"])
    for way, y in results.items():
        e = (y.double() - exact).abs()
        row[way] = {}
        for name, scale in (("sums", sums), ("norms", norms)):
            most, mean = (e / scale).max().item(), (e / scale).square().mean().sqrt().item()
            row[way][name] = [float(f"{number * 2 ** 24:.4g}") for number in (most, mean)]
    return row


def print_table(measured, name, title):
    names = [*ways, "SGEMM", "TF32x3"]
    print(f"\n{title}:\n\n| data | k | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    for row in measured:
        cells = []
        for way in names:
            most, mean = row[way][name]
            star = "*" if way != "tf32" and most > row["SGEMM"][name][0] else ""
            cells.append(f"{most:.3g}{star} / {mean:.2g}")
        print(f"| {row['kind']} | {row['k']} | {' | '.join(cells)} |")


def main():
    global ogive
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=binding.root / "build/libogive.so")
    parser.add_argument("--record", type=pathlib.Path, help="write the numbers there, as JSON")
    arguments = parser.parse_args()
    ogive = binding.Library(arguments.library)
    torch.backends.cuda.matmul.allow_tf32 = False
    measured = [measure(kind, k) for kind in kinds for k in ks]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, m = {rows}, n = {columns}; "
          "greatest / root mean square, in units of 2^-24")
    print_table(measured, "sums", "|e| / sum \\|x\\|\\|w\\|")
    print_table(measured, "norms", "|e| / (norm x_i * norm w_j)")
    for way in ways:
        ratios = [row[way]["sums"][0] / row["SGEMM"]["sums"][0] for row in measured]
        print(f"\n{way}: greater than SGEMM's in {sum(r > 1 for r in ratios)} of {len(ratios)}, "
              f"at most {max(ratios):.2f} times", end="")
    differ = sum(row["differ"] for row in measured)
    print(f"\n\nwgmma and mma.sync differ in {differ} of {len(measured) * rows * columns} results")
    if arguments.record:
        head = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows,
                "columns": columns, "unit": "2^-24", "each": "greatest, root mean square"}
        lines = ",\n  ".join(map(json.dumps, measured))
        arguments.record.write_text(f'{json.dumps(head)[:-1]},\n "measured": [\n  {lines}]}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
