# SPDX-License-Identifier: MIT
"""Random formulas, shapes, strides and dtypes: Ogive's result against PyTorch's in float64. What
differs is shrunk by Hypothesis, and printed as lines that repeat it.

How much may differ follows from the formula: its float64 result with every step changed by a few
units in the last place of the dtype is compared, too, and its float32 result. OGIVE_EXAMPLES draws
more of them than a test run does; scripts/differential has no end."""

import os

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

import ogive

SMOOTH = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": F.silu, "gelu": F.gelu,
          "softplus": F.softplus, "relu": torch.relu, "abs": torch.abs, "mish": F.mish,
          "erf": torch.erf, "hardswish": F.hardswish, "logsigmoid": F.logsigmoid, "elu": F.elu}
BINARY = {"+": torch.add, "-": torch.sub, "*": torch.mul}
DTYPES = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.float16: 2.0**-11,
          torch.bfloat16: 2.0**-8}


@st.composite
def full(draw, depth, rows, cols):
    """Text and function of a value of shape (rows, cols)."""
    if depth == 0:
        return draw(st.sampled_from([("x", lambda t: t["x"]), ("y", lambda t: t["y"]),
                                     ("(r + x)", lambda t: t["r"] + t["x"])]))
    text, of = draw(full(depth - 1, rows, cols))
    kind = draw(st.sampled_from(["smooth", "binary", "number", "softmax", "norm", "where", "view",
                                 "part", "row", "product", "windows", "parts", "convolution"]))
    if kind == "smooth":
        name = draw(st.sampled_from(sorted(SMOOTH)))
        return f"{name}({text})", lambda t: SMOOTH[name](of(t))
    if kind == "number":
        number = draw(st.sampled_from([-1.5, 0.25, 2.0, 3.0]))
        return f"({text} * {number} + 0.5)", lambda t: of(t) * number + 0.5
    if kind == "softmax":
        dim = draw(st.sampled_from([0, 1]))
        return f"softmax({text}, dim={dim})", lambda t: torch.softmax(of(t), dim)
    if kind == "norm":
        return (f"layer_norm({text}, {cols}, eps=0.1)",
                lambda t: F.layer_norm(of(t), (cols,), eps=0.1))
    if kind == "view":
        return (f"transpose(transpose({text}, 0, 1) * 2, 0, 1)", lambda t: of(t) * 2)
    if kind == "part":
        dim = draw(st.sampled_from([0, 1]))
        start = draw(st.integers(0, (rows, cols)[dim] - 1))
        return (f"({text} - narrow({text}, {dim}, {start}, 1) * 0.5)",
                lambda t: of(t) - of(t).narrow(dim, start, 1) * 0.5)
    if kind == "row":
        name, function = draw(st.sampled_from([("sum", torch.sum), ("mean", torch.mean),
                                               ("amax", torch.amax), ("amin", torch.amin)]))
        dim = draw(st.sampled_from([0, 1]))
        return (f"({text} - {name}({text}, dim={dim}, keepdim=True))",
                lambda t: of(t) - function(of(t), dim=dim, keepdim=True))
    if kind in ("windows", "parts", "convolution"):
        return draw(seen(kind, text, of, rows, cols))
    other_text, other = draw(full(draw(st.integers(0, depth - 1)), rows, cols))
    if kind == "product":
        return (f"({text} @ transpose({other_text}, 0, 1) @ x)",
                lambda t: of(t) @ other(t).transpose(0, 1) @ t["x"])
    if kind == "where":
        return (f"where({text} > {other_text}, {other_text}, y)",
                lambda t: torch.where(of(t) > other(t), other(t), t["y"]))
    symbol = draw(st.sampled_from(sorted(BINARY)))
    return f"({text} {symbol} {other_text})", lambda t: BINARY[symbol](of(t), other(t))


@st.composite
def seen(draw, kind, text, of, rows, cols):
    """The value seen through windows, rows being channels; of the same shape again."""
    if kind == "windows":
        name, size = draw(st.sampled_from(["max_pool1d", "avg_pool1d"])), draw(st.sampled_from([1, 3]))
        arguments = {"stride": 1, "padding": size // 2}
        return (f"{name}({text}, {size}, stride=1, padding={size // 2})",
                lambda t: getattr(F, name)(of(t), size, **arguments))
    if kind == "parts":
        name = draw(st.sampled_from(["adaptive_max_pool1d", "adaptive_avg_pool1d"]))
        size, step = draw(st.integers(1, cols)), draw(st.integers(1, 3))
        return (f"({name}({name}({text}, {size}), {cols}) "
                f"+ amax(sum(unfold({text}, 1, {size}, {step}), -1), 1, keepdim=True))",
                lambda t: getattr(F, name)(getattr(F, name)(of(t), size), cols)
                + of(t).unfold(1, size, step).sum(-1).amax(1, keepdim=True))
    name = draw(st.sampled_from(["conv1d", "conv_transpose1d"]))
    weight, groups = draw(st.sampled_from([("w", 1), ("d", rows)]))
    return (f"{name}({text}, {weight}, padding=1, groups={groups})",
            lambda t: getattr(F, name)(of(t), t[weight], padding=1, groups=groups))


@st.composite
def formulas(draw):
    """Text, function and the shapes of its inputs."""
    rows, cols = draw(st.integers(1, 9)), draw(st.integers(1, 17))
    text, of = draw(full(draw(st.integers(1, 5)), rows, cols))
    return text, of, {"x": (rows, cols), "y": (rows, cols), "r": (1, cols), "w": (rows, rows, 3),
                      "d": (rows, 1, 3)}


def lay_out(tensor, how):
    """The same values, otherwise in memory."""
    if how == "transposed":
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)
    if how == "apart":
        room = torch.empty(*(2 * n for n in tensor.shape), dtype=tensor.dtype)
        view = room[tuple(slice(1, None, 2) for _ in tensor.shape)]
        return view.copy_(tensor)
    return tensor.contiguous()


class Rounded(TorchFunctionMode):
    """Results of every step, views too, are off by some units: elements that are equal then differ,
    which by exact arithmetic they never would, as in layer_norm of a row of equal ones."""

    def __init__(self, generator, unit):
        super().__init__()
        self.generator, self.unit = generator, unit

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return result
        return result * (1 + self.unit * torch.randn(result.shape, generator=self.generator,
                                                     dtype=result.dtype))


def bound(of, inputs, want, unit):
    """What rounding may change, seen by rounding otherwise, and by computing in float32."""
    generator = torch.Generator().manual_seed(1)
    single = {name: value.float() for name, value in inputs.items()}
    noise = of(single).double() - of({name: value.double() for name, value in single.items()})
    computed = min(unit, 2.0**-24) * 2.0**24  # in float64, or in float32
    most = 64 * unit * want.abs() + 16 * unit + 64 * computed * noise.abs().nan_to_num(0).max()
    for _ in range(4):
        with Rounded(generator, 4 * unit):
            changed = of({name: value * 1 for name, value in inputs.items()})
        most = torch.maximum(most, 64 * (changed - want).abs().nan_to_num(torch.inf))
    return most


@settings(max_examples=int(os.environ.get("OGIVE_EXAMPLES", "100")), print_blob=True,
          derandomize="OGIVE_EXAMPLES" not in os.environ,
          suppress_health_check=list(HealthCheck))
@given(formulas(), st.sampled_from(sorted(DTYPES, key=str)),
       st.sampled_from(["plain", "transposed", "apart"]), st.integers(0, 1000))
def test_differential(formula, dtype, how, seed):
    text, of, shapes = formula
    generator = torch.Generator().manual_seed(seed)
    inputs = {name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
              for name, shape in shapes.items()}
    exact = {name: value.double() for name, value in inputs.items()}
    want = of(exact)
    run = ogive.compile(text)
    got = run(**{name: lay_out(inputs[name], how) for name in run.inputs}).double()
    # What is computed in float32 is rounded to a half once, at the end.
    good = (got - want).abs() <= bound(of, exact, want, DTYPES[dtype])
    good |= ~want.isfinite() | (want.abs() > 1e4)
    told = {name: shapes[name] for name in run.inputs}
    note(f"ogive.compile({text!r}) of {told}, {dtype}, {how}, seed {seed}: {got[~good][:4]}, "
         f"expected {want[~good][:4]}")
    assert bool(good.all())
