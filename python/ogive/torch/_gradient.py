# SPDX-License-Identifier: MIT
"""The gradient of a formula by some of its inputs, as autograd's backward needs it: which inputs
have to be saved for it, and gradients that are one tensor are computed once, or are what came in.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from ._text import make


class Blank(NamedTuple):
    """What is known of a tensor that nobody reads."""
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


def _tensor(value: Tensor | Blank) -> Tensor:
    """value, or one element that is as large."""
    if not isinstance(value, Blank):
        return value
    return torch.empty((), dtype=value.dtype, device=value.device).expand(value.shape)


class Gradient:
    """Of formula by those of its inputs that are needed."""

    def __init__(self, formula: _core.Formula, needed: tuple[bool, ...]) -> None:
        self.by = [i for i, need in enumerate(needed) if need]
        self.formula = make(formula, [formula.inputs[i] for i in self.by])
        self.reads = self.formula._reads[:len(needed)]
        self._twins = self.formula._twins
        self._shares = any(passed is not None or twin != i
                           for i, (twin, passed) in enumerate(self._twins))
        self._parts: dict[tuple[int, ...], tuple[_core.Formula, list[int]]] = {}

    def __call__(self, values: Sequence[Tensor | Blank], grads: Sequence[Tensor],
                 straight: bool = True) -> list[Tensor]:
        """One for each of self.by. values: the formula's inputs, grads: by its results. straight:
        these are plain tensors, with numbers for sizes, so that equal layouts say all."""
        given = [*values, *grads]
        if not self._shares or not straight:
            results = self.formula(*map(_tensor, given))
            return list(results) if len(self.by) > 1 else [results]
        found: dict[int, Tensor] = {}
        wanted: list[int] = []
        sources: list[int] = []  # of each result, where it is found
        for i, (twin, passed) in enumerate(self._twins):
            value = values[self.by[i]]
            if passed is not None and isinstance(given[passed], Tensor) and _is_like(
                    given[passed], value):
                found[i] = given[passed]
            source = next((k for k in range(twin, i) if self._twins[k][0] == twin and sources[k] == k
                           and _is_like(values[self.by[k]], value)), i)
            if source == i and i not in found:
                wanted.append(i)
            sources.append(source)
        if wanted:
            found.update(zip(wanted, self._compute(tuple(wanted), given)))
        return [found[source] for source in sources]

    def _compute(self, wanted: tuple[int, ...], given: list[Tensor | Blank]) -> Sequence[Tensor]:
        """Some of the gradient's results."""
        if wanted not in self._parts:
            whole = len(wanted) == len(self.by)
            part = self.formula if whole else make(self.formula, map(str, wanted))
            self._parts[wanted] = part, [self.formula.inputs.index(name) for name in part.inputs]
        part, places = self._parts[wanted]
        results = part(*[_tensor(given[place]) for place in places])
        return results if len(wanted) > 1 else (results,)


def _is_like(one: Tensor | Blank, other: Tensor | Blank) -> bool:
    return bool(one.shape == other.shape and one.dtype == other.dtype
                and one.device == other.device)


@functools.lru_cache(maxsize=4096)
def gradient_of(formula: _core.Formula, needed: tuple[bool, ...]) -> Gradient:
    return Gradient(formula, needed)


def save(ctx: Any, tensors: Sequence[Tensor], reads: Sequence[bool]) -> None:
    """Those that are read; of others what is known of them."""
    ctx.blanks = [None if read else Blank(tensor.shape, tensor.dtype, tensor.device)
                  for tensor, read in zip(tensors, reads)]
    ctx.save_for_backward(*[tensor for tensor, read in zip(tensors, reads) if read])


def restore_saved(ctx: Any) -> list[Tensor | Blank]:
    """What save() was given."""
    saved = iter(ctx.saved_tensors)  # once: torch.utils.checkpoint gives them no second time
    return [blank or next(saved) for blank in ctx.blanks]
