# SPDX-License-Identifier: MIT
"""Ogive runs a one-line formula as fused kernels, mostly a single one.

    f = ogive.compile("z = linear(x, w, b); z + 2.0 * sigmoid(z)")
    y = f(x, w, b)

Tensors of PyTorch and NumPy, and of anything else that speaks DLPack, go in; results
of the same kind come out. ogive.torch holds what only PyTorch needs.
"""

from ._core import DeviceError, Formula, FormulaError, __version__, compile

__all__ = ["DeviceError", "Formula", "FormulaError", "__version__", "compile"]
