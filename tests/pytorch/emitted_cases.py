# SPDX-License-Identifier: MIT
"""Formulas for the tests of `ogive emit --pytorch`, with PyTorch's own answer to each:
tests/python/test_emitted.py takes them on the CPU, tests/pytorch/emitted_gpu.py on a GPU."""
import torch
import torch.nn.functional as F

# name -> formula, shapes for the tool, shapes to run with (others), reference
CASES = {}


def case(name, formula, shapes, runs, reference, low=-3.0, high=3.0):
    CASES[name] = (formula, shapes, runs, reference, low, high)


def linear(x, w, b):
    return F.linear(x, w, b)


def reference(name):
    """PyTorch's function of that name; its float64 hardsigmoid and hardswish have float32's 1/6."""
    exact = {"hardsigmoid": lambda x: F.hardtanh(x + 3, 0, 6) / 6,
             "hardswish": lambda x: x * F.hardtanh(x + 3, 0, 6) / 6}
    return exact.get(name) or getattr(F if hasattr(F, name) else torch, name)


# Every function of one tensor, a dozen to a file: {0} is the input.
UNARY = {
    "a": ["sigmoid", "hardsigmoid", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "silu",
          "gelu", "mish", "softplus"],
    "b": ["logsigmoid", "hardtanh", "hardswish", "softsign", "tanhshrink", "softshrink",
          "hardshrink", "tanh", "erf", "square", "abs", "expm1"],
}
for key, names in UNARY.items():
    case("unary_" + key, ", ".join(f"{n}(x)" for n in names), {"x": (3, 4)},
         [{"x": (37, 129)}, {"x": (5,)}, {"x": (2, 3, 4, 5)}],
         lambda x, names=names: tuple(reference(n)(x) for n in names))
case("unary_positive", "exp(x), log(x), log1p(x), sqrt(x), rsqrt(x), reciprocal(x), -x, x ** 1.5, "
     "clamp(x, 0.5, 2), threshold(x, 1, 0.25), gelu(x, approximate='tanh'), leaky_relu(x - 1, 0.2)",
     {"x": (3, 4)}, [{"x": (64, 100)}, {"x": (1,)}, {"x": (0, 7)}],
     lambda x: (x.exp(), x.log(), x.log1p(), x.sqrt(), x.rsqrt(), x.reciprocal(), -x, x ** 1.5,
                x.clamp(0.5, 2), F.threshold(x, 1, 0.25), F.gelu(x, approximate="tanh"),
                F.leaky_relu(x - 1, 0.2)), 0.1, 3.0)
case("binary", "a = maximum(x, y); where(x > 0.25, a * b, minimum(x, 0.5) - y / (2 + abs(b)))",
     {"x": (3, 4), "y": (3, 4), "b": (4,)},
     [{"x": (33, 64), "y": (33, 64), "b": (64,)}, {"x": (7, 5), "y": (7, 5), "b": (5,)}],
     lambda x, y, b: torch.where(x > 0.25, torch.maximum(x, y) * b,
                                 torch.clamp(x, max=0.5) - y / (2 + b.abs())))
case("broadcast", "x * c + r", {"x": (2, 3, 4), "c": (2, 1, 1), "r": (3, 1)},
     [{"x": (6, 5, 32), "c": (6, 1, 1), "r": (5, 1)}], lambda x, c, r: x * c + r)
case("softmax", "softmax(x, dim=-1)", {"x": (3, 4)}, [{"x": (5, 1000)}, {"x": (300, 33)},
                                                      {"x": (2, 70000)}],
     lambda x: x.softmax(-1))
case("softmax_columns", "log_softmax(x, dim=0)", {"x": (3, 4)}, [{"x": (129, 65)}],
     lambda x: x.log_softmax(0))
case("reductions", "sum(x, dim=1), mean(x, dim=(0, 2)), amax(x, dim=-1, keepdim=true), "
     "logsumexp(x, dim=1), var(x, dim=2), amin(x, dim=0)", {"x": (2, 3, 4)},
     [{"x": (9, 34, 65)}],
     lambda x: (x.sum(1), x.mean((0, 2)), x.amax(-1, keepdim=True), x.logsumexp(1), x.var(2),
                x.amin(0)))
case("all", "x / sqrt(sum(x * x) + 1)", {"x": (3, 4)}, [{"x": (300, 700)}, {"x": (2, 3)}],
     lambda x: x / torch.sqrt((x * x).sum() + 1))
case("layer_norm", "layer_norm(x, 64, w, b)", {"x": (3, 64), "w": (64,), "b": (64,)},
     [{"x": (33, 64), "w": (64,), "b": (64,)}], lambda x, w, b: F.layer_norm(x, (64,), w, b))
case("rows_tail", "m = mean(x, dim=1, keepdim=true); gelu((x - m) * s) + y",
     {"x": (3, 4), "s": (4,), "y": (3, 4)},
     [{"x": (17, 300), "s": (300,), "y": (17, 300)}],
     lambda x, s, y: F.gelu((x - x.mean(1, keepdim=True)) * s) + y)
case("pooled", "x * sigmoid(adaptive_avg_pool2d(gelu(x), 1)), adaptive_avg_pool1d(y, 1)",
     {"x": (2, 3, 4, 5), "y": (3, 4)},
     [{"x": (3, 5, 17, 12), "y": (7, 130)}, {"x": (2, 3, 1, 6), "y": (1, 1)}],
     lambda x, y: (x * torch.sigmoid(F.adaptive_avg_pool2d(F.gelu(x), 1)), F.adaptive_avg_pool1d(y, 1)))
case("linear", "linear(x, w, b)", {"x": (3, 4), "w": (5, 4), "b": (5,)},
     [{"x": (33, 70), "w": (45, 70), "b": (45,)}, {"x": (260, 64), "w": (132, 64), "b": (132,)},
      {"x": (1, 5), "w": (3, 5), "b": (3,)}], linear)
case("linear3", "gelu(linear(x, w, b))", {"x": (2, 3, 4), "w": (5, 4), "b": (5,)},
     [{"x": (3, 50, 96), "w": (136, 96), "b": (136,)}], lambda x, w, b: F.gelu(linear(x, w, b)))
case("linear_sum", "sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)",
     {"x": (3, 4), "w": (5, 4), "b": (5,)},
     [{"x": (130, 64), "w": (300, 64), "b": (300,)}],
     lambda x, w, b: linear(x, w, b).sigmoid().sum(1, keepdim=True))
case("linear_lse", "mish(logsumexp(linear(x, w, b), dim=1))", {"x": (3, 4), "w": (5, 4), "b": (5,)},
     [{"x": (65, 48), "w": (200, 48), "b": (200,)}],
     lambda x, w, b: F.mish(linear(x, w, b).logsumexp(1)))
case("linear_softmax", "softmax(gelu(linear(x, w, b)), dim=1)",
     {"x": (3, 4), "w": (5, 4), "b": (5,)}, [{"x": (65, 48), "w": (200, 48), "b": (200,)}],
     lambda x, w, b: F.gelu(linear(x, w, b)).softmax(1))
case("two_linears", "linear(relu(linear(x, w, b)), v)",
     {"x": (3, 4), "w": (5, 4), "b": (5,), "v": (6, 5)},
     [{"x": (40, 33), "w": (130, 33), "b": (130,), "v": (20, 130)}],
     lambda x, w, b, v: F.linear(linear(x, w, b).relu(), v))
case("gated", "silu(linear(x, w)) * linear(x, v)", {"x": (3, 4), "w": (5, 4), "v": (5, 4)},
     [{"x": (40, 72), "w": (136, 72), "v": (136, 72)}],
     lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v))
case("batched", "tanh(a @ b)", {"a": (2, 3, 4), "b": (2, 4, 5)},
     [{"a": (3, 70, 40), "b": (3, 40, 90)}], lambda a, b: torch.tanh(a @ b), -0.5, 0.5)
case("vectors", "a @ b, (a @ b) * (b @ c)", {"a": (3, 4), "b": (4,), "c": (4, 3)},
     [{"a": (70, 40), "b": (40,), "c": (40, 70)}], lambda a, b, c: (a @ b, (a @ b) * (b @ c)))
case("transposed", "t(a) @ t(b)", {"a": (4, 3), "b": (5, 4)}, [{"a": (100, 70), "b": (90, 100)}],
     lambda a, b: a.t() @ b.t())


# Files that are made for their shapes: name -> formula, shapes, PyTorch's own, what serves on Hopper.
SHAPED = {
    "max_pool": ("sum(tanh(max_pool2d(relu(x), 2)), dim=1)", {"x": (2, 3, 9, 8)},
                 lambda x: torch.tanh(F.max_pool2d(F.relu(x), 2)).sum(1), ""),
    "avg_pool": ("avg_pool1d(x, 3, stride=2, padding=1)", {"x": (2, 5, 17)},
                 lambda x: F.avg_pool1d(x, 3, stride=2, padding=1), ""),
    "adaptive": ("adaptive_max_pool2d(x, 3), adaptive_avg_pool2d(x, (1, 4))", {"x": (2, 3, 7, 9)},
                 lambda x: (F.adaptive_max_pool2d(x, 3), F.adaptive_avg_pool2d(x, (1, 4))), ""),
    "conv2d": ("relu(conv2d(x, w, b, padding=1))", {"x": (2, 32, 12, 12), "w": (64, 32, 3, 3), "b": (64,)},
               lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), "tensor cores"),
    "conv1d": ("conv1d(x, w, stride=2)", {"x": (2, 5, 20), "w": (7, 5, 3)},
               lambda x, w: F.conv1d(x, w, stride=2), ""),
    "conv3d": ("conv3d(x, w, b)", {"x": (2, 3, 5, 6, 7), "w": (4, 3, 2, 3, 3), "b": (4,)}, F.conv3d, ""),
    "depthwise": ("silu(conv2d(x, w, groups=6))", {"x": (2, 6, 9, 8), "w": (6, 1, 3, 3)},
                  lambda x, w: F.silu(F.conv2d(x, w, groups=6)), ""),
    "transposed": ("conv_transpose2d(x, w, b, stride=2, padding=1)",
                   {"x": (2, 64, 8, 8), "w": (64, 32, 4, 4), "b": (32,)},
                   lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1), "tensor cores"),
    "group_norm": ("group_norm(x, 2, w, b)", {"x": (3, 4, 5, 6), "w": (4,), "b": (4,)},
                   lambda x, w, b: F.group_norm(x, 2, w, b), ""),
    "batch_norm": ("batch_norm(x, m, v, w, b)",
                   {"x": (3, 4, 5, 6), "m": (4,), "v": (4,), "w": (4,), "b": (4,)},
                   lambda x, m, v, w, b: ((x.mT.transpose(1, 3) - m) / torch.sqrt(v + 1e-5) * w + b).transpose(1, 3).mT,
                   ""),
    "prelu": ("prelu(x, w)", {"x": (3, 4, 5), "w": (4,)}, F.prelu, ""),
    "glu": ("glu(x, 1)", {"x": (3, 4, 5)}, lambda x: F.glu(x, 1), ""),
    # These are asked to be so.
    "linear": ("gelu(linear(x, w, b))", {"x": (70, 132), "w": (136, 132), "b": (136,)},
               lambda x, w, b: F.gelu(F.linear(x, w, b)), "tensor cores"),
    "softmax": ("softmax(x, 1) * y", {"x": (5, 700), "y": (700,)}, lambda x, y: F.softmax(x, 1) * y, ""),
    "silu": ("silu(x) + y", {"x": (3, 65), "y": (65,)}, lambda x, y: F.silu(x) + y, ""),
}
