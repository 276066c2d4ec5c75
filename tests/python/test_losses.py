# SPDX-License-Identifier: MIT
"""Losses, norms, distances, powers and bounds that are tensors: values and gradients beside
PyTorch's in float64, second derivatives by differences, specials and ties."""

import math

import pytest
import torch
import torch.nn.functional as F

import ogive
import ogive.torch as ot

WORDS = ("mean", "none", "sum")


def numbers(*shape, low=-2.0, high=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    values = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (low + (high - low) * values).requires_grad_()


def positive(*shape, seed=1):
    return numbers(*shape, low=0.1, high=0.9, seed=seed)


X, Y, Z = (numbers(3, 4, seed=seed) for seed in (2, 3, 4))
P, Q = positive(3, 4), positive(3, 4, seed=5)
SIGNS = torch.where(Y > 0, 1.0, -1.0).double()
ZERO_ROW = torch.cat([torch.zeros(1, 4, dtype=torch.float64), X.detach()[1:]]).requires_grad_()
WEIGHT = Z.detach()
CASES = [
    ("pow", (P, Y), {}), ("pow", (P, Y[:1]), {}), ("pow", (2, Y), {}), ("xlogy", (P, Q), {}),
    ("clamp", (X, Y - 1, Y + 1), {}), ("clamp", (X,), {"max": Y}), ("clamp", (X, Y), {}),
    ("max", (X, Y), {}), ("min", (X, Y), {}), ("max", (X,), {}), ("max", (X, 1), {}),
    ("min", (X,), {"dim": 0, "keepdim": True}),
    ("std_mean", (X, 1), {}), ("var_mean", (X, 1, False, True), {}), ("var_mean", (X,), {}),
    ("normalize", (X,), {}), ("normalize", (X, 3.0, 0), {}), ("normalize", (ZERO_ROW,), {}),
    ("cosine_similarity", (X, Y), {}), ("cosine_similarity", (X[:, None], Y[:1]), {"dim": 0}),
    ("pairwise_distance", (X, Y), {}), ("pairwise_distance", (X, Y[0], 1.0), {"keepdim": True}),
    *[("vector_norm", (X, order, 1), {}) for order in (2, 1, math.inf, -math.inf, 3, 0.5, -1, -2)],
    ("norm", (X,), {}), ("norm", (X, "fro", (0, 1), True), {}), ("norm", (X, 3, 0), {}),
    *[("prelu", (numbers(*shape), numbers(*weight)), {}) for shape, weight in (
        ((3, 4), (4,)), ((3, 4), (1,)), ((2, 3, 2, 2), (3,)), ((5,), (1,)))],
    ("addmm", (numbers(5), X, numbers(4, 5)), {}),
    ("addmm", (numbers(3, 5), X, numbers(4, 5)), {"beta": 0.5, "alpha": 2.0}),
    *[(name, (X, Y), {"reduction": word}) for word in WORDS
      for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")],
    ("smooth_l1_loss", (X, Y), {"beta": 0.0}), ("smooth_l1_loss", (X, Y), {"beta": 0.3}),
    ("huber_loss", (X, Y, "sum", 0.5), {}),
    *[("binary_cross_entropy", (P, Q, WEIGHT), {"reduction": word}) for word in WORDS],
    *[("binary_cross_entropy_with_logits", (X, P, WEIGHT), {"reduction": word, "pos_weight": WEIGHT[0]})
      for word in WORDS],
    ("binary_cross_entropy_with_logits", (X, P), {}),
    *[("kl_div", (X, P), {"reduction": word}) for word in (*WORDS, "batchmean")],
    ("kl_div", (X, Y), {"reduction": "sum", "log_target": True}),
    *[("hinge_embedding_loss", (X, SIGNS), {"reduction": word}) for word in WORDS],
    *[("triplet_margin_loss", (X, Y, Z), {"reduction": word, "swap": word == "sum"}) for word in WORDS],
]


def reference(name):
    return getattr(F, name, None) or getattr(torch, name, None) or getattr(torch.linalg, name)


def as_tuple(result):
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


@pytest.mark.parametrize("name, args, named", CASES, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_values_and_gradients(name, args, named):
    inputs = [arg for arg in (*args, *named.values()) if isinstance(arg, torch.Tensor) and arg.requires_grad]

    def call(function, *given):
        given = iter(given)

        def place(arg):
            return next(given) if any(arg is each for each in inputs) else arg

        return function(*[place(arg) for arg in args], **{key: place(arg) for key, arg in named.items()})

    got, want = as_tuple(call(getattr(ot, name), *inputs)), as_tuple(call(reference(name), *inputs))
    if name in ("max", "min") and len(want) == 2:
        want = want[:1]  # indices
    assert len(got) == len(want)
    for ours, theirs in zip(got, want):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad([each.cos().sum() for each in results], inputs)
                    for results in (got, want))
    for each, other in zip(ours, theirs):
        torch.testing.assert_close(each, other, rtol=1e-10, atol=1e-10)
    if name not in ("hinge_embedding_loss",) and not any(arg is ZERO_ROW for arg in args):
        assert torch.autograd.gradgradcheck(lambda *given: call(getattr(ot, name), *given), inputs,
                                            atol=1e-4)


@pytest.mark.parametrize("order", [2, 1, math.inf, 3, 1.5, 0.5, 0])
def test_norms_of_zeros(order):
    """PyTorch's gradient there is 0 (of the greatest: shared)."""
    results = []
    for function in (ot.vector_norm, torch.linalg.vector_norm):
        y = function(ZERO_ROW, order, 1)
        slope = torch.autograd.grad(y.sum(), ZERO_ROW, allow_unused=True)[0]
        results.append((y, torch.zeros_like(ZERO_ROW) if slope is None else slope))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


SPECIALS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 7.5, 1e30, 1e-30, -1e30, 16777217.0,
            math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["pow", "xlogy"])
def test_specials_of_two_tensors(name, dtype):
    points = torch.tensor(SPECIALS, dtype=dtype)
    x, y = (each.contiguous().requires_grad_() for each in torch.meshgrid(points, points, indexing="ij"))
    got, want = getattr(ot, name)(x, y), getattr(torch, name)(x, y)
    torch.testing.assert_close(got, want, rtol=2e-7, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(got)[~got.isnan()], torch.signbit(want)[~got.isnan()])
    for ours, theirs in zip(*(torch.autograd.grad(each.sum(), (x, y)) for each in (got, want))):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_ties_of_maxima(name, keepdim):
    """Over a dim the first of equal elements has the gradient, or the first NaN; over all dims
    they share it."""
    nan = math.nan
    x = torch.tensor([[1.0, 3, 3, 1], [nan, 1, nan, 0], [2, 2, 2, 2], [-math.inf, -math.inf, 0, 0]],
                     dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64)
    for dim in (0, 1, -1):
        shape = weights.unsqueeze(dim) if keepdim else weights
        got = getattr(ot, name)(x, dim, keepdim)
        want = getattr(torch, name)(x, dim, keepdim)[0]
        torch.testing.assert_close(got, want, equal_nan=True)
        slopes = [torch.autograd.grad((y * shape).nan_to_num().sum(), x)[0] for y in (got, want)]
        torch.testing.assert_close(*slopes, equal_nan=True)
    y = x.detach()[[0, 2]].requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(getattr(ot, name)(y), y),
                               torch.autograd.grad(getattr(torch, name)(y), y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_powers_promote_as_pytorchs(dtype):
    x, y = P.detach().to(dtype), Y.detach().float()
    for ours, theirs in ((ogive.compile("x ** y")(x, y), x ** y), (ogive.compile("2 ** x")(x), 2 ** x),
                         (ot.pow(x, y[0, 0]), torch.pow(x, y[0, 0])), (ot.pow(y[0, 0], x), y[0, 0] ** x)):
        torch.testing.assert_close(ours, theirs, rtol=1e-2 if dtype != torch.float32 else 1e-6, atol=0)


def test_bounds_that_are_tensors():
    """Values and gradients at ties, crossed bounds, infinities; NaN bounds give NaN."""
    points = torch.tensor([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf], dtype=torch.float64)
    x, low, high = (each.contiguous().requires_grad_()
                    for each in torch.meshgrid(points, points, points, indexing="ij"))
    got, want = ot.clamp(x, low, high), torch.clamp(x, low, high)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    for ours, theirs in zip(*(torch.autograd.grad(y.sum(), (x, low, high)) for y in (got, want))):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    nan = torch.full_like(points, math.nan)
    assert ot.clamp(points, nan).isnan().all() and ot.clamp(points, points, nan).isnan().all()


@pytest.mark.parametrize("infinite", [math.inf, -math.inf])
@pytest.mark.parametrize("name", ["smooth_l1_loss", "huber_loss", "prelu"])
def test_gradients_far_out(name, infinite):
    x = torch.tensor([[infinite, 1.0]], dtype=torch.float64, requires_grad=True)
    other = torch.tensor([0.25, 0.5], dtype=torch.float64, requires_grad=True)
    pairs = [torch.autograd.grad(function(x, other).sum(), (x, other))
             for function in (getattr(ot, name), getattr(F, name))]
    if name == "prelu" and infinite > 0:
        torch.testing.assert_close(*pairs, equal_nan=True)
    torch.testing.assert_close(pairs[0][0], pairs[1][0], equal_nan=True)


def test_backend_takes_losses_and_powers():
    def function(x, y, p):
        z = torch.sigmoid(x) * 2
        powers = torch.pow(p, z) + 2 ** z + torch.max(z, y) + z.clamp(min=y)
        loss = F.mse_loss(z, y) + F.huber_loss(z, y, reduction="sum") + (z - y).norm()
        return powers * loss + F.normalize(z) + F.binary_cross_entropy_with_logits(z, p)

    inputs = [X.detach(), Y.detach(), P.detach()]
    report = ot.explain(function, *inputs)
    assert "0 left" in report, report
    compiled = torch.compile(function, backend=ot.backend)
    torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=1e-12, atol=1e-12)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "kl_div",
                                  "cosine_similarity", "pairwise_distance", "prelu", "norm", "pow",
                                  "binary_cross_entropy_with_logits", "normalize", "addmm"])
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_autocast(name):
    given = {"prelu": (X[:, :4], Y[0]), "norm": (X,), "normalize": (X,), "pow": (P, Y),
             "addmm": (X[:, :3], X[:, :3], Y[:, :3])}.get(name, (X, P))
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [each.detach().to(dtype).contiguous() for each in given]
        if name == "addmm":
            inputs = [each[:3] for each in inputs]
        with torch.autocast("cpu", torch.bfloat16):
            got, want = getattr(ot, name)(*inputs), reference(name)(*inputs)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
