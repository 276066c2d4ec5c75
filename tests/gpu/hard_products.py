#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Float32 products on a GPU with inputs that are hard for pairs of float16: is each result within
what docs/accuracy.md promises? (`ogive check products` has the same inputs without PyTorch.)

    python tests/gpu/hard_products.py [--library build/libogive.so] [--random N] [PART...]

Parts (all by default):
    hard      inputs in which small elements are all of a sum, k = 64 to 32768: the greatest
              |e| / sum |x||w| in units of 2^-24, of Ogive and of torch's SGEMM (TF32 off)
    random    N inputs of random structure
    rows      rows alone, in other batches and layouts of w, and k in parts: the same bits
    special   NaN, infinities and overflow, where PyTorch has them

Ends with status 1 if anything is wrong. OGIVE_PRODUCT=mma takes mma.sync instead of wgmma.
"""
import argparse
import os
import pathlib
import sys
import zlib

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import binding  # noqa: E402

by_mma = os.environ.get("OGIVE_PRODUCT") == "mma"
failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("WRONG:", what, flush=True)


def run(x, w, text="linear(x, w)"):
    n = w.shape[-2] if text.startswith("linear") else w.shape[-1]
    out = torch.full((*x.shape[:-1], n), 7.0, device="cuda")
    ogive.plan(text, [x, w], [out])()
    torch.cuda.synchronize()
    return out


def limit(k):
    """In units of 2^-24: of tensor cores, or of what is computed in the strict order."""
    chains = -(-k // 64) if by_mma else -(-min(k, 4096) // 64) + -(-k // 4096)
    tensor = 87 + chains
    strict = min(k, 256) + -(-min(k, 4096) // 256) + -(-k // 4096)
    return max(tensor, strict)


def measure(z, x, w):
    """The greatest error in units; and what is left after what float32's range cannot hold, and
    elements of w below 2^-133, may cost."""
    want = x.double() @ w.double().mT
    scale = x.abs().double() @ w.abs().double().mT
    k = x.shape[1]
    e = (z.double() - want).abs()
    unseen = k * (2.0 ** -149 + 2.0 ** -133 * x.abs().amax(1, keepdim=True).double())
    fits = (want.float().isfinite()) & (scale < 2.0 ** 128)
    e = torch.where(fits, torch.where(e.isnan(), torch.inf, e), 0.0)
    units = torch.where(e <= k * 2.0 ** -149, 0.0, e / scale) * 2.0 ** 24
    beyond = (e > limit(k) * 2.0 ** -24 * scale + unseen).any().item()
    return units.max().item(), beyond


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
         "x softmax of 6 normal": lambda a: softmax(a, 6), "lognormal(3)": lambda a: lognormal(a, 3),
         "x after ReLU, w identity": lambda a: identity(a, 1, 0)}


def at_random(seed, m=32, n=128):
    """Exponents by k, by row, by element; zeros, peaks, exact numbers; where one is great the other
    is often small or 0."""
    a = Maker(seed, m, n, 0)
    a.k = k = a.pick([64, 65, 96, 128, 200, 256])
    both = []
    for rows in m, n:
        f = a.normal(rows, k) if a.pick([0, 1, 1]) else a.part(rows, k) + 0.5
        f = a.pick([lambda t: t, lambda t: t, lambda t: t.bfloat16().float(), lambda t: (t * 8).round()])(f)
        span, by = a.pick([0, 4, 16, 17, 18, 19, 20, 24, 28, 29, 30, 40, 60]), a.pick([0, 1, 2, 3])
        shape = [(1, k), (rows, 1), (rows, k), (rows, k)][by]
        e = a.integers(0, span + 1, *shape) if by != 3 else span * a.integers(0, 2, *shape)
        f = f * torch.exp2(-e.float())
        f[a.part(rows, k) < a.pick([0, 0, 0.1, 0.5, 0.9])] = 0
        both.append(f)
    x, w = both
    for u, v in (x, w), (w, x):
        if a.pick([0, 1]):
            at = a.part(k) < a.pick([1 / 64, 1 / 16, 0.5])
            u[:, at] *= 2.0 ** a.pick(range(10, 45))
            meets, small = a.pick([0, 1, 2]), 2.0 ** -a.pick(range(10, 45))
            rows = slice(None, None, 2 if meets == 2 else 1)
            v[rows] = torch.where(at, v[rows] * (small if meets == 1 else 0), v[rows])
    if a.pick([0, 0, 1]):
        x = x * torch.exp2(a.integers(-60, 40, m, 1).float())
        w = w * torch.exp2(a.integers(-60, 40, n, 1).float())
    return x, w


# ---- parts -------------------------------------------------------------------------------------

def part_hard(args):
    print("| data | " + " | ".join(f"k = {k}" for k in args.k) + " |")
    print("|---" * (len(args.k) + 1) + "|")
    for name, make in hard.items():
        cells = []
        for k in args.k:
            x, w = make(Maker(zlib.crc32(f"{name} {k}".encode()), 48, 192, k))
            x, w = x.contiguous(), w.contiguous()
            e, beyond = measure(run(x, w), x, w)
            cells.append(f"{e:.3g} ({measure(x @ w.mT, x, w)[0]:.3g})")
            check(not beyond, f"{name}, k = {k}: {e} units, at most {limit(k)}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def part_random(args):
    worst = 0.0
    for seed in range(args.random):
        x, w = at_random(seed)
        e, beyond = measure(run(x, w), x, w)
        worst = max(worst, e)
        check(not beyond, f"random {seed}: {e} units, at most {limit(x.shape[1])}")
    print(f"{args.random} of random structure: {worst:.3g}", flush=True)


def part_rows(args):
    for name in ("normal", "w peaks 2^18, x 0", "columns 2^+-12 of w, x 0 at peaks", "lognormal(3)",
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


def main():
    global ogive
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=str(binding.root / "build" / "libogive.so"))
    parser.add_argument("--random", type=int, default=1000)
    parser.add_argument("--k", type=int, nargs="*", default=[64, 128, 320, 1024, 8192, 32768])
    parser.add_argument("parts", nargs="*", default=[])
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    ogive = binding.Library(args.library)
    for part in args.parts or ("hard", "random", "rows", "special"):
        globals()[f"part_{part}"](args)
    print(f"{len(failures)} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
