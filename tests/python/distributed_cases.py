# SPDX-License-Identifier: MIT
"""What test_distributed.py has several processes do at once. Each function here whose name
begins with case_ runs on every rank, with the mesh; those with a mesh of two dims take two."""

import datetime
import os
import random
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                               PrepareModuleOutput, RowwiseParallel,
                                               SequenceParallel, parallelize_module)
from torch.utils.checkpoint import checkpoint

import ogive
import ogive.torch as ot

R, S0, S1, S2, P = Replicate(), Shard(0), Shard(1), Shard(2), Partial()
GATED = "linear(silu(linear(x, w)) * linear(x, v), d)"
TAIL = "z = linear(x, w, b); z + 2.0 * sigmoid(z)"
ATTENTION = "softmax(q @ transpose(k, 1, 2) * 0.125, 2) @ v"


def tensors(**shapes):
    """Different numbers in every place, the same on every rank."""
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randn(shape, generator=generator) * (shape[-1] ** -.5 if name in "wvd" else 1)
            for name, shape in shapes.items()}


def place(mesh, values, placements):
    return {name: distribute_tensor(value, mesh, placements[name] if isinstance(
        placements[name], (list, tuple)) else [placements[name]] * mesh.ndim)
        for name, value in values.items()}


def moves(mode):
    return sum(mode.get_comm_counts().values())


def check(mesh, text, values, placements, want, *, moved=0, grads=None, tolerance=2e-5, bits=False):
    """text of DTensors against one process: values, the result's placement, the collectives that
    it took; gradients, and their placements, if given."""
    formula = ogive.compile(text)
    plain = {name: value.clone().requires_grad_() for name, value in values.items()}
    expected = formula(**plain)
    seed = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    wanted = torch.autograd.grad(expected, list(plain.values()), seed)
    placed = {name: value.requires_grad_()
              for name, value in place(mesh, values, placements).items()}
    with CommDebugMode() as mode:
        got = formula(**placed)
    want = want if isinstance(want, tuple) else (want,) * mesh.ndim
    assert got.placements == want, (text, got.placements, want)
    assert moves(mode) == moved, (text, mode.get_comm_counts())
    torch.testing.assert_close(got.full_tensor(), expected, rtol=tolerance, atol=tolerance)
    if bits:
        assert torch.equal(got.full_tensor(), expected), text
    seeds = distribute_tensor(seed, mesh, [R if isinstance(p, Partial) else p for p in got.placements])
    results = torch.autograd.grad(got, list(placed.values()), seeds)
    for name, result, value in zip(placed, results, wanted):
        torch.testing.assert_close(result.full_tensor(), value, rtol=5e-5, atol=5e-5,
                                   msg=lambda text, name=name: f"gradient by {name}: {text}")
    if grads is not None:
        found = tuple(result.placements[0] for result in results)
        assert found == grads, (text, found, grads)


# ---- one dim ------------------------------------------------------------------------


def case_pointwise(mesh):
    values = tensors(x=(16, 64), y=(64,))
    text = "x * sigmoid(x) + y"
    check(mesh, text, values, dict(x=S0, y=R), S0, grads=(S0, P), bits=True)
    check(mesh, text, values, dict(x=S1, y=S0), S1, grads=(S1, S0), bits=True)
    check(mesh, text, values, dict(x=S1, y=R), S1, grads=(S1, S0), bits=True)
    check(mesh, "x + y", tensors(x=(16, 64), y=(16, 64)), dict(x=S0, y=S1), S0, moved=mesh.ndim)


def case_linear(mesh):
    values = tensors(x=(16, 64), w=(96, 64), b=(96,))
    check(mesh, TAIL, values, dict(x=S0, w=R, b=R), S0, grads=(S0, P, P), bits=True)
    check(mesh, TAIL, values, dict(x=R, w=S0, b=S0), S1, grads=(P, S0, S0), bits=True)
    check(mesh, "linear(x, w, b)", values, dict(x=S1, w=S1, b=R), P, grads=(S1, S1, R))
    check(mesh, "sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", values,
          dict(x=R, w=S0, b=S0), P, grads=(P, S0, S0))
    values = tensors(r=(16, 96), x=(16, 64), w=(96, 64), b=(96,))
    check(mesh, "r + linear(x, w, b) * 0.5", values, dict(r=R, x=S1, w=S1, b=R), P)


def case_cuts(mesh):
    """Sums that something nonlinear needs: one reduction each."""
    values = tensors(x=(8, 64), w=(96, 64), b=(96,))
    check(mesh, TAIL, values, dict(x=S1, w=S1, b=R), R, moved=mesh.ndim, grads=(S1, S1, R))
    values = tensors(x=(16, 64), w=(96, 64), b=(96,))  # w's columns become rows: that is less
    check(mesh, TAIL, values, dict(x=R, w=S1, b=R), S1, moved=mesh.ndim)
    values = tensors(x=(16, 64))
    for text, sums in ("softmax(x, dim=1)", 2), ("log_softmax(x, dim=1)", 2), ("layer_norm(x, 64)", 3):
        check(mesh, text, values, dict(x=S1), S1, moved=sums * mesh.ndim, grads=(S1,))
    check(mesh, "softmax(x, dim=1)", values, dict(x=S0), S0, bits=True)
    values = tensors(x=(16, 64), w=(64,), b=(64,))
    check(mesh, "layer_norm(x, 64, w, b)", values, dict(x=S0, w=R, b=R), S0, grads=(S0, P, P),
          bits=True)
    check(mesh, "layer_norm(x, 64, w, b)", values, dict(x=S1, w=R, b=R), S1, moved=3 * mesh.ndim)
    check(mesh, "rms_norm(x, 64, w) + b", values, dict(x=S1, w=S0, b=S0), S1, moved=2 * mesh.ndim)


def case_scattered(mesh):
    """A sum that meets what is divided otherwise is divided as that is: one reduce-scatter forward,
    one gather of its gradient backward."""
    text = "r + gelu(linear(x, w))"
    values, placed = tensors(r=(16, 96), x=(16, 64), w=(96, 64)), dict(r=S0, x=S1, w=S1)
    check(mesh, text, values, placed, S0, moved=mesh.ndim)
    given = place(mesh, values, placed)
    with CommDebugMode() as mode:
        ogive.compile(text)(**given)
    counts = {str(name): count for name, count in mode.get_comm_counts().items() if count}
    assert mesh.ndim > 1 or all("reduce_scatter" in name for name in counts), counts
    values = tensors(r=(7, 96), x=(7, 64), w=(96, 64))  # parts of 4 and 3
    check(mesh, text, values, placed, S0, moved=mesh.ndim)


def case_inference(mesh):
    """What is above autograd is left out there, sums are cut all the same."""
    values = tensors(x=(8, 64), w=(96, 64), b=(96,))
    with torch.inference_mode():
        placed = place(mesh, values, dict(x=S1, w=S1, b=R))
        with CommDebugMode() as mode:
            got = ogive.compile(TAIL)(**placed)
        counts = {str(name): count for name, count in mode.get_comm_counts().items() if count}
        assert all("all_reduce" in name for name in counts) and counts, counts
        torch.testing.assert_close(got.full_tensor(), ogive.compile(TAIL)(**values), rtol=2e-5,
                                   atol=2e-5)


def case_explain(mesh):
    values = tensors(r=(16, 96), x=(16, 64), w=(96, 64), b=(96,))
    f = ogive.compile(TAIL)
    placed = {name: value.requires_grad_() for name, value in place(
        mesh, {name: values[name] for name in "xwb"}, dict(x=R, w=S0, b=S0)).items()}
    others = place(mesh, {name: values[name] for name in "rxw"}, dict(r=S0, x=S1, w=S1))
    with CommDebugMode() as mode:
        text = f.explain(**placed)
        cut = ogive.compile("r + gelu(linear(x, w))").explain(**others)
    assert moves(mode) == 0
    assert text.startswith(f"on {mesh.size()} processes") and "kernel 0: product" in text, text
    assert f"space (16, {96 // mesh.size()})" in text, text
    if mesh.ndim == 1:
        assert "stage 1" in cut and "reduced: cut0 (Partial(sum),), made (Shard(dim=0),)" in cut, cut


def case_quick(mesh):
    """What a call in a hurry leaves out is asked for where it matters."""
    f, x = ogive.compile("x * sigmoid(x), x + 1"), tensors(x=(16, 64))["x"]
    placed = distribute_tensor(x, mesh, [S0] * mesh.ndim)
    for _ in range(3):
        for got, want in zip(f(placed), f(x)):
            assert got.placements == placed.placements and torch.equal(got.full_tensor(), want)
    with torch.autocast("cpu", torch.bfloat16):
        product = ogive.compile("linear(x, x)")
        assert product(placed).dtype == product(x).dtype == torch.bfloat16
    asked = placed.detach().requires_grad_()
    assert f(asked)[0].requires_grad and not f(placed)[0].requires_grad
    with torch.no_grad():
        assert not f(asked)[0].requires_grad
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode():
        f(placed)
    assert any("ogive" in name for name in seen), seen


def case_means(mesh):
    """Counts are those of the whole."""
    values = tensors(x=(16, 64), y=(16, 64))
    check(mesh, "mean((x - y)**2)", values, dict(x=S0, y=S0), P, grads=(S0, S0))
    check(mesh, "mean(x * y, 1)", values, dict(x=S1, y=S1), P, grads=(S1, S1))
    check(mesh, "var(x, 1) + mean(y)", values, dict(x=S0, y=S0), (S0,) * mesh.ndim,
          moved=mesh.ndim)


def case_extremes(mesh):
    values = tensors(x=(16, 64))
    check(mesh, "amax(x, 1) * 2 - 1", values, dict(x=S1), Partial("max"), bits=True)
    check(mesh, "-amin(x, 1)", values, dict(x=S1), Partial("max"), bits=True)
    check(mesh, "relu(amax(x, 1))", values, dict(x=S1), R, moved=mesh.ndim, bits=True)


def case_gated(mesh):
    values = tensors(x=(16, 64), w=(96, 64), v=(96, 64), d=(64, 96))
    placed = dict(x=R, w=S0, v=S0, d=S1)
    check(mesh, GATED, values, placed, P, grads=(P, S0, S0, S1))
    check(mesh, "silu(linear(x, w)) * linear(x, v)", {k: values[k] for k in "xwv"},
          dict(x=R, w=S0, v=S0), S1, bits=True)
    values["g"] = tensors(g=(64,))["g"]
    check(mesh, f"h = rms_norm(x, 64, g); x + {GATED.replace('(x,', '(h,')}", values,
          dict(placed, g=R), R, moved=mesh.ndim)


def case_attention(mesh):
    values = tensors(q=(4, 8, 16), k=(4, 24, 16), v=(4, 24, 16))
    check(mesh, ATTENTION, values, dict(q=S0, k=S0, v=S0), S0, bits=True)
    check(mesh, ATTENTION, values, dict(q=S1, k=R, v=R), S1, bits=True)
    check(mesh, ATTENTION, values, dict(q=R, k=S1, v=S1), P, moved=2 * mesh.ndim)


def case_uneven(mesh):
    values = tensors(x=(7, 9), y=(9,))
    check(mesh, "x * 2 + y", values, dict(x=S0, y=R), S0)
    check(mesh, "sum(x * y, 1)", values, dict(x=S1, y=S0), P)
    values = tensors(x=(7, 5), w=(9, 5), b=(9,))
    check(mesh, "gelu(linear(x, w, b))", values, dict(x=R, w=S0, b=S0), S1)


# ---- ways in ------------------------------------------------------------------------


def case_ways_in(mesh):
    x = tensors(x=(16, 64))["x"]
    placed = distribute_tensor(x, mesh, [S0] * mesh.ndim)
    f = ogive.compile("x * scale + 1")
    assert torch.equal(f(placed, 3.0).full_tensor(), f(x, 3.0))
    assert torch.equal(ot.softmax(placed, 1).full_tensor(), ot.softmax(x, 1))
    out = torch.zeros_like(placed)
    assert f(placed, 3.0, out=out) is out and torch.equal(out.full_tensor(), f(x, 3.0))
    with torch.inference_mode():
        got, = torch.ops.ogive.run((placed,), formula="sigmoid(x)")
        assert got.placements == placed.placements
    first, second = ogive.compile("x * 2, sum(x, 0)")(placed)
    assert first.placements == placed.placements and isinstance(second.placements[0], Partial)
    sums = ogive.compile("sum(x, 0)")(placed)  # contributions go on
    assert isinstance(ogive.compile("x * 0.5")(sums).placements[0], Partial)
    torch.testing.assert_close(ogive.compile("exp(x * 0.1)")(sums).full_tensor(),
                               torch.exp(x.sum(0) * .1))


def case_higher_order(mesh):
    f, x = ogive.compile("sum(sigmoid(x) * x)"), tensors(x=(8, 16))["x"]

    def second(x):
        grad, = torch.autograd.grad(f(x), x, create_graph=True)
        return torch.autograd.grad(grad.sum(), x)[0]

    got = second(distribute_tensor(x, mesh, [S0] * mesh.ndim).requires_grad_())
    torch.testing.assert_close(got.full_tensor(), second(x.clone().requires_grad_()))


def case_given_extremes(mesh):
    """A bias that is a maximum of what processes have is no sum of it."""
    values = tensors(x=(8, 64), w=(96, 64))
    b = DTensor.from_local(torch.full((96,), 3. + dist.get_rank()), mesh, [Partial("max")] * mesh.ndim)
    f = ogive.compile("linear(x, w, b)")
    got = f(**place(mesh, values, dict(x=S1, w=S1)), b=b).full_tensor()
    want = f(**values, b=torch.full((96,), 2. + mesh.size()))
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


def case_sizes_in_text(mesh):
    """A gradient that needs no more than the shape of a norm, whose size the text gives."""
    check(mesh, "sum(b * 2.0 - layer_norm(x, 64), 1)", tensors(b=(64,), x=(8, 64)),
          dict(b=S0, x=S1), S0 if mesh.size() == 1 else P, moved=3 * mesh.ndim)


def case_export(mesh):
    """torch.export of a module that is given DTensors."""
    if torch.__version__.startswith(("2.6", "2.9")):  # which refuse it, with or without formulas
        return
    values = tensors(x=(4, 64), w=(8, 64), b=(8,))
    placed = tuple(place(mesh, values, dict(x=S1, w=S1, b=R)).values())
    f = ogive.compile(TAIL)

    class Module(nn.Module):
        def forward(self, x, w, b):
            return f(x, w, b)

    program = torch.export.export(Module(), placed)
    assert any("ogive.run" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*placed).full_tensor(), f(**values), rtol=2e-5,
                               atol=2e-5)


def case_halves(mesh):
    """A sum of halves that is cut is reduced in float32: as near as in one process."""
    values = {k: v.bfloat16() for k, v in tensors(x=(32, 256), w=(64, 256), b=(64,)).items()}
    placed = place(mesh, values, dict(x=S1, w=S1, b=R))
    f = ogive.compile(TAIL)
    got, alone = f(**placed).full_tensor(), f(**values)
    exact = f(**{k: v.double() for k, v in values.items()})
    assert got.dtype == torch.bfloat16

    def error(value):
        return (value.double() - exact).square().mean().sqrt()

    assert error(got) < 1.05 * error(alone), (error(got), error(alone))


def case_ordered_sums(mesh):
    """Added from rank to rank: the bits of one process where borders are those of blocks."""
    if mesh.ndim > 1:
        return
    ranks = mesh.size()
    ot.set_sums("ranks")
    try:
        for text, values, placements in (
                ("linear(x, w)", tensors(x=(4, 256 * ranks), w=(8, 256 * ranks)), dict(x=S1, w=S1)),
                ("sum(x, 0)", tensors(x=(64 * ranks, 8)), dict(x=S0)),
                ("sigmoid(x @ w)", tensors(x=(4, 256 * ranks), w=(256 * ranks, 8)),
                 dict(x=S1, w=S0))):
            got = ogive.compile(text)(**place(mesh, values, placements))
            assert got.placements == (R,), got.placements
            assert torch.equal(got.to_local(), ogive.compile(text)(**values)), text
    finally:
        ot.set_sums("any")


# Formula, sizes, placements, and whether blocks' sums are gathered (else inputs are) on 2 and on
# 4 processes.
ONE = (
    ("linear(x, w)", dict(x=(4, 2048), w=(8, 2048)), dict(x=S1, w=S1), True),
    ("linear(x, w)", dict(x=(2, 32768), w=(3, 32768)), dict(x=S1, w=S1), True),  # groups
    ("linear(x, w)", dict(x=(2, 10240), w=(3, 10240)), dict(x=S1, w=S1), True),
    ("linear(x, w, b) * 0.3", dict(x=(4, 1024), w=(8, 1024), b=(8,)), dict(x=S1, w=S1, b=R), True),
    (TAIL, dict(x=(4, 2048), w=(8, 2048), b=(8,)), dict(x=S1, w=S1, b=R), True),
    ("linear(x, w)", dict(x=(4, 100), w=(8, 100)), dict(x=S1, w=S1), False),
    (GATED, dict(x=(4, 64), w=(1024, 64), v=(1024, 64), d=(32, 1024)),
     dict(x=R, w=S0, v=S0, d=S1), True),
    ("sum(x * 0.1, 1) * 0.3", dict(x=(3, 65536)), dict(x=S1), True),  # chunks
    ("sum(x, 1)", dict(x=(3, 512)), dict(x=S1), True),  # one tree
    ("sum(x, 1)", dict(x=(3, 4096)), dict(x=S1), False),  # lanes of several elements
    ("sum(x, 0)", dict(x=(1024, 5)), dict(x=S0), True),  # runs
    ("sum(x, 0)", dict(x=(16384, 5)), dict(x=S0), True),  # runs of runs
    ("sum(x, 0)", dict(x=(48, 5)), dict(x=S0), False),
    ("mean((x - y)**2)", dict(x=(1024, 64), y=(1024, 64)), dict(x=S0, y=S0), True),
    ("sum(x)", dict(x=(64, 8)), dict(x=S1), False),  # not a row's slowest dim
    ("sum(sigmoid(linear(x, w)), 1)", dict(x=(5, 33), w=(512, 33)), dict(x=R, w=S0), True),
    ("sum(sigmoid(linear(x, w)), 1)", dict(x=(2, 3), w=(65536, 3)), dict(x=R, w=S0), True),
    ("layer_norm(x, 512)", dict(x=(3, 512)), dict(x=S1), True),
    ("softmax(x, 1)", dict(x=(3, 512)), dict(x=S1), True),
    ("softmax(x, 1)", dict(x=(3, 65536)), dict(x=S1), False),  # a maximum for each chunk
    ("sum(x, 0)", dict(x=(300, 2)), dict(x=S1), False),  # parts of 1
)


def same_bits(mesh, text, values, placements):
    """One process's bits, of the result and of gradients; how often blocks were gathered."""
    from ogive.torch import _alone
    f, found = ogive.compile(text), []
    plain = {name: value.clone().requires_grad_() for name, value in values.items()}
    expected = f(**plain)
    seed = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    wanted = torch.autograd.grad(expected, list(plain.values()), seed, allow_unused=True)
    placed = {name: value.requires_grad_()
              for name, value in place(mesh, values, placements).items()}
    run_way = _alone._run_way
    _alone._run_way = lambda *call: (found.append(text), run_way(*call))[1]
    try:
        got = f(**placed)
        by_blocks = len(found)
        seeds = distribute_tensor(seed, mesh, [
            R if isinstance(p, Partial) else p for p in got.placements])
        results = torch.autograd.grad(got, list(placed.values()), seeds, allow_unused=True)
    finally:
        _alone._run_way = run_way
    for result, value in zip((got, *results), (expected, *wanted)):
        if value is not None:
            torch.testing.assert_close(result.full_tensor(), value, rtol=0, atol=0, equal_nan=True,
                                       msg=lambda m: f"{text} {placements}: {m}")
    return by_blocks


def case_one_bits(mesh):
    """set_sums("one"): the bits of one process, forward and backward."""
    ot.set_sums("one")
    try:
        for text, shapes, placements, by_blocks in ONE:
            found = same_bits(mesh, text, tensors(**shapes), placements)
            assert mesh.ndim > 1 or bool(found) == by_blocks, (text, shapes, found)
        with torch.inference_mode():
            values = tensors(x=(4, 2048), w=(8, 2048), b=(8,))
            got = ogive.compile(TAIL)(**place(mesh, values, dict(x=S1, w=S1, b=R)))
            assert torch.equal(got.full_tensor(), ogive.compile(TAIL)(**values))
    finally:
        ot.set_sums("any")


def random_formula(generator, depth):
    """Text of x (a, b, c), y (b, c), z (a, 1, c), w (c, c)."""
    def pick(*choices):
        return choices[generator.randrange(len(choices))]

    if depth == 0:
        return pick("x", "x", "y", "z")
    first, second = random_formula(generator, depth - 1), random_formula(generator, depth - 1)
    whole = f"(x + {first})"
    return pick(f"{pick('sigmoid', 'tanh', 'relu')}({first})", f"({first} {pick('+', '*')} {second})",
                f"({first} * 0.3)", f"linear({whole}, w)", f"({whole} @ w)",
                f"{pick('sum', 'mean', 'amax')}({whole}, {pick('0', '1', '2', '(0, 1)', '(1, 2)')}, "
                "keepdim=true)", f"softmax({whole}, {pick('0', '1', '2')})")


def case_one_random(mesh):
    ot.set_sums("one")
    try:
        by_blocks = 0
        for seed in range(40):
            generator = random.Random(seed)
            a, b, c = (generator.choice((2, 3, 8, 64, 128, 512)) for _ in range(3))
            shapes = dict(x=(a, b, c), y=(b, c), z=(a, 1, c), w=(c, c))
            text = generator.choice(("{}", "sum({})", "sum({}, 1)", "sum({}, -1) * 0.3")).format(
                random_formula(generator, generator.randint(1, 3)))
            if a * b * c > 1 << 15:
                continue
            names = ogive.compile(text).inputs
            placements = {name: [generator.choice([R, *(Shard(d) for d, size in enumerate(
                shapes[name]) if size > 1)]) for _ in range(mesh.ndim)] for name in names}
            by_blocks += same_bits(mesh, text, tensors(**{name: shapes[name] for name in names}),
                                   placements)
        assert by_blocks > 0 or mesh.size() > 2  # quarters of these extents are seldom blocks
    finally:
        ot.set_sums("any")


def case_parts_of_one(mesh):
    """A dim of 1 would vanish, and a column become a row: its sums are added as the whole's are."""
    ranks = mesh.size()
    if mesh.ndim == 1:
        check(mesh, "sum(x, 0)", tensors(x=(300, ranks)), dict(x=S1), R, moved=1, bits=True)
    check(mesh, "sum(x, 1)", tensors(x=(ranks, 300)), dict(x=S0), S0, bits=True)


def case_autocast(mesh):
    values = tensors(x=(16, 64), w=(96, 64), v=(96, 64), d=(64, 96))
    placed = place(mesh, values, dict(x=R, w=S0, v=S0, d=S1))
    f = ogive.compile(GATED)
    with torch.autocast("cpu", torch.bfloat16):
        got, want = f(**placed), f(**values)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got.full_tensor(), want, rtol=2e-2, atol=2e-2)


def case_refusals(mesh):
    values = tensors(x=(16, 64), w=(96, 64))
    f = ogive.compile("linear(x, w)")
    placed = place(mesh, values, dict(x=R, w=S0))
    message = None
    try:
        f(values["x"], placed["w"])
    except RuntimeError as error:
        message = str(error)
    assert message and "input 'x' is a tensor, 'w' a DTensor" in message, message
    from torch.distributed.tensor.experimental import implicit_replication
    with implicit_replication():
        assert torch.equal(f(values["x"], placed["w"]).full_tensor(), f(**values))
    other = init_device_mesh("cpu", (1,) * (mesh.ndim - 1) + (mesh.size(),) if mesh.ndim > 1 else
                             (1, mesh.size()))
    try:
        f(distribute_tensor(values["x"], other, [R] * other.ndim), placed["w"])
        raise AssertionError("inputs on two meshes")
    except RuntimeError as error:
        assert "all must be on one mesh" in str(error), error
    try:
        f(placed["x"], distribute_tensor(torch.ones(7, 5), mesh, [R] * mesh.ndim))
        raise AssertionError("shapes that do not fit")
    except ValueError as error:
        assert "the last dims differ" in str(error), error
    twice = ogive.compile("x * 2")
    for _ in range(2):  # the second goes another way if nothing is wrong
        twice(distribute_tensor(torch.ones(4 * mesh.size(), 8), mesh, [S0] * mesh.ndim))
    wrong = DTensor.from_local(torch.ones(3, 8), mesh, [S0] * mesh.ndim, run_check=False,
                               shape=torch.Size((4 * mesh.size(), 8)), stride=(8, 1))
    try:
        twice(wrong)
        raise AssertionError("a part that is no part of the whole")
    except RuntimeError as error:
        assert "input 'x'" in str(error) and "has 3 of dim 0, expected 4" in str(error), error
    odd = DTensor.from_local(torch.ones(8), mesh, [Partial("premul_sum")] * mesh.ndim,
                             run_check=False)
    try:
        ogive.compile("exp(b)")(odd)
        raise AssertionError("a placement that cannot be")
    except RuntimeError as error:
        assert "input 'b', placed (Partial(premul_sum)" in str(error), error
        assert "cannot be made (Shard(dim=0)" in str(error), error
    assert f(**placed).placements[0] == S1  # and all ranks go on


# ---- models -------------------------------------------------------------------------


class Gated(nn.Module):
    """Llama's feed-forward block: layers that formulas read."""

    def __init__(self, d=64, h=96):
        super().__init__()
        self.gate, self.up = nn.Linear(d, h, bias=False), nn.Linear(d, h, bias=False)
        self.down = nn.Linear(h, d, bias=False)
        self.act = ot.Formula("silu(linear(x, gate.weight)) * linear(x, up.weight)",
                              gate=self.gate, up=self.up)
        self.out = ot.Formula("linear(h, down.weight)", down=self.down)

    def forward(self, x):
        return self.out(self.act(x))


class Plain(nn.Module):
    def __init__(self, d=64, h=96):
        super().__init__()
        self.gate, self.up = nn.Linear(d, h, bias=False), nn.Linear(d, h, bias=False)
        self.down = nn.Linear(h, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mlp = Gated(d)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def made(kind):
    torch.manual_seed(0)
    return kind()


def trained(model, x):
    """y and the gradients of one process."""
    y = model(x)
    y.square().mean().backward()
    return y.detach(), {name: p.grad for name, p in model.named_parameters()}


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def check_model(model, y, want, grads):
    torch.testing.assert_close(whole(y).detach(), want, rtol=1e-4, atol=1e-5)
    for name, p in model.named_parameters():
        torch.testing.assert_close(whole(p.grad), grads[name.replace("_orig_mod.", "")], rtol=1e-4,
                                   atol=1e-5)


def tensor_parallel(model, mesh, layout=R):
    plan = {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    if isinstance(model, Gated):  # its formulas, not its layers, are called
        plan["act"] = PrepareModuleInput(input_layouts=layout, desired_input_layouts=R)
        plan["out"] = PrepareModuleOutput(output_layouts=P, desired_output_layouts=layout)
    return parallelize_module(model, mesh, plan)


def case_tensor_parallel(mesh):
    if mesh.ndim > 1:
        return
    x = tensors(x=(16, 64))["x"]
    want, grads = trained(made(Gated), x)
    for wrap in (lambda model: model, lambda model: torch.compile(model, backend="aot_eager"),
                 lambda model: torch.compile(model, backend=ot.backend)):
        model = wrap(tensor_parallel(made(Gated), mesh))
        with CommDebugMode() as mode:
            y = model(x)
        assert moves(mode) == 1, mode.get_comm_counts()  # that of the output
        y.square().mean().backward()
        check_model(model, y, want, grads)
    # sequence parallel: all-gather, reduce-scatter
    model = tensor_parallel(made(Gated), mesh, S0)
    y = DTensor.from_local(model(x.chunk(mesh.size())[mesh.get_local_rank()].clone()), mesh, [S0])
    y.square().mean().backward()
    check_model(model, y, want, grads)


def case_backend(mesh):
    """The products of a tensor-parallel model go to formulas."""
    if mesh.ndim > 1:
        return
    x = tensors(x=(16, 64))["x"]
    want, grads = trained(made(Plain), x)
    model = tensor_parallel(made(Plain), mesh)
    assert "taken: linear, silu, linear, mul" in ot.explain(model, x)
    for options in ({}, {"rest": "aot_eager"}):
        model.zero_grad()
        compiled = torch.compile(model, backend=ot.backend, options=options)
        y = compiled(x)
        y.square().mean().backward()
        check_model(compiled, y, want, grads)


def case_compile(mesh):
    values = tensors(x=(16, 64), w=(96, 64), b=(96,), v=(96, 64), d=(64, 96))
    for text, placements in ((TAIL, dict(x=R, w=S0, b=S0)), (TAIL, dict(x=S1, w=S1, b=R)),
                             ("mean(x * x)", dict(x=S0))):
        formula = ogive.compile(text)
        chosen = {name: values[name] for name in formula.inputs}
        want = formula(**chosen) * 2
        for dynamic in (False, True):
            torch._dynamo.reset()
            compiled = torch.compile(lambda *args: formula(*args) * 2, backend="aot_eager",
                                     fullgraph=True, dynamic=dynamic)
            placed = [each.requires_grad_() for each in place(mesh, chosen, placements).values()]
            got = compiled(*placed)
            torch.testing.assert_close(got.full_tensor(), want, rtol=1e-4, atol=1e-4)
            torch.autograd.grad(got, placed, torch.ones_like(got))


def case_steps(mesh):
    """AdamW, clipped gradients, activation checkpoints."""
    if mesh.ndim > 1:
        return
    x, losses = tensors(x=(16, 64))["x"], []
    for parallel in (False, True):
        model = made(Gated)
        if parallel:
            tensor_parallel(model, mesh)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            loss = checkpoint(model, x, use_reentrant=False).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), .1)
            optimizer.step()
        losses.append(loss.item())
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-6)


def case_fsdp(mesh):
    """FSDP2 of modules that hold formulas, nested; of layers that formulas read; of
    tensor-parallel modules on two dims."""
    if torch.__version__.startswith("2.6"):  # there FSDP2 has no CPU
        return
    for layers in ((), ("mlp",), ("mlp.gate", "mlp.down"), ("mlp.gate", "mlp.up", "mlp.down", "mlp")):
        check_fsdp(mesh, layers)


def check_fsdp(mesh, layers):
    from torch.distributed.fsdp import fully_shard
    x = tensors(x=(16, 64))["x"]
    want, grads = trained(made(Block), x)
    model = made(Block)
    if mesh.ndim > 1:
        tensor_parallel(model.mlp, named_mesh(mesh)["tp"])
    data = named_mesh(mesh)["dp"]
    if mesh.ndim == 1:
        for layer in layers:
            fully_shard(model.get_submodule(layer), mesh=data)
    fully_shard(model, mesh=data)
    size = 16 // data.size()
    part = slice(data.get_local_rank() * size, (data.get_local_rank() + 1) * size)
    y = model(x[part])
    y.square().mean().backward()
    torch.testing.assert_close(y.detach(), want[part], rtol=1e-4, atol=1e-5)
    for name, p in model.named_parameters():
        torch.testing.assert_close(whole(p.grad), grads[name], rtol=1e-4, atol=1e-5)


def named_mesh(mesh):
    return init_device_mesh("cpu", tuple(mesh.shape), mesh_dim_names=("dp", "tp")[:mesh.ndim])


def case_sequence_parallel(mesh):
    """A norm on parts of the sequence, by PyTorch's style and by a formula, before a gated block."""
    if mesh.ndim > 1:
        return
    x = tensors(x=(2, 16, 64))["x"]
    want, grads = trained(made(Block), x)
    model = made(Block)
    model.add = ot.Formula("x + y")
    parallelize_module(model, mesh, {"norm": SequenceParallel(use_local_output=False)})
    tensor_parallel(model.mlp, mesh)
    parallelize_module(model.mlp, mesh, {
        "act": PrepareModuleInput(input_layouts=S1, desired_input_layouts=R)})
    placed = distribute_tensor(x, mesh, [S1])
    h = model.mlp.act(model.norm(placed))  # all-gather
    y = model.add(placed, model.mlp.out.formula(h, model.mlp.down.weight))
    assert y.placements == (S1,), y.placements  # reduce-scatter
    y.square().mean().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(whole(p.grad), grads[name], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(y.full_tensor().detach(), want, rtol=1e-4, atol=1e-5)


def case_pipeline(mesh):
    """PyTorch's tracer cuts a model with formulas; its stages run one after the other."""
    if mesh.ndim > 1:
        return
    from torch.distributed.pipelining import SplitPoint, pipeline

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Block(), Block()

        def forward(self, x):
            return self.second(self.first(x))

    model, x = made(Two), tensors(x=(16, 64))["x"]
    pipe = pipeline(model, (x,), split_spec={"second": SplitPoint.BEGINNING})
    value = x
    for stage in range(2):
        value = pipe.get_stage_module(stage)(value)
    torch.testing.assert_close(value, model(x))


def case_saved(mesh):
    """A checkpoint has each parameter once, and is read by a model that is divided otherwise."""
    if mesh.ndim > 1:
        return
    import torch.distributed.checkpoint as dcp
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    model = tensor_parallel(made(Gated), mesh)
    state = model.state_dict()
    assert sorted(state) == ["down.weight", "gate.weight", "up.weight"], list(state)
    dcp.save(state, checkpoint_id=folder[0])
    other = Plain()
    dcp.load(other.state_dict(), checkpoint_id=folder[0])
    for p, q in zip(made(Gated).parameters(), other.parameters()):
        assert torch.equal(p, q)


# ---- two dims -----------------------------------------------------------------------


def case_two_dims(mesh):
    if mesh.ndim < 2:
        return
    values = tensors(x=(16, 64), w=(96, 64), b=(96,))
    check(mesh, TAIL, values, dict(x=[S0, R], w=[R, S0], b=[R, S0]), (S0, S1), bits=True)
    check(mesh, TAIL, values, dict(x=[S0, S1], w=[R, S1], b=[R, R]), (S0, R), moved=1)
    values = tensors(x=(16, 64), w=(96, 64), v=(96, 64), d=(64, 96))
    check(mesh, GATED, values, dict(x=[S0, R], w=[R, S0], v=[R, S0], d=[R, S1]), (S0, P))
    values = tensors(x=(16, 64), y=(16, 64))
    check(mesh, "mean((x - y)**2)", values, dict(x=[S0, S1], y=[S0, S1]), (P, P))


# ---- running ------------------------------------------------------------------------


def _run(rank, world, shape, folder, wanted):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=world, timeout=datetime.timedelta(seconds=60))
    mesh = init_device_mesh("cpu", shape)
    for name in wanted:
        report = ""
        try:
            globals()[name](mesh)
        except BaseException:  # also of the other ranks, for all do the same
            report = traceback.format_exc()
        with open(f"{folder}/{name}.{rank}", "w") as file:
            file.write(report)
        if report:  # ranks may be out of step now
            sys.stderr.write(report)
            os._exit(1)
    dist.barrier()
    dist.destroy_process_group()


def start(shape, folder, wanted):
    """Runs the cases on a mesh of this shape; each leaves a file with what went wrong."""
    world = 1
    for extent in shape:
        world *= extent
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=_run, args=(rank, world, shape, folder, wanted))
                 for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
        if process.is_alive():
            process.kill()


def cases():
    return [name for name in globals() if name.startswith("case_")]
