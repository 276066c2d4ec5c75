# SPDX-License-Identifier: MIT
"""The plot in README.md: how many times as fast as PyTorch, of a record of bench/gpu.py.

    python bench/plot.py [RECORD.json] [--out docs/speed.svg] [--check]

Without RECORD the newest of bench/results. Rows are chosen below, losses among them. --check
writes nothing and fails if the file is not what would be written.
"""

import argparse
import json
import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What the record calls it, dtype, shape; what the plot calls it.
ROWS = [
    ("linear", "float32", [8192, 8192, 8192], "linear(x, w, b)"),
    ("gated pair", "float32", [2048, 4096, 11008], "silu(linear(x, w)) * linear(x, v)"),
    ("linear_sigmoid_residual", "float32", [1024, 8192, 8192],
     "z = linear(x, w, b); z + 2.0 * sigmoid(z)"),
    ("linear_sigmoid_sum", "float32", [128, 32768, 32768], "sum(sigmoid(linear(x, w, b)), 1)"),
    ("sum over rows", "float32", [4194304, 64], "sum(x, 1)"),
    ("x * sigmoid(x) + y", "float32", [4096, 196608], "x * sigmoid(x) + y"),
    ("softmax", "bfloat16", [4096, 4096], "softmax(x, 1)"),
    ("softmax", "float32", [4096, 4096], "softmax(x, 1)"),
    ("layer_norm", "float32", [4096, 65536], "layer_norm(x, 65536)"),
    ("linear_sigmoid_residual", "bfloat16", [1024, 8192, 8192],
     "z = linear(x, w, b); z + 2.0 * sigmoid(z)"),
    ("sigmoid", "float32", [4096, 393216], "sigmoid(x)"),
    ("linear_sigmoid_sum", "bfloat16", [128, 32768, 32768], "sum(sigmoid(linear(x, w, b)), 1)"),
    ("gelu", "float32", [4096, 196608], "gelu(x)"),
]
LEFT, WIDTH, ROW, TOP, SCALE = 400, 830, 29, 64, 90  # pixels; SCALE: of "1 x"
OURS, THEIRS, INK, FAINT = "#0f766e", "#d97706", "#1f2937", "#9ca3af"
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace'"


def newest():
    return max((ROOT / "bench" / "results").glob("*-H200.json"), key=lambda path: path.name)


def find(record, work, dtype, shape):
    for row in record["rows"]:
        if (row["work"], row["dtype"], row["shape"], row["layout"]) == (
                work, dtype, shape, "contiguous"):
            return row
    raise SystemExit(f"error: the record has no {work} of {dtype}, {shape}")


def text(x, y, words, size=12, anchor="start", colour=INK, more=""):
    return (f"<text x='{x}' y='{y}' font-size='{size}' text-anchor='{anchor}' fill='{colour}' "
            f"{FONT}{more}>{escape(words)}</text>")


def draw_row(row, label, y):
    eager = row["peers"]["torch eager"]
    ratio = eager / row["ours_ms"]
    compiled = row["peers"].get("torch.compile")
    shape = " x ".join(str(size) for size in row["shape"])
    parts = [text(LEFT - 10, y + 11, label, 12, "end"),
             text(LEFT - 10, y + 22, f"{row['dtype']}, {shape}", 8.5, "end", FAINT),
             f"<rect x='{LEFT}' y='{y + 3}' width='{ratio * SCALE:.1f}' height='15' rx='2' "
             f"fill='{OURS}'/>"]
    if compiled:
        x = LEFT + eager / compiled * SCALE
        parts.append(f"<rect x='{x - 1.5:.1f}' y='{y}' width='3' height='21' fill='{THEIRS}'/>")
    parts.append(text(f"{LEFT + max(ratio, eager / (compiled or eager)) * SCALE + 7:.1f}", y + 15,
                      f"{ratio:.2f}", 12))
    return parts


def draw(record, name):
    rows = [(find(record, *key[:3]), key[3]) for key in ROWS]
    rows.sort(key=lambda row: row[0]["ours_ms"] / row[0]["peers"]["torch eager"])
    height = TOP + ROW * len(rows) + 34
    parts = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' "
             f"viewBox='0 0 {WIDTH} {height}'>",
             f"<rect width='{WIDTH}' height='{height}' rx='6' fill='#ffffff'/>",
             text(16, 24, f"Times as fast as PyTorch, {record['gpu']}", 15, more=" font-weight='bold'"),
             f"<rect x='{LEFT}' y='34' width='22' height='11' rx='2' fill='{OURS}'/>",
             text(LEFT + 28, 44, "Ogive", 11),
             f"<rect x='{LEFT + 90}' y='32' width='3' height='15' fill='{THEIRS}'/>",
             text(LEFT + 100, 44, "torch.compile", 11),
             text(LEFT + 215, 44, "1 = PyTorch, eager", 11, colour=FAINT)]
    bottom = TOP + ROW * len(rows)
    for times in range(5):
        x = LEFT + times * SCALE
        parts.append(f"<line x1='{x}' y1='{TOP - 8}' x2='{x}' y2='{bottom}' stroke='"
                     f"{INK if times == 1 else '#e5e7eb'}' stroke-width='1'/>")
        parts.append(text(x, bottom + 13, str(times), 10, "middle", FAINT))
    for i, (row, label) in enumerate(rows):
        parts += draw_row(row, label, TOP + ROW * i)
    versions = record["versions"]
    parts.append(text(16, height - 8, f"PyTorch {versions['torch']}, TF32 off, {record['date']}: "
                      f"bench/results/{name}", 9, colour=FAINT))
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", nargs="?", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "speed.svg")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path = options.record or newest()
    picture = draw(json.loads(path.read_text()), path.name)
    if not options.check:
        options.out.write_text(picture)
    elif options.out.read_text() != picture:
        sys.exit(f"error: {options.out} is not the plot of {path.name}: run bench/plot.py")


main()
