# SPDX-License-Identifier: MIT
"""Shapes and dtypes of results for tensors without data, symbolic sizes included.

The library infers shapes from numbers. A result's size is always 1 or one of an
input's sizes (no function of the language multiplies sizes), so symbols can stand in as
numbers that nothing else has, and be put back afterwards. What the library accepts with
two different sets of such numbers holds for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core

Size = Any  # int or torch.SymInt
Layout = tuple[tuple[Size, ...], torch.dtype]


def _ask(formula: _core.Formula, shapes: Sequence[tuple[int, ...]],
         dtypes: Sequence[str]) -> list[Layout]:
    return [(shape, getattr(torch, dtype))
            for shape, dtype in formula._infer(*zip(shapes, dtypes))]


def _ask_symbolically(formula: _core.Formula, shapes: Sequence[tuple[Size, ...]],
                      dtypes: Sequence[str], fixed: Iterable[Any] = ()) -> list[Layout]:
    """Symbols in fixed count with the value they have here."""
    used = {size for shape in shapes for size in shape if isinstance(size, int)}
    answers = []
    for first in (101, 151):  # small enough that eight such dims are still a tensor
        numbers = (number for number in range(first, 1 << 30) if number not in used)
        stands_for: dict[int, Size] = {}
        stand_ins: dict[Any, int] = {}

        def number_of(size: Size) -> int:
            if isinstance(size, int):
                return size
            symbol = size.node.expr
            if symbol not in stand_ins:
                stand_ins[symbol] = size.node.hint if symbol in fixed else next(numbers)
                stands_for[stand_ins[symbol]] = size
            return stand_ins[symbol]

        asked = [tuple([number_of(size) for size in shape]) for shape in shapes]
        answers.append([(tuple([stands_for.get(size, size) for size in shape]), dtype)
                        for shape, dtype in _ask(formula, asked, dtypes)])
    if repr(answers[0]) != repr(answers[1]):
        raise ValueError("sizes depend on the numbers that stand in for symbols")
    return answers[0]


def _unify(shapes: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Symbols that have the same value here become one, guarded by their equality; a
    symbol with the value of a plain size becomes that size."""
    known: dict[int, Size] = {size: size for shape in shapes for size in shape
                              if isinstance(size, int)}

    def unified(size: Size) -> Size:
        if isinstance(size, int):
            return size
        other = known.setdefault(size.node.hint, size)
        return other if other is size or bool(size == other) else size

    return [tuple([unified(size) for size in shape]) for shape in shapes]


def _fix_what_must_be(formula: _core.Formula, shapes: Sequence[tuple[Size, ...]],
                      dtypes: Sequence[str]) -> list[Layout]:
    """A symbol that has to have one value (layer_norm's) is given it, with a guard; the
    others stay symbols."""
    symbols = {size.node.expr: size for shape in shapes for size in shape
               if not isinstance(size, int)}
    fixed = set(symbols)
    _ask_symbolically(formula, shapes, dtypes, fixed)  # else even these values do not fit
    for symbol in symbols:
        try:
            _ask_symbolically(formula, shapes, dtypes, fixed - {symbol})
            fixed.remove(symbol)
        except ValueError:
            continue
    known = [[None if isinstance(size, int) else size.node.expr for size in shape]
             for shape in shapes]
    values = {symbol: int(symbols[symbol]) for symbol in fixed}  # int() is the guard
    return _ask_symbolically(formula, [
        tuple([values.get(symbol, size) for size, symbol in zip(shape, of)])
        for shape, of in zip(shapes, known)], dtypes)


def infer(formula: _core.Formula, inputs: Sequence[Tensor]) -> list[Layout]:
    """(shape, dtype) of each result."""
    shapes: list[tuple[Size, ...]] = [tuple(tensor.shape) for tensor in inputs]
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in inputs]
    if all(isinstance(size, int) for shape in shapes for size in shape):
        return _ask(formula, shapes, dtypes)
    try:
        return _ask_symbolically(formula, shapes, dtypes)
    except ValueError:  # sizes that have to be equal, to each other or to a number
        if not all(isinstance(size, int) or size.node.has_hint() for shape in shapes
                   for size in shape):
            raise
    shapes = _unify(shapes)
    try:
        return _ask_symbolically(formula, shapes, dtypes)
    except ValueError:
        return _fix_what_must_be(formula, shapes, dtypes)
