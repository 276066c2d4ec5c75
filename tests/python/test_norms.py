# SPDX-License-Identifier: MIT
"""Norms over channels beside PyTorch's of float64: values in every dtype and layout, errors.
test_torch_gradients.py has their gradients."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import ogive.torch as ot
from ogive.torch import _backend

SHAPES = [(3, 12, 5, 7), (4, 12), (2, 12, 9), (2, 12, 2, 3, 4), (1, 12, 5, 5), (3, 12, 1, 1)]
BOUNDS = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 6e-2, torch.float16: 1e-2}


def layouts(x):
    yield x
    yield x.transpose(0, -1).contiguous().transpose(0, -1)
    yield torch.stack([x, x], -1)[..., 0]
    if x.dim() == 4:
        yield x.to(memory_format=torch.channels_last)


def check(got, want, dtype):
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want, rtol=0, atol=BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape, dtype, data, device):
    w, b, mean, var = [data(12).to(dtype) for _ in range(4)]
    var = var.abs() + 0.5
    for x in layouts(data(*shape).to(dtype)):
        wide = [each.double() for each in (x, w, b, mean, var)]
        xd, wd, bd, md, vd = wide
        for groups in (1, 2, 3, 12):
            if xd.numel() // xd.shape[0] == groups:
                continue  # of one element each
            check(ot.group_norm(x, groups, w, b), F.group_norm(xd, groups, wd, bd), dtype)
            check(ot.group_norm(x, groups, eps=1e-3), F.group_norm(xd, groups, eps=1e-3), dtype)
        check(ot.batch_norm(x, mean, var, w, b), F.batch_norm(xd, md, vd, wd, bd), dtype)
        check(ot.batch_norm(x, mean, var), F.batch_norm(xd, md, vd), dtype)
        if xd.numel() > 12:
            check(ot.batch_norm(x, None, None, w, b, True),
                  F.batch_norm(xd, None, None, wd, bd, True), dtype)
        check(ot.instance_norm(x, mean, var, w, b, False),
              F.instance_norm(xd, md, vd, wd, bd, False), dtype)
        if xd[0, 0].numel() > 1:
            check(ot.instance_norm(x, weight=w, bias=b),
                  F.instance_norm(xd, weight=wd, bias=bd), dtype)


def test_halves_with_float32_parameters(data, device):
    x, w, b = data(3, 6, 4).to(torch.bfloat16), data(6), data(6)
    check(ot.group_norm(x, 3, w, b), F.group_norm(x.double(), 3, w.double(), b.double()),
          torch.bfloat16)
    check(ot.batch_norm(x, b, w * w, w, b),
          F.batch_norm(x.double(), b.double(), (w * w).double(), w.double(), b.double()),
          torch.bfloat16)


def test_one_value_a_channel(data):
    for call in (lambda x: ot.batch_norm(x, None, None, training=True), ot.instance_norm):
        with pytest.raises(ValueError, match="expected more than 1 value per channel"):
            call(data(1, 6, 1))


def test_running_values_do_not_change(data):
    x, mean, var = data(2, 6, 3), data(6), data(6).abs()
    with pytest.raises(ValueError, match="running_mean must be None where training is true"):
        ot.batch_norm(x, mean, var, training=True)
    with pytest.raises(ValueError, match="num_groups is 4, but an input of shape"):
        ot.group_norm(x, 4)


def convolved():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.GroupNorm(2, 8),
                         nn.Hardswish(), nn.InstanceNorm2d(8, affine=True), nn.Tanh())


@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("training", [True, False])
def test_backend(training, level):
    """Results, gradients and running values are eager's."""
    torch.manual_seed(0)
    model, x = convolved().train(training), torch.randn(2, 3, 9, 9)
    other = copy.deepcopy(model)
    torch._dynamo.reset()
    got = torch.compile(other, backend=_backend.backend, options={"level": level})(x)
    want = model(x)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    got.square().sum().backward()
    want.square().sum().backward()
    for one, two in zip(other.parameters(), model.parameters()):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-3)
    for one, two in zip(other.buffers(), model.buffers()):
        torch.testing.assert_close(one, two)


def test_backend_explains():
    model, x = convolved(), torch.randn(2, 3, 9, 9)
    text = ot.explain(model, x)
    assert "batch_norm, relu, group_norm, hardswish, instance_norm, tanh" in text
    assert "left: add_: it writes to a tensor" in text  # the number of batches
    assert "batch_norm, relu, group_norm, hardswish, instance_norm, tanh" in ot.explain(model.eval(), x)
