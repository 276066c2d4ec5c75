# SPDX-License-Identifier: MIT
"""Python values as formula text, and formulas by what describes them: their text and the
steps that made something else of it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .. import _core


@functools.lru_cache(maxsize=1024)
def restore(text: str, steps: str, precision: str) -> _core.Formula:
    return _core._restore(text, steps, precision)


def make(formula: _core.Formula, items: Iterable[str]) -> _core.Formula:
    """What one step more makes of formula: names of inputs, its gradient by them; "0" and
    "<1", the part of it that computes value 0, given value 1 (ogive_formula_make())."""
    step = ",".join(items)
    return restore(formula.text, f"{formula.steps};{step}" if formula.steps else step,
                   formula.precision)


def literal(name: str, value: Any) -> str:
    """A Python value as formula text."""
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join([literal(name, item) for item in value]) + "]"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if not isinstance(value, Tensor):
        if hasattr(value, "__index__"):  # NumPy's numbers, whose repr() is another
            return repr(operator.index(value))
        if hasattr(value, "__float__"):
            return repr(float(value))
    raise TypeError(f"{name} is a {type(value).__name__}: expected a number")
