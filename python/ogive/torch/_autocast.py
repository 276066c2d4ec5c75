# SPDX-License-Identifier: MIT
"""Autocast for formulas: casts written into the text where PyTorch would cast the
arguments of its function of that name, so that results have the dtypes of the eager chain.

Which functions those are is asked of PyTorch itself, by a call on a small tensor: its lists
differ between devices and versions.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from ._text import Program, read

TENSORS = {"input", "other", "weight", "bias", "condition"}
# For parameters without a default, and those that PyTorch wants one of, in a call on a (2, 2)
# tensor (of one element std() would warn).
_SAMPLES = {"dim": 0, "dim0": 0, "dim1": 0, "normalized_shape": (2,), "exponent": 3,
            "threshold": 0.0, "value": 0.0, "min": 0.0}


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
    function: Callable[..., Any] | None = getattr(torch, name, None) or getattr(F, name, None)
    if not callable(function) or isinstance(function, torch.dtype):
        return None

    def result(dtype: torch.dtype) -> Any:
        tensor = torch.ones(2, 2, dtype=dtype, device=device)
        arguments = [tensor if parameter.name in TENSORS else _SAMPLES[parameter.name]
                     for parameter in signatures()[name].parameters.values()
                     if parameter.default is parameter.empty or parameter.name == "min"]
        return function(*arguments).dtype

    if name in ("where", "t", "transpose"):
        return None
    # Nothing of this belongs into a graph that is being traced.
    with torch.no_grad(), _disable_current_modes():
        if result(torch.float32) == low:
            return low
        return torch.float32 if result(low) == torch.float32 else None


class _Caster(ast.NodeTransformer):
    def __init__(self, device: str, low: torch.dtype) -> None:
        self.device, self.low = device, low

    def _cast(self, name: str, value: ast.expr) -> ast.expr:
        dtype = _wanted_dtype(name, self.device, self.low)
        if dtype is None or isinstance(value, ast.Constant):
            return value
        return ast.Call(ast.Name(str(dtype).removeprefix("torch.")), [value], [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult):
            node.left = self._cast("matmul", node.left)
            node.right = self._cast("matmul", node.right)
        elif isinstance(node.op, ast.Pow):
            node.left = self._cast("pow", node.left)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in signatures():
            return node
        names = list(signatures()[name].parameters)
        node.args = [self._cast(name, value) if parameter in TENSORS else value
                     for parameter, value in zip(names, node.args)]
        for argument in node.keywords:
            if argument.arg in TENSORS:
                argument.value = self._cast(name, argument.value)
        return node


@functools.lru_cache(maxsize=1024)
def cast_as_autocast(text: str, device: str, low: torch.dtype) -> str:
    """text with the casts that autocast to low would make on device."""
    try:
        program = read(text)
        caster = _Caster(device, low)
        return Program([(name, caster.visit(value)) for name, value in program.bindings],
                       [caster.visit(result) for result in program.results],
                       program.stand_ins).text()
    except (SyntaxError, RecursionError) as error:
        raise NotImplementedError(f"autocast cannot read this formula: {error}") from None
