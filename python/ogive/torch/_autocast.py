# SPDX-License-Identifier: MIT
"""Autocast for formulas: casts where PyTorch would cast the arguments of its function of that
name, so that results have the dtypes of the eager chain.

Which functions those are is asked of PyTorch itself, by a call on a small tensor: its lists
differ between devices and versions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core

TENSORS = {"input", "other", "weight", "bias", "condition", "target", "pos_weight", "anchor",
           "positive", "negative", "x", "x1", "x2", "mat1", "mat2", "running_mean", "running_var"}
VALUES = {"exponent", "min", "max"}  # tensors or numbers
# For parameters without a default, and those that PyTorch wants one of, in a call on a (2, 2)
# tensor (of one element std() would warn).
_SAMPLES = {"dim": 0, "dim0": 0, "dim1": 0, "normalized_shape": (2,), "exponent": 3,
            "threshold": 0.0, "value": 0.0, "min": 0.0, "kernel_size": 2, "output_size": 1,
            "norm_type": 2.0, "num_groups": 1}
# Of what functions of images and volumes take; convolutions: one more.
_DIMS = {"2d": 3, "3d": 4}


@functools.cache
def signatures() -> dict[str, inspect.Signature]:
    """Of every function of the language."""
    space: dict[str, Any] = {}
    for name, parameters, *_ in _core.functions():
        exec(f"def {name}({parameters}): ...", {"inf": float("inf"), "nan": float("nan")}, space)
    return {name: inspect.signature(function) for name, function in space.items()}


@functools.cache
def _wanted_dtype(name: str, device: str, low: torch.dtype) -> torch.dtype | None:
    """The dtype that PyTorch casts the arguments of its function name to, under the
    autocast that is on; None: it does not."""
    function: Callable[..., Any] | None = (getattr(F, name, None) or getattr(torch, name, None)
                                           or getattr(torch.linalg, name, None))
    if not callable(function) or isinstance(function, torch.dtype):
        return None

    def result(dtype: torch.dtype) -> Any:
        rank = _DIMS.get(name[-2:], 2) + (name.startswith("conv") or name == "instance_norm")
        tensor = torch.ones((2,) * rank, dtype=dtype, device=device)
        arguments = [tensor if parameter.name in TENSORS else _SAMPLES[parameter.name]
                     for parameter in signatures()[name].parameters.values()
                     if parameter.default is parameter.empty or parameter.name == "min"]
        if name == "prelu":
            arguments[1] = tensor[0]
        if name == "batch_norm":
            arguments += [tensor[0], tensor[0]]
        result = function(*arguments)
        return (result[0] if isinstance(result, tuple) else result).dtype

    if name in ("where", "t", "transpose"):
        return None
    # Nothing of this belongs into a graph that is being traced.
    with torch.no_grad(), _disable_current_modes():
        if result(torch.float32) == low:
            return low
        return torch.float32 if result(low) == torch.float32 else None


@functools.lru_cache(maxsize=1024)
def find_casts(text: str, device: str, low: torch.dtype) -> str:
    """The casts that autocast to low would make in text on device, as a step."""
    formula = _core.compile(text)
    wanted = {name: _wanted_dtype(name, device, low) for name in signatures()
              if formula._calls(name)}
    return ",".join([f"{name}={str(dtype).removeprefix('torch.')}"
                     for name, dtype in wanted.items() if dtype is not None])
