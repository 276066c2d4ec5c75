# SPDX-License-Identifier: MIT
"""In which order the kernels of a formula add, for given layouts: ogive_plan_sums()."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _core

Layout = Any  # (shape, dtype's name), or (shape, dtype's name, strides)


class Sum(NamedTuple):
    """What the bits of a kernel's sums depend on."""
    order: int
    lead: Any  # the number of an input, or its name
    extents: tuple[int, ...]
    exponentials: int


@functools.lru_cache(maxsize=4096)
def _orders(formula: _core.Formula, *layouts: Layout) -> list[tuple[Any, ...]]:
    return formula._orders(*layouts)


def find_sums(formula: _core.Formula, layouts: Sequence[Layout]) -> list[Sum]:
    """Of kernels that have sums, other than products."""
    return [Sum(*kernel[:4]) for kernel in _orders(formula, *layouts) if kernel[0]]


def products_of(formula: _core.Formula, layouts: Sequence[Layout]) -> list[int]:
    """The k of each kernel that has products; -1: it slides windows."""
    return [kernel[5] for kernel in _orders(formula, *layouts) if kernel[4]]


def with_part(layouts: Sequence[Layout], dims: Sequence[int | None], size: int) -> list[Layout]:
    """Layouts of parts of size along dims, seen in the whole tensors, which are contiguous."""
    found: list[Layout] = []
    for (shape, dtype, *_), dim in zip(layouts, dims):
        if dim is None:
            found.append((shape, dtype))
            continue
        strides: list[int] = []
        step = 1
        for extent in reversed(shape):
            strides.insert(0, step)
            step *= extent
        found.append(((*shape[:dim], size, *shape[dim + 1:]), dtype, tuple(strides)))
    return found


def part_sizes(extent: int, ranks: int) -> set[int]:
    """The lengths of parts that are not empty, as torch.chunk() makes them."""
    part = -(-extent // ranks)
    return {part, extent % part or part}


def keeps_order(formula: _core.Formula, layouts: Sequence[Layout], dims: Sequence[int | None],
                sizes: set[int]) -> bool:
    """Whether parts of these sizes along dims are added as the whole is."""
    whole = find_sums(formula, layouts)
    return not whole or all([find_sums(formula, with_part(layouts, dims, size)) == whole
                             for size in sizes])
