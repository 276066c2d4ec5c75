#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Float32 products on a GPU with inputs that are hard for pairs of float16: is each result within
what docs/accuracy.md promises? (`ogive check products` has the same inputs without PyTorch.)

    python tests/gpu/hard_products.py [--library build/libogive.so] [--random N] [PART...]

Parts (all by default):
    hard      inputs in which small elements are all of a sum, k = 64 to 32768: the greatest
              |e| / sum |x||w| in units of 2^-24, of Ogive and of torch's SGEMM (TF32 off); the
              share of sums that are computed again
    random    N inputs of random structure
    rows      rows alone, in other batches and layouts of w, and k in parts: the same bits
    special   NaN, infinities and overflow, where PyTorch has them
    tf32      precision=tf32: sums of rounded factors; rows alone and in batches

Ends with status 1 if anything is wrong. OGIVE_PRODUCT=mma takes mma.sync instead of wgmma.
--emitted FILE looks at what `ogive emit --pytorch 'linear(x, w)'` has written instead of the library.
"""
import argparse
import importlib.util
import os
import pathlib
import sys
import zlib

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import binding  # noqa: E402
from gpu_data import find_marked, round_tf32  # noqa: E402

by_mma = os.environ.get("OGIVE_PRODUCT") == "mma"
failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("WRONG:", what, flush=True)


def load(path):
    """The model of an emitted file."""
    spec = importlib.util.spec_from_file_location("emitted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew()


def run(x, w, text="linear(x, w)", precision=0):
    if model:
        return model(x, w)
    n = w.shape[-2] if text.startswith("linear") else w.shape[-1]
    out = torch.full((*x.shape[:-1], n), 7.0, device="cuda")
    ogive.plan(text, [x, w], [out], precision)()
    torch.cuda.synchronize()
    return out


def limit(k):
    """In units of 2^-24: of tensor cores, or of what is computed in the strict order."""
    chains = -(-k // 64) if by_mma else -(-min(k, 4096) // 64) + -(-k // 4096)
    tensor = 87 + chains
    strict = min(k, 256) + -(-min(k, 4096) // 256) + -(-k // 4096)
    return max(tensor, strict)


def measure(z, x, w):
    """The greatest error in units; how many results are further off than they may be, given what
    float32's range cannot hold and elements of w below 2^-133; the share of sums computed again."""
    want = x.double() @ w.double().mT
    scale = x.abs().double() @ w.abs().double().mT
    k = x.shape[-1]
    e = (z.double() - want).abs()
    unseen = k * (2.0 ** -149 + 2.0 ** -133 * x.abs().amax(-1, keepdim=True).double())
    fits = (want.float().isfinite()) & (scale < 2.0 ** 128)
    e = torch.where(fits, torch.where(e.isnan(), torch.inf, e), 0.0)
    units = torch.where(e <= k * 2.0 ** -149, 0.0, e / scale) * 2.0 ** 24
    beyond = (e > limit(k) * 2.0 ** -24 * scale + unseen).sum().item()
    return units.max().item(), beyond, find_marked(x, w, want).double().mean().item()


# ---- inputs ----------------------------------------------------------------------------------

class Maker:
    def __init__(self, seed, m, n, k):
        self.g = torch.Generator("cuda").manual_seed(seed)
        self.m, self.n, self.k = m, n, k

    def normal(self, *shape):
        return torch.randn(*shape, device="cuda", generator=self.g)

    def part(self, *shape):
        return torch.rand(*shape, device="cuda", generator=self.g)

    def integers(self, low, high, *shape):
        return torch.randint(low, high, shape, device="cuda", generator=self.g)

    def pick(self, choices):
        return choices[int(self.integers(0, len(choices), 1))]

    def both(self):
        return self.normal(self.m, self.k), self.normal(self.n, self.k)

    def wide(self, rows, bits):
        sign = self.integers(0, 2, rows, self.k) * 2 - 1
        return torch.exp2(-bits * self.part(rows, self.k)) * sign


def peaks(a, power, meets=0.0):
    x, w = a.both()
    w[:, 31::64] *= 2.0 ** power
    x[:, 31::64] *= meets
    return x, w


def peaks_in_odd_rows(a):
    x, w = peaks(a, 30, 1.0)
    x[1::2, 31::64] = 0
    return x, w


def one_block(a):
    x, w = a.both()
    w[:, 5] *= 2.0 ** 30
    x[:, 5] = 0
    x[:, 64:] = 0
    return x, w


def lone(a):
    x, w = a.both()
    keep = torch.zeros_like(x)
    at = a.integers(0, a.k, a.m)
    keep[torch.arange(a.m, device="cuda"), at] = 1
    w[:, at.unique()] *= 2.0 ** -31
    return x * keep, w


def graded(a):
    x, w = a.both()
    at = torch.arange(a.k, device="cuda") % 64
    x[:, at < 30] = 0
    return x, w * torch.exp2(-at.float())


def aligned(a, power):
    x, w = torch.ones(a.m, a.k, device="cuda"), torch.ones(a.n, a.k, device="cuda")
    size = int(2.0 ** (38 - power))
    w[:] = (a.integers(size, size * 5 // 4, a.n, a.k).double() + 0.375) * 2.0 ** -38
    w[:, 31::64], x[:, 31::64] = 1, 0
    return x, w


def subnormal(a):
    x, w = a.both()
    x, w = x * 2.0 ** 60, w * 2.0 ** -64 * 2.0 ** -64
    w[:, ::64], x[:, ::64] = 1, 0
    return x, w


def identity(a, by, least=-torch.inf):
    x = a.normal(a.m, a.k)
    x[x < least] = 0
    x[:, ::64] *= by
    return x, torch.eye(a.n, a.k, device="cuda")


def small_of_x(a):
    x, w = a.both()
    x[:, 1::64] *= 2.0 ** -30
    w[:, torch.arange(a.k, device="cuda") % 64 != 1] = 0
    return x, w


def exact(a):
    x, w = a.integers(1, 3, a.m, a.k).float(), a.normal(a.n, a.k)
    x[:, ::64], w[:, ::64] = 2.0 ** 37, 0
    x[:, 1::2] = 0
    return x, w


def peaks_of_both(a):
    x, w = peaks(a, 26)
    x[:, 7::512] *= 2.0 ** 16
    w[:, 7::512] = 0
    return x, w


def columns(a, bits, x_follows=True):
    x, w = a.both()
    e = a.integers(-bits, bits + 1, a.k).float()
    return x * (torch.exp2(-e) if x_follows else (e <= 2).float()), w * torch.exp2(e)


def sparse(a, bits, density):
    x, w = a.wide(a.m, bits), a.wide(a.n, bits)
    return (x * (a.part(a.m, a.k) < density), w * (a.part(a.n, a.k) < density))


def dust(a):
    x, w = torch.full((a.m, a.k), 0.99 * 2.0 ** -25, device="cuda"), torch.ones(a.n, a.k, device="cuda")
    x[:, 5] = 1 + torch.arange(a.m, device="cuda") % 7 / 7
    return x, w * (1 + torch.arange(a.n, device="cuda") % 5 / 5)[:, None]


def dust_of_products(a):
    e = torch.exp2(a.integers(-12, 13, a.k).float())
    x, w = (1 + a.part(a.m, a.k)) * e, (1 + a.part(a.n, a.k)) / e
    x[:, 1:] *= 2.0 ** -24
    return x, w


def cancelling(a):
    x, w = a.both()
    x[:, 1::2], w[:, 1::2] = x[:, ::2], -w[:, ::2] * (1 + 2.0 ** -18)
    w[:, :2] *= 2.0 ** 12
    return x, w


def limits(a):
    x, w = a.both()
    x[::2] *= 2.0 ** -90
    x[1::2] *= 2.0 ** 60
    w[::2] *= 2.0 ** 60
    w[1::2] *= 2.0 ** -110
    return x, w


def softmax(a, spread):
    return (a.normal(a.m, a.k) * spread).softmax(1), a.normal(a.n, a.k)


def some_wide(a):
    """Every third row is a softmax's."""
    x, w = a.both()
    x[::3] = (x[::3] * 6).softmax(1)
    return x, w


def lognormal(a, sigma):
    (x, w), (u, v) = a.both(), a.both()
    return x * (u * sigma).exp(), w * (v * sigma).exp()


hard = {f"w peaks 2^{p}, x 0": lambda a, p=p: peaks(a, p)
        for p in (16, 17, 18, 19, 20, 22, 24, 30, 45, 60)}
hard |= {f"w peaks 2^{p}, x 2^-{p}": lambda a, p=p: peaks(a, p, 2.0 ** -p) for p in (20, 24, 30, 50)}
hard |= {"w peaks 2^30, x 0 in odd rows": peaks_in_odd_rows, "w peaks 2^30 in one block": one_block,
         "w small where x has its only one": lone, "w graded by 2^-(k % 64)": graded}
hard |= {f"w aligned losses, 2^-{p} of peaks": lambda a, p=p: aligned(a, p)
         for p in (16, 17, 18, 19, 22)}
hard |= {"w of bfloat16's, peaks 2^28": lambda a: [t.bfloat16().float() for t in peaks(a, 28)],
         "w subnormal beside 1": subnormal}
hard |= {f"x 1 in 64 is {e:g}, w identity": lambda a, e=e: identity(a, e)
         for e in (1e-6, 1e-8, 1e-11, 1e-14, 1e-30)}
hard |= {"x small, others meet zeros of w": small_of_x, "x float16's subnormals, exactly": exact,
         "x and w, peaks meet zeros": peaks_of_both}
hard |= {f"columns 2^+-{c}": lambda a, c=c: columns(a, c) for c in (8, 12, 20, 40)}
hard |= {"columns 2^+-12 of w, x 0 at peaks": lambda a: columns(a, 12, False)}
hard |= {f"log-uniform 2^{b}, {d} nonzero": lambda a, b=b, d=d: sparse(a, b, d)
         for b, d in ((30, 0.3), (60, 0.1), (60, 0.05))}
hard |= {"dust of 2^-25 beside one product": dust, "dust of 2^-24, columns 2^+-12": dust_of_products,
         "great sums cancel": cancelling, "the ends of the range": limits, "normal": Maker.both,
         "x softmax of 6 normal": lambda a: softmax(a, 6), "x softmax in every third row": some_wide,
         "lognormal(3)": lambda a: lognormal(a, 3),
         "x after ReLU, w identity": lambda a: identity(a, 1, 0)}


random_k = 64, 65, 96, 128, 200, 256


class Cases:
    """Random choices for `count` inputs at once, each its own: (count, 1, 1) unless a shape is given."""
    def __init__(self, seed, count):
        self.g = torch.Generator("cuda").manual_seed(seed)
        self.count = count

    def part(self, *shape):
        return torch.rand(self.count, *(shape or (1, 1)), device="cuda", generator=self.g)

    def normal(self, *shape):
        return torch.randn(self.count, *shape, device="cuda", generator=self.g)

    def pick(self, choices):
        numbers = torch.tensor(choices, dtype=torch.float32, device="cuda")
        return numbers[(self.part() * len(choices)).long()]

    def factor(self, rows, k):
        """Exponents by k, by row, by element; zeros, numbers that halves hold."""
        f = torch.where(self.pick([0, 1, 1]) > 0, self.normal(rows, k), self.part(rows, k) + 0.5)
        kind = self.pick([0, 0, 1, 2])
        f = torch.where(kind == 1, f.bfloat16().float(), torch.where(kind == 2, (f * 8).round(), f))
        span = self.pick([0, 4, 16, 17, 18, 19, 20, 24, 28, 29, 30, 40, 60])
        by = self.pick([0, 1, 2, 3])
        u = torch.where(by == 0, self.part(1, k),
                        torch.where(by == 1, self.part(rows, 1), self.part(rows, k)))
        f = f * torch.exp2(-torch.where(by == 3, span * (u < 0.5), (u * (span + 1)).floor()))
        return f * (self.part(rows, k) >= self.pick([0, 0, 0.1, 0.5, 0.9]))

    def add_peaks(self, u, v):
        """Where u is great, v is often small or 0."""
        rows = torch.arange(v.shape[1], device="cuda")[:, None]
        at = self.part(1, u.shape[2]) < self.pick([0, 1]) * self.pick([1 / 64, 1 / 16, 0.5])
        meets, small = self.pick([0, 1, 2]), torch.exp2(-self.pick(range(10, 45)))
        v = v * torch.where(at & ((meets < 2) | (rows % 2 == 0)), small * (meets == 1), 1.0)
        return u * torch.where(at, torch.exp2(self.pick(range(10, 45))), 1.0), v

    def scale_rows(self, f):
        e = (self.part(f.shape[1], 1) * 100).floor() - 60
        return f * torch.exp2(e * self.pick([0, 0, 1]))

    def make(self, m, n, k):
        x, w = self.factor(m, k), self.factor(n, k)
        x, w = self.add_peaks(x, w)
        w, x = self.add_peaks(w, x)
        return self.scale_rows(x), self.scale_rows(w)


# ---- parts -------------------------------------------------------------------------------------

def part_hard(args):
    print("| data | " + " | ".join(f"k = {k}" for k in args.k) + " |")
    print("|---" * (len(args.k) + 1) + "|")
    for name, make in hard.items():
        cells = []
        for k in args.k:
            x, w = make(Maker(zlib.crc32(f"{name} {k}".encode()), 48, 192, k))
            x, w = x.contiguous(), w.contiguous()
            e, beyond, again = measure(run(x, w), x, w)
            cells.append(f"{e:.3g} ({measure(x @ w.mT, x, w)[0]:.3g}) {again:.2g}")
            check(not beyond, f"{name}, k = {k}: {e} units, at most {limit(k)}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def part_random(args):
    """A launch has 500 inputs, as a batch."""
    worst, peer, again, wrong, done = 0.0, 0.0, 0.0, 0, 0
    while done < args.random:
        count, k = min(500, args.random - done), random_k[done // 500 % len(random_k)]
        x, w = Cases(done, count).make(32, 128, k)
        e, beyond, share = measure(run(x, w.mT, "x @ w"), x, w)
        check(not beyond, f"random {done} to {done + count}: {e} units, at most {limit(k)}")
        worst, wrong, again = max(worst, e), wrong + beyond, again + share * count
        peer = max(peer, measure(x @ w.mT, x, w)[0])
        done += count
    print(f"{done} of random structure: {wrong} results beyond the promise; greatest {worst:.3g} units "
          f"(SGEMM {peer:.3g}); {again / done:.3g} of all sums computed again", flush=True)


def part_rows(args):
    for name in ("normal", "w peaks 2^18, x 0", "columns 2^+-12 of w, x 0 at peaks", "lognormal(3)",
                 "x softmax of 6 normal", "x softmax in every third row",
                 "log-uniform 2^30, 0.3 nonzero", "x 1 in 64 is 1e-08, w identity"):
        for n, k in ((256, 320), (130, 4168), (192, 20480)):
            x, w = hard[name](Maker(zlib.crc32(f"{name} {k}".encode()), 300, n, k))
            x, w = x.contiguous(), w.contiguous()
            z = run(x, w)
            for rows in slice(0, 1), slice(7, 9), slice(100, 233):
                check(torch.equal(run(x[rows].contiguous(), w), z[rows]), f"{name}: rows {rows}")
            check(torch.equal(run(x, w), z), f"{name}: again")
            if k % 4 == 0 and n % 4 == 0:
                check(torch.equal(run(x, w.mT.contiguous(), "x @ w"), z), f"{name}: w (k, n)")
            stack = run(torch.stack([x, x.flip(0)]), torch.stack([w, w]).mT.contiguous(), "x @ w")
            check(torch.equal(stack[0], z) and torch.equal(stack[1], z.flip(0)), f"{name}: batch")
    print("rows: done", flush=True)


def part_special(args):
    for k in 128, 4160:
        x, w = Maker(k, 70, 150, k).both()
        x[3, 5], x[4, 6], x[5, 7], x[6] = torch.nan, torch.inf, 3e38, 0
        w[9, 1], w[10, 2], w[11, 3], w[12], w[13, 9] = torch.nan, -torch.inf, 3e38, 0, 1e-42
        x[7], w[14] = x[7] * 1e-36, w[14] * 1e-36
        z, t = run(x, w), x @ w.mT
        check(torch.equal(z.isnan(), t.isnan()), f"NaN where PyTorch has it, k = {k}")
        check(torch.equal(z.isinf(), t.isinf()), f"infinities where PyTorch has them, k = {k}")
        check(bool((z[z.isinf()] == t[t.isinf()]).all()), f"their signs, k = {k}")
    print("special: done", flush=True)


def part_tf32(args):
    worst = 0.0
    for m, n, k in ((1, 128, 128), (300, 256, 320), (130, 1000, 4168), (128, 8192, 32768), (1024, 1024, 1024)):
        x, w = Maker(k, m, n, k).both()
        z, (a, b) = run(x, w, precision=2), (round_tf32(t).double() for t in (x, w))
        scale = a.abs() @ b.abs().mT
        e = ((z - a @ b.mT).abs() / scale).max().item() * 2 ** 24
        plain = ((z - x.double() @ w.double().mT).abs() / scale).max().item() * 2 ** 24
        across = run(x, w.mT.contiguous(), "x @ w", precision=2)
        other = ((across - a @ b.mT).abs() / scale).max().item() * 2 ** 24
        check(max(e, other) < 100, f"tf32 {m} x {n} x {k}: {e}, {other} units from rounded factors'")
        worst = max(worst, e, other)
        rows = slice(m // 2, m // 2 + 3)
        check(torch.equal(run(x[rows].contiguous(), w, precision=2), z[rows]), f"tf32: rows of {m}")
        stack = run(torch.stack([x, x.flip(0)]), torch.stack([w, w]).mT, "x @ w", precision=2)
        check(torch.equal(stack[0], z) and torch.equal(stack[1], z.flip(0)), f"tf32: batch of {m}")
        print(f"tf32 {m} x {n} x {k}: {e:.3g} units from rounded factors' sum, {plain:.4g} from float32's")
    x, w = Maker(1, 70, 150, 128).both()
    x[3, 5], x[4, 6], w[9, 1], w[10, 2] = torch.nan, torch.inf, torch.nan, -torch.inf
    z, t = run(x, w, precision=2), x @ w.mT
    check(torch.equal(z.isnan(), t.isnan()) and torch.equal(z.isinf(), t.isinf()), "tf32: special values")


def main():
    global ogive, model
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=str(binding.root / "build" / "libogive.so"))
    parser.add_argument("--random", type=int, default=1000)
    parser.add_argument("--emitted", help="a file to look at instead")
    parser.add_argument("--k", type=int, nargs="*", default=[64, 128, 320, 1024, 8192, 32768])
    parser.add_argument("parts", nargs="*", default=[])
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    model = load(args.emitted) if args.emitted else None
    ogive = None if model else binding.Library(args.library)
    for part in args.parts or (("hard",) if model else ("hard", "random", "rows", "special", "tf32")):
        globals()[f"part_{part}"](args)
    print(f"{len(failures)} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
