# SPDX-License-Identifier: MIT
"""New arrays for results, where a framework offers no C function for it."""

from __future__ import annotations

import sys
from typing import Any


def empty(model: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An uninitialised array of model's framework and device."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=model.device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(model, numpy.ndarray):
        if dtype == "bfloat16":
            raise TypeError("a result is bfloat16, which NumPy does not have: "
                            "cast it in the formula, as in float32(...)")
        return numpy.empty(shape, dtype)
    if not hasattr(model, "__array_namespace__"):
        raise TypeError(f"no way to make new arrays of {type(model)!r}: pass out=")
    space = model.__array_namespace__()
    return space.empty(shape, dtype=getattr(space, dtype), device=model.device)
