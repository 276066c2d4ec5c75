# SPDX-License-Identifier: MIT
"""Ogive for PyTorch.

    import ogive.torch as ot
    ot.softmax(x, dim=1)
    tail = ot.Formula("z = linear(x, fc.weight, fc.bias); z + 2.0 * sigmoid(z)", fc=model.fc)

Every function of the formula language that gives a tensor is here under its name, with
PyTorch's meaning. Gradients of any order, autocast, torch.compile, torch.func and
torch.export work as for PyTorch's own functions. torch.compile(model, backend="ogive") finds
what formulas can do in an ordinary model; explain(model, *args) says what that is.
"""

from typing import Any

from ._functions import *  # noqa: F403
from ._functions import __all__ as _names
from ._module import Formula
from ._precision import set_precision
from ._sums import set_sums


def __getattr__(name: str) -> Any:
    if name in ("backend", "explain"):  # imports Dynamo
        from . import _backend
        return getattr(_backend, name)
    raise AttributeError(f"module 'ogive.torch' has no attribute '{name}'")


__all__ = ["Formula", "backend", "explain", "set_precision", "set_sums", *_names]


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("_")} | {*__all__})
