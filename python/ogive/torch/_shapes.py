# SPDX-License-Identifier: MIT
"""Shapes and dtypes of results for tensors without data, symbolic sizes included.

The library infers shapes from numbers. A result's size is always 1 or one of an
input's sizes (no function of the language multiplies sizes), so symbols can stand in as
numbers that nothing else has, and be put back afterwards. What the library accepts with
two different sets of such numbers holds for all.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def _stand_in(shapes: Sequence[tuple[Size, ...]], first: int) -> dict[Any, tuple[int, Size]]:
    """symbolic expression -> (a number that is no size here, the symbol). Small enough
    that eight such dims are still a tensor."""
    used = {size for shape in shapes for size in shape if isinstance(size, int)}
    numbers = (number for number in range(first, 1 << 30) if number not in used)
    symbols: dict[Any, tuple[int, Size]] = {}
    for shape in shapes:
        for size in shape:
            if not isinstance(size, int) and size.node.expr not in symbols:
                symbols[size.node.expr] = (next(numbers), size)
    return symbols


def _ask_symbolically(formula: _core.Formula, shapes: Sequence[tuple[Size, ...]],
                      dtypes: Sequence[str]) -> list[Layout]:
    answers = []
    for first in (101, 151):
        symbols = _stand_in(shapes, first)
        back = dict(symbols.values())
        numbers = [tuple(size if isinstance(size, int) else symbols[size.node.expr][0]
                         for size in shape) for shape in shapes]
        answers.append([(tuple(back.get(size, size) for size in shape), dtype)
                        for shape, dtype in _ask(formula, numbers, dtypes)])
    if repr(answers[0]) != repr(answers[1]):
        raise ValueError("sizes depend on the numbers that stand in for symbols")
    return answers[0]


def _unify(shapes: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Symbols that have the same value here become one, guarded by their equality; a
    symbol with the value of a plain size becomes that size."""
    known: dict[int, Size] = {size: size for shape in shapes for size in shape
                              if isinstance(size, int)}

    def unified(size: Size) -> Size:
        if isinstance(size, int) or not size.node.has_hint():
            return size
        other = known.setdefault(size.node.hint, size)
        return other if other is size or bool(size == other) else size

    return [tuple(unified(size) for size in shape) for shape in shapes]


def infer(formula: _core.Formula, inputs: Sequence[Tensor]) -> list[Layout]:
    """(shape, dtype) of each result."""
    shapes: list[tuple[Size, ...]] = [tuple(tensor.shape) for tensor in inputs]
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in inputs]
    if all(isinstance(size, int) for shape in shapes for size in shape):
        return _ask(formula, shapes, dtypes)
    try:
        return _ask_symbolically(formula, shapes, dtypes)
    except ValueError:  # sizes that have to be equal, to each other or to a number
        pass
    try:
        return _ask_symbolically(formula, _unify(shapes), dtypes)
    except ValueError:
        return _ask(formula, [tuple(int(size) for size in shape) for shape in shapes], dtypes)
