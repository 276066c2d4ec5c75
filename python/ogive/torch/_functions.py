# SPDX-License-Identifier: MIT
"""Every function of the formula language that gives a tensor, under its name.

Made from the library's own table. A function of tensors alone (sigmoid) is the compiled
formula itself. Others (softmax; products, whose precision may change) are Python functions
with the table's signature, whose numbers become part of the formula's text.

Left out: comparisons, whose masks are no tensors, casts (Tensor.to) and views, which PyTorch
has for free.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _core
from ._autocast import TENSORS, signatures
from ._operator import call
from ._precision import precision

__all__: list[str] = ["where"]
# Older versions (2.6 was looked at) trace numbers here, but not those made of sizes.
_TRACES_GUARDS = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 9]
# The input is cast first, if dtype is given.
_WITH_DTYPE = {"sum", "mean", "softmax", "softmin", "log_softmax"}


def _constant(value: Any, compiling: bool) -> Any:
    """value with sizes, which are symbols while PyTorch traces, made numbers with a guard:
    the formula's text will hold them."""
    if isinstance(value, (tuple, list)):
        return tuple([_constant(item, compiling) for item in value])
    number = not (value is None or isinstance(value, (bool, str, Tensor)))
    if isinstance(value, (torch.SymInt, torch.SymFloat)) or compiling and number and _TRACES_GUARDS:
        from torch.fx.experimental.symbolic_shapes import guard_scalar  # imports sympy
        return guard_scalar(value)
    return value


def _literal(name: str, value: Any) -> str:
    """A Python value as formula text."""
    if isinstance(value, tuple):
        return "[" + ", ".join([_literal(name, item) for item in value]) + "]"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise TypeError(f"{name} is a {type(value).__name__}: expected a number")


def _cast_name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "float16", "bfloat16", "float64"):
        raise TypeError(f"dtype is {dtype}: expected float32, float16, bfloat16 or float64")
    return name


def _text(function: str, tensors: tuple[str, ...], dtype: torch.dtype | None,
          names: tuple[str, ...], *values: Any) -> str:
    """The call as a formula."""
    arguments = [f"{name}={name}" for name in tensors]
    if dtype is not None:
        arguments[0] = f"input={_cast_name(dtype)}(input)"
    arguments += [f"{name}={_literal(name, value)}" for name, value in zip(names, values)]
    return f"{function}({', '.join(arguments)})"


@functools.lru_cache(maxsize=1024, typed=True)
def _compiled(precision: str, *call_parts: Any) -> _core.Formula:
    return _core.compile(_text(*call_parts), precision)


def _apply(function: str, tensors: dict[str, Any], others: dict[str, Any], out: Any,
           dtype: torch.dtype | None = None) -> Any:
    given = {name: value for name, value in tensors.items() if value is not None}
    parts = (function, tuple(given), dtype, tuple(others))
    values = others.values()
    if torch.compiler.is_compiling():
        text = _text(*parts, *[_constant(value, True) for value in values])
        return call(text, "", precision(), list(given.values()), out)
    try:
        formula = _compiled(precision(), *parts, *values)
    except TypeError:  # a list or a size, which are no keys of a cache
        formula = _compiled(precision(), *parts, *[_constant(value, False) for value in values])
    return formula(*given.values(), out=out)


def _define(name: str, parameters: str) -> Callable[..., Any]:
    signature = signatures()[name].parameters
    tensors = [each for each in signature if each in TENSORS]
    others = [each for each in signature if each not in TENSORS]
    if name != "matmul" and not others and all(
            signature[each].default is signature[each].empty for each in tensors):
        return _core.compile(f"{name}({', '.join(tensors)})")
    keywords = "" if "*" in parameters else ", *"
    if name in _WITH_DTYPE:
        keywords += ", dtype=None"
    source = (f"def {name}({parameters}{keywords}, out=None):\n"
              f"    return _apply({name!r}, dict({', '.join(f'{t}={t}' for t in tensors)}), "
              f"dict({', '.join(f'{o}={o}' for o in others)}), out"
              f"{', dtype' if name in _WITH_DTYPE else ''})\n")
    space = {"_apply": _apply, "inf": math.inf, "nan": math.nan, "__name__": __name__}
    exec(compile(source, f"<ogive.torch.{name}>", "exec"), space)
    function: Callable[..., Any] = space[name]  # type: ignore[assignment]
    function.__doc__ = f"{name}({parameters}), as PyTorch's function of that name."
    return function


def where(condition: Tensor, input: Any, other: Any, *, out: Any = None) -> Any:
    """where(condition, input, other), as PyTorch's: condition is a tensor of bool."""
    if not isinstance(condition, Tensor) or condition.dtype != torch.bool:
        raise TypeError("where expected condition to be a tensor of bool")
    model = input if isinstance(input, Tensor) else other
    if not isinstance(model, Tensor):
        raise TypeError("where: input and other are numbers: expected at least one tensor")
    mask = condition.to(model.dtype)
    return _apply_where(mask, input, other, out=out)


_apply_where = _core.compile("where(condition != 0, input, other)")

for _name, _parameters, _group in _core.functions():
    if _group not in ("comparison", "cast", "view"):
        globals()[_name] = _define(_name, _parameters)
        __all__.append(_name)
