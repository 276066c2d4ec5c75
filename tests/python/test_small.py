# SPDX-License-Identifier: MIT
"""Small values that cost more than to read them, behind a product: computed once, in a kernel of
their own, where many results read them. No bit may depend on that."""

import pytest
import torch

import ogive


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("formula, kernels", [
    ("relu(batch_norm(conv2d(x, w, padding=1), m, v, g, b))", 2),
    ("z = conv2d(x, w, padding=1); z * exp(s) + z", 2)])
def test_the_same_bits_as_of_parts(data, device, dtype, formula, kernels):
    """A part of the batch is too small for another kernel."""
    x, w = data(16, 8, 48, 48, dtype=dtype), data(8, 8, 3, 3, dtype=dtype)
    m, g, b = (data(8, dtype=dtype) for _ in range(3))
    v = data(8, dtype=dtype).abs() + 0.5
    named = {"x": x, "w": w, "m": m, "v": v, "g": g, "b": b, "s": g.view(8, 1, 1)}
    f = ogive.compile(formula, precision="strict")
    given = {name: named[name] for name in f.inputs}
    layouts = [(tuple(each.shape), str(each.dtype)[6:]) for each in given.values()]
    assert len(f._kernels(*layouts)) == kernels
    whole = f(**given)
    for i in range(0, 16, 8):
        part = {**given, "x": x[i:i + 8]}
        layouts = [(tuple(each.shape), str(each.dtype)[6:]) for each in part.values()]
        assert len(f._kernels(*layouts)) == 1
        assert torch.equal(f(**part), whole[i:i + 8])
