# SPDX-License-Identifier: MIT
"""Windows on PyTorch's own samples (its OpInfos): values, gradients by every tensor and, of
convolutions, second derivatives, in float64. test_torch_values.py has the values of every
function in float32."""

import pytest
import torch

import ogive
import ogive.torch as ot

samples = pytest.importorskip("torch.testing._internal.common_methods_invocations",
                              reason="PyTorch's samples need expecttest")

WINDOWS = [f"nn.functional.{name}{dims}d" for dims in (1, 2, 3)
           for name in ("conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool",
                        "adaptive_max_pool")]
OPERATORS = [op for op in samples.op_db if op.name in (*WINDOWS, "unfold", "narrow")]
MOST = 60  # of the samples of one operator: max_pool2d has 1440


def as_call(op):
    """The same function here."""
    if op.name in ("unfold", "narrow"):
        return lambda x, *args: ogive.compile(f"{op.name}(x, {', '.join(map(str, args))})")(x)
    return getattr(ot, op.name.removeprefix("nn.functional."))


def is_known(op, sample):
    """No indices; no start of narrow that is a tensor; no windows of something empty."""
    flags = sample.kwargs.get("return_indices") or (
        "adaptive_max" in op.name and any(each is True for each in sample.args))
    is_tensor = op.name == "narrow" and any(isinstance(each, torch.Tensor) for each in sample.args)
    return not flags and not is_tensor and (op.name != "unfold" or sample.input.dim() > 0)


def results(function, sample, second):
    """The value, its gradient by the input, weight and bias; second: that of its square, too."""
    tensors = [each for each in (sample.input, *sample.args)
               if isinstance(each, torch.Tensor) and each.requires_grad]
    y = function(sample.input, *sample.args, **sample.kwargs)
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    first = torch.autograd.grad(y, tensors, weights, create_graph=second)
    if not second:
        return y, *first
    squares = sum((each * each).sum() for each in first)
    return y, *first, *torch.autograd.grad(squares, tensors, allow_unused=True)  # not by the bias


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_samples(op):
    function, second = as_call(op), "conv" in op.name
    known = [each for each in op.sample_inputs("cpu", torch.float64, requires_grad=True)
             if is_known(op, each)]
    assert len(known) > 0
    for sample in known[::max(1, len(known) // MOST)]:
        for got, want in zip(results(function, sample, second), results(op.op, sample, second),
                             strict=True):
            torch.testing.assert_close(got, want, msg=lambda m: f"{m}\n{sample}")


def test_all_are_there():
    assert {op.name for op in OPERATORS} == {*WINDOWS, "unfold", "narrow"}
