# SPDX-License-Identifier: MIT
"""Every function of the formula language that gives a tensor, under its name.

Made from the library's own table. A function of tensors alone (sigmoid) is the compiled
formula itself. Others (softmax; products, whose precision may change) are Python functions
with the table's signature, whose numbers become part of the formula's text.

Left out: casts (Tensor.to) and views, which PyTorch has for free.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from ._autocast import TENSORS, VALUES, signatures
from ._operator import call
from ._precision import precision
from ._text import literal

__all__: list[str] = []
# Older versions (2.6 was looked at) trace numbers here, but not those made of sizes.
_TRACES_GUARDS = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 9]
# The input is cast first, if dtype is given.
_WITH_UNBIASED = {"var", "std", "var_mean", "std_mean"}
_OF_TWO = {"max": "maximum", "min": "minimum"}  # what they are of two tensors
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


def _cast_name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "float16", "bfloat16", "float64"):
        raise TypeError(f"dtype is {dtype}: expected float32, float16, bfloat16 or float64")
    return name


class _Function(NamedTuple):
    """One of the table's; the names of its parameters."""
    name: str
    tensors: tuple[str, ...]
    others: tuple[str, ...]
    optional: bool  # whether some of the tensors are
    flexible: bool  # whether some of the others may be tensors


def _text(function: _Function, tensors: tuple[str, ...], dtype: torch.dtype | None,
          others: tuple[Any, ...]) -> str:
    """The call as a formula."""
    arguments = [f"{name}={name}" for name in tensors]
    if dtype is not None:
        arguments[0] = f"input={_cast_name(dtype)}(input)"
    arguments += [f"{name}={literal(name, value)}" for name, value in zip(function.others, others)
                  if name not in tensors]
    return f"{function.name}({', '.join(arguments)})"


_PLAIN = frozenset({int, float, bool, str, type(None)})
_functions: dict[str, _Function] = {}
_MOST_FORMULAS = 1024
_formulas: dict[tuple[Any, ...], _core.Formula] = {}


def _apply(name: str, tensors: tuple[Any, ...], others: tuple[Any, ...], out: Any,
           dtype: torch.dtype | None = None) -> Any:
    function = _functions[name]
    names = function.tensors
    if function.optional:
        given = [tensor is not None for tensor in tensors]
        names, tensors = tuple(compress(names, given)), tuple(compress(tensors, given))
    if function.flexible and any([isinstance(value, Tensor) for value in others]):
        given = [name in VALUES and isinstance(value, Tensor)
                 for name, value in zip(function.others, others)]
        names += tuple(compress(function.others, given))
        tensors += tuple(compress(others, given))
        others = tuple([None if is_given else value for is_given, value in zip(given, others)])
    if torch.compiler.is_compiling():
        text = _text(function, names, dtype, tuple([_constant(value, True) for value in others]))
        return call(text, "", precision(), list(tensors), out)
    if not _PLAIN.issuperset(map(type, others)):  # sizes while PyTorch traces, say
        others = tuple([_constant(value, False) for value in others])
    # By what they look like: 0.0 is equal to -0.0, 1 to True.
    key = (name, names, repr(others), dtype, precision())
    formula = _formulas.get(key)
    if formula is None:
        formula = _core.compile(_text(function, names, dtype, others), precision())
        if len(_formulas) >= _MOST_FORMULAS:
            _formulas.clear()
        _formulas[key] = formula
    return formula(*tensors, out=out)


def _as_numpy(name: str, given: dict[str, Any], **values: Any) -> Iterable[Any]:
    """dim and keepdim, given as NumPy calls them, which PyTorch takes too."""
    for each, value in given.items():
        meant = {"axis": "dim", "keepdims": "keepdim"}.get(each)
        if meant not in values:
            raise TypeError(f"{name}() got an unexpected keyword argument '{each}'")
        values[meant] = value
    return values.values()


def _with_unbiased(parameters: str) -> str:
    """PyTorch's older signature of var and std: (input, dim, unbiased, keepdim) by place."""
    return parameters.replace(", *, correction=1.0, keepdim=False",
                              ", unbiased=None, keepdim=False, *, correction=1.0")


def _define(name: str, parameters: str) -> Callable[..., Any]:
    signature = signatures()[name].parameters
    tensors = [each for each in signature if each in TENSORS]
    function = _Function(
        name, tuple(tensors), tuple([each for each in signature if each not in TENSORS]),
        any(signature[each].default is not signature[each].empty for each in tensors),
        not VALUES.isdisjoint(signature))
    if name != "matmul" and not function.others and not function.optional:
        return _core.compile(f"{name}({', '.join(function.tensors)})")
    _functions[name] = function
    shown = _with_unbiased(parameters) if name in _WITH_UNBIASED else parameters
    keywords = "" if "*" in shown else ", *"
    if name in _WITH_DTYPE:
        keywords += ", dtype=None"
    body = ""
    if "dim" in signature:
        shown = re.sub(r"\bdim(?=,|$)", "dim=None", shown)  # axis= may be given in its place
        names = ["dim", *(["keepdim"] if "keepdim" in signature else [])]
        body = (f"    if other_names:\n        {', '.join(names)}, = "
                f"_as_numpy({name!r}, other_names, {', '.join(f'{each}={each}' for each in names)})\n")
        if signature["dim"].default is signature["dim"].empty:
            body += (f"    if dim is None:\n        raise TypeError(\"{name}() missing 1 required "
                     "argument: 'dim'\")\n")
    if name in _OF_TWO:
        body = ("    if isinstance(dim, Tensor) or 'other' in other_names:\n"
                f"        return {_OF_TWO[name]}(input, other_names.pop('other', dim), out=out)\n"
                + body)
    if name == "norm":
        body += "    if p is None or p == 'fro':\n        p = 2.0\n"
    if shown is not parameters and "unbiased" in shown:
        body += ("    if isinstance(dim, bool):\n        dim, unbiased = None, dim\n"
                 "    if unbiased is not None:\n        correction = 1.0 if unbiased else 0.0\n")
    source = (f"def {name}({shown}{keywords}, out=None{', **other_names' if body else ''}):\n{body}"
              f"    return _apply({name!r}, ({', '.join(function.tensors)},), "
              f"({' '.join(f'{each},' for each in function.others)}), out"
              f"{', dtype' if name in _WITH_DTYPE else ''})\n")
    space = {"_apply": _apply, "_as_numpy": _as_numpy, "inf": math.inf, "nan": math.nan,
             "Tensor": Tensor, "__name__": __name__}
    if name in _OF_TWO:
        space[_OF_TWO[name]] = globals()[_OF_TWO[name]]
    exec(compile(source, f"<ogive.torch.{name}>", "exec"), space)
    defined: Callable[..., Any] = space[name]  # type: ignore[assignment]
    defined.__doc__ = f"{name}({parameters}), as PyTorch's function of that name."
    own = inspect.signature(defined)
    defined.__signature__ = own.replace(parameters=[  # type: ignore[attr-defined]
        each for each in own.parameters.values() if each.kind != each.VAR_KEYWORD])
    return defined


for _name, _parameters, _group, _ in _core.functions():
    if _group not in ("cast", "view"):
        globals()[_name] = _define(_name, _parameters)
        __all__.append(_name)
