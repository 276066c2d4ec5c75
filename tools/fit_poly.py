#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fit the polynomials of src/math/scalar_f32.h.

    tools/fit_poly.py            list the fits
    tools/fit_poly.py NAME ...   print coefficients and the error reached

A fit approximates f on [lo, hi] by sum c[i] x^(step i) and minimises
max |w (p - f)| (Remez exchange in 60 digits).  The weight w turns the error
of the polynomial into the error of the function built on it, relative to that
function's value, so the printed error is what the function sees.  The
coefficients are then rounded to the working precision, all at once or lowest
first with the rest fitted again, and moved by single ulps, alone and in
pairs, as long as that lowers the error.
Needs mpmath.
"""
import sys
from mpmath import mp, mpf, exp, log, log1p, expm1, erf, erfc, sqrt, pi, tanh
from mpmath import matrix, lu_solve, floor, frexp, ldexp, sin, cos, atan

mp.dps = 60


def round_to(value, bits):
    """Nearest number with `bits` significant bits."""
    if value == 0:
        return mpf(0)
    mantissa, exponent = frexp(value)
    scaled = ldexp(mantissa, bits)
    return ldexp(floor(scaled + mpf(1) / 2), exponent - bits)


def remez(f, w, powers, lo, hi, rounds=30, grid_size=600):
    """Coefficients of the best weighted approximation in span{x^p}."""
    n = len(powers)
    if n == 0:
        return [], max(abs(w(x) * f(x)) for x in
                       [lo + (hi - lo) * i / mpf(200) for i in range(1, 200)])
    grid = [(lo + hi) / 2 - (hi - lo) / 2 * cos(pi * (i + mpf(1) / 2) / grid_size)
            for i in range(grid_size)]
    fv = [f(x) for x in grid]
    wv = [abs(w(x)) for x in grid]
    nodes = [int(round((grid_size - 1) * j / n)) for j in range(n + 1)]
    coefficients = None
    for _ in range(rounds):
        a = matrix(n + 1, n + 1)
        b = matrix(n + 1, 1)
        for row, g in enumerate(nodes):
            for col, p in enumerate(powers):
                a[row, col] = wv[g] * grid[g] ** p
            a[row, n] = (-1) ** row
            b[row] = wv[g] * fv[g]
        solution = lu_solve(a, b)
        coefficients = [solution[i] for i in range(n)]
        level = abs(solution[n])
        error = [wv[g] * (sum(c * grid[g] ** p for c, p in zip(coefficients, powers))
                          - fv[g]) for g in range(grid_size)]
        # One extremum per run of equal sign, then the n + 1 best in sequence.
        peaks = []
        for g in range(grid_size):
            if peaks and (error[g] >= 0) == (error[peaks[-1]] >= 0):
                if abs(error[g]) > abs(error[peaks[-1]]):
                    peaks[-1] = g
            else:
                peaks.append(g)
        while len(peaks) > n + 1:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if len(peaks) < n + 1:
            break
        nodes = peaks
        worst = max(abs(e) for e in error)
        if worst <= level * mpf('1.0001'):
            break
    return coefficients, max(abs(e) for e in error)


def polish(f, w, lo, hi, coefficients, powers, bits):
    """Move rounded coefficients by single ulps, alone and in pairs, while that helps."""
    count = 400
    grid = [float((lo + hi) / 2 - (hi - lo) / 2 * cos(pi * i / count))
            for i in range(count + 1)]
    grid = [x for x in grid if x != 0]
    target = [mpf(f(mpf(x))) for x in grid]
    weight = [float(abs(w(mpf(x)))) for x in grid]
    base = [float(weight[g] * (sum(c * mpf(x) ** p for c, p in zip(coefficients, powers))
                               - target[g])) for g, x in enumerate(grid)]
    ulps = [float(ldexp(mpf(1), frexp(c)[1] - bits)) if c else 0.0 for c in coefficients]
    unit = [[u * weight[g] * x ** p for g, x in enumerate(grid)] for u, p in zip(ulps, powers)]
    steps = [0] * len(coefficients)
    worst = max(abs(e) for e in base)
    singles = [((i, d),) for i in range(len(unit)) for d in (-1, 1, -2, 2)]
    pairs = [((i, d), (j, e)) for i in range(len(unit)) for j in range(i)
             for d in (-1, 1) for e in (-2, -1, 1, 2)]
    improved = True
    while improved:
        improved = False
        for move in singles + pairs:
            trial = base
            for i, d in move:
                trial = [e + d * v for e, v in zip(trial, unit[i])]
            level = max(abs(e) for e in trial)
            if level < worst * 0.999:
                base, worst, improved = trial, level, True
                for i, d in move:
                    steps[i] += d
    return [c + n * mpf(u) for c, n, u in zip(coefficients, steps, ulps)], worst


def fit(f, w, lo, hi, powers, bits):
    """The best approximation with coefficients of `bits` bits, nearly."""
    free, _ = remez(f, w, powers, lo, hi)
    at_once = [round_to(c, bits) for c in free]
    one_by_one = []
    while len(one_by_one) < len(powers):
        def rest(x):
            return f(x) - sum(c * x ** p for c, p in zip(one_by_one, powers))
        c, _ = remez(rest, w, powers[len(one_by_one):], lo, hi)
        one_by_one.append(round_to(c[0], bits))
    return min((polish(f, w, lo, hi, start, powers, bits) for start in (at_once, one_by_one)),
               key=lambda result: result[1])


def hexf(c, bits):
    """C literal of an exactly representable coefficient."""
    digits = 6 if bits <= 24 else 13
    sign = '-' if c < 0 else ''
    mantissa, exponent = frexp(abs(c))
    if mantissa == 0:
        return '0.0f' if bits <= 24 else '0.0'
    whole = int(ldexp(mantissa, 1 + 4 * digits))
    text = '%s0x1.%0*xp%+d' % (sign, digits, whole - (1 << (4 * digits)), exponent - 1)
    return text + ('f' if bits <= 24 else '')


HALF_LN2 = log(2) / 2
C0 = 2 * sqrt(2 / pi)


def erfcx_half(a):
    """exp(a^2/2) * erfc(a/sqrt 2) / 2."""
    return exp(a * a / 2) * erfc(a / sqrt(mpf(2))) / 2


def tail_a(t):
    """a of the variable t of gelu_tail."""
    return mpf('8.75') / (mpf('1.5') - t) - mpf('3.5')


# name: (description, f, weight, lo, hi, powers, bits)
FITS = {
    'exp': ('q in e^r = 1 + r + r^2 q(r)',
            lambda r: (exp(r) - 1 - r) / r ** 2, lambda r: r ** 2 / exp(r),
            -HALF_LN2 * mpf('1.01'), HALF_LN2 * mpf('1.01'), range(5), 24),
    'exp5': ('the same, degree 5, where nothing is to be seen of it',
             lambda r: (exp(r) - 1 - r) / r ** 2, lambda r: r ** 2 / exp(r),
             -HALF_LN2 * mpf('1.01'), HALF_LN2 * mpf('1.01'), range(6), 24),
    'log': ('p in log(1 + f) = f + f^2 p(f)',
            lambda f: (log1p(f) - f) / f ** 2, lambda f: f ** 2 / log1p(f),
            sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, range(9), 24),
    'softplus': ('p in log(1 + y) = y p(y), whose first coefficient is 1',
                 lambda y: log1p(y) / y, lambda y: y / log1p(y), 0, 1, range(10), 24),
    'log_base': ('p in log(1 + f) = f - f^2/2 + f^3 p(f)',
                 lambda f: (log1p(f) - f + f ** 2 / 2) / f ** 3, lambda f: f ** 3 / log1p(f),
                 sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, range(9), 24),
    'exp2': ('p in 2^r = 1 + r p(r)',
             lambda r: (exp(r * log(2)) - 1) / r, lambda r: r / exp(r * log(2)),
             mpf('-0.5001'), mpf('0.5001'), range(7), 24),
    'sin': ('p in sin(r) = r + r^3 p(u), u = r^2',
            lambda u: (sin(sqrt(u)) / sqrt(u) - 1) / u, lambda u: u * sqrt(u) / sin(sqrt(u)),
            0, (pi / 4 * mpf('1.001')) ** 2, range(4), 24),
    'cos': ('p in cos(r) = 1 - u/2 + u^2 p(u), u = r^2',
            lambda u: (cos(sqrt(u)) - 1 + u / 2) / u ** 2, lambda u: u ** 2 / cos(sqrt(u)),
            0, (pi / 4 * mpf('1.001')) ** 2, range(3), 24),
    'atan': ('p in atan(t) = t + t^3 p(u), u = t^2',
             lambda u: (atan(sqrt(u)) / sqrt(u) - 1) / u, lambda u: u * sqrt(u) / atan(sqrt(u)),
             0, (sqrt(mpf(2)) - 1) ** 2 * mpf('1.001'), range(5), 24),
    'erf_small': ('p in erf(x) = x + x p(x^2), as a function of u = x^2',
                  lambda u: erf(sqrt(u)) / sqrt(u) - 1,
                  lambda u: sqrt(u) / erf(sqrt(u)), 0, 1, range(7), 24),
    'erf_large': ('p in erfc(a) = exp(-a p(a)), weighted by erfc/erf',
                  lambda a: -log(erfc(a)) / a, lambda a: a * erfc(a) / erf(a),
                  mpf(1), mpf('4.0'), range(8), 24),
    'gelu_tail': ('P in erfcx(a/sqrt 2)/2 = u P(t), u = 1/(a + 3.5), t = 1.5 - 8.75 u = 2.5 a u - 1',
                  lambda t: erfcx_half(tail_a(t)) * (tail_a(t) + mpf('3.5')),
                  lambda t: 1 / erfcx_half(tail_a(t)) / (tail_a(t) + mpf('3.5')),
                  mpf('-1'), mpf('1.014'), range(10), 24),
    'tanhshrink': ('p in x - tanh(x) = x^3 (1/3 + u p(u)), u = x^2',
                   lambda u: ((sqrt(u) - tanh(sqrt(u))) / u ** mpf('1.5') - mpf(1) / 3) / u,
                   lambda u: u ** mpf('2.5') / (sqrt(u) - tanh(sqrt(u))),
                   0, mpf('1.1') ** 2, range(8), 24),
    'pow_log2': ('p in log2((1+t)/(1-t)) = t p(t^2), as a function of u = t^2',
                 lambda u: log((1 + sqrt(u)) / (1 - sqrt(u))) / log(2) / sqrt(u),
                 lambda u: 1 / (log((1 + sqrt(u)) / (1 - sqrt(u))) / log(2) / sqrt(u)),
                 0, (3 - 2 * sqrt(mpf(2))) ** 2 * mpf('1.001'), range(8), 53),
    'pow_exp2': ('p in 2^r = 1 + r p(r)',
                 lambda r: (exp(r * log(2)) - 1) / r, lambda r: r / exp(r * log(2)),
                 mpf('-0.5001'), mpf('0.5001'), range(10), 53),
}


def main(names):
    if not names:
        for name, row in FITS.items():
            print('%-12s %s' % (name, row[0]))
        return 0
    for name in names:
        if name not in FITS:
            print('no fit called %s' % name, file=sys.stderr)
            return 1
        text, f, w, lo, hi, powers, bits = FITS[name]
        lo, hi = mpf(lo), mpf(hi)
        # Closed forms are 0/0 at 0: step over it, 60 digits leave room.
        if lo == 0:
            lo = mpf('1e-9')
        c, worst = fit(f, w, lo, hi, list(powers), bits)
        print('%s: %s\n  range [%s, %s], degree %d, max error 2^%.1f' %
              (name, text, mp.nstr(lo, 6), mp.nstr(hi, 6), len(c) - 1,
               float(log(worst) / log(2))))
        for i, value in enumerate(c):
            print('  %2d  %s' % (i, hexf(value, bits)))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
