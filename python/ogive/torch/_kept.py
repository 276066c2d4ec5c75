# SPDX-License-Identifier: MIT
"""Which matrix products of a formula are kept for its gradient.

A gradient computes again what it needs of the forward pass. For a product of k terms that is
2 k operations an element, beside which writing and reading the element is little: from some k
on it is kept. The formula is then cut at its products: "z = linear(x, w); z * tanh(z)" gives
z as one more result, and its gradient is that of z * tanh(z) by z, then that of
linear(x, w).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from ._gradient import Gradient, gradient_of
from ._text import make, restore

# Terms of a product from which on it is kept. Forward and backward of z + 2 sigmoid(z) on
# one core, ms kept and computed again, k of 64, 128, 512, 1024: .82 .85, 1.13 1.16, 4.2 9.9,
# 34 43; on an H200, 8192 x 4096 x k of 128, 256, 512: 1.02 1.05, 1.34 1.51, 2.21 2.37.
# Below, the memory is worth more.
FEWEST_TERMS = 128
_MOST_RESULTS = 64  # of a formula


@dataclasses.dataclass(frozen=True)
class Part:
    """A formula of some of the values of a cut: the inputs, then the kept products."""
    formula: _core.Formula
    places: tuple[int, ...]  # of its inputs among the values


@dataclasses.dataclass(frozen=True)
class Cut:
    """A formula cut at some of its products."""
    whole: Part  # the formula's results, then the kept products
    products: tuple[Part, ...]  # each from inputs and earlier ones
    tail: Part  # the formula's results from its inputs and the kept products

    @functools.lru_cache(maxsize=1024)
    def gradients(self, needed: tuple[bool, ...]) -> list[Gradient | None]:
        """Of the products, then of the tail, by what is needed of the inputs, or leads to it."""
        wanted, found = list(needed), list[Gradient | None]()
        for part in (*self.products, self.tail):
            by = tuple([wanted[place] for place in part.places])
            found.append(gradient_of(part.formula, by) if any(by) else None)
            wanted.append(any(by))
        return found

    def reads(self, needed: tuple[bool, ...]) -> list[bool]:
        """Which of the values these gradients read."""
        read = [False] * (len(needed) + len(self.products))
        for part, gradient in zip((*self.products, self.tail), self.gradients(needed)):
            for place, reads in zip(part.places, gradient.reads if gradient else ()):
                read[place] |= reads
        return read


@functools.lru_cache(maxsize=1024)
def results_of(formula: _core.Formula, wanted: tuple[int, ...]) -> Part:
    """formula with some of its results."""
    if len(wanted) == formula.results:
        return Part(formula, tuple(range(len(formula.inputs))))
    return _part(formula, wanted)


def _part(formula: _core.Formula, wanted: Iterable[int], given: Iterable[int] = ()) -> Part:
    made = make(formula, [*map(str, wanted), *(f"<{value}" for value in given)])
    return Part(made, tuple([formula.inputs.index(name) if name in formula.inputs else
                             len(formula.inputs) + int(name.rpartition(".")[2])
                             for name in made.inputs]))


@functools.lru_cache(maxsize=1024)
def _left_factors(text: str, steps: str) -> list[Part]:
    """Of each product."""
    formula = restore(text, steps, "float32")
    return [_part(formula, [formula.results + 2 * i + 1]) for i in range(formula._products)]


@functools.lru_cache(maxsize=1024)
def _cut(text: str, steps: str, precision: str, kept: tuple[int, ...]) -> Cut:
    formula = restore(text, steps, precision)
    results, products = range(formula.results), [formula.results + 2 * i for i in kept]
    return Cut(_part(formula, [*results, *products]),
               tuple([_part(formula, [value], products[:i]) for i, value in enumerate(products)]),
               _part(formula, results, products))


@functools.lru_cache(maxsize=1024)
def _read_products(text: str, steps: str, precision: str, kept: tuple[int, ...]) -> tuple[int, ...]:
    """Those whose elements some gradient reads: x + linear(h, w) has none."""
    cut = _cut(text, steps, precision, kept)
    inputs = len(restore(text, steps, precision).inputs)
    read = cut.reads((True,) * inputs)[inputs:]
    return tuple([product for product, reads in zip(kept, read) if reads])


def _terms(factor: Part, inputs: Sequence[Tensor]) -> int:
    """The k of a product; symbols count as many."""
    tensors = [inputs[place] for place in factor.places]
    if any(not isinstance(size, int) for tensor in tensors for size in tensor.shape):
        return FEWEST_TERMS
    return _last_size(factor.formula, *[(tensor.shape, tensor.dtype) for tensor in tensors])


@functools.lru_cache(maxsize=1024)
def _last_size(formula: _core.Formula, *layouts: tuple[torch.Size, torch.dtype]) -> int:
    shape: tuple[int, ...] = formula._infer(*[(tuple(shape), str(dtype).removeprefix("torch."))
                                              for shape, dtype in layouts])[0][0]
    return shape[-1] if shape else 0


def has_products(formula: _core.Formula) -> bool:
    """Whether find_cut() has to look at the inputs: not of what is no forward formula."""
    return formula._products > 0 and (not formula.steps or "=" in formula.steps.rpartition(";")[2])


def find_cut(formula: _core.Formula, inputs: Sequence[Tensor]) -> Cut | None:
    """Where to cut formula, which has these inputs; None: nothing is worth keeping."""
    if not has_products(formula):
        return None
    kept = [i for i, factor in enumerate(_left_factors(formula.text, formula.steps))
            if _terms(factor, inputs) >= FEWEST_TERMS][:_MOST_RESULTS - formula.results]
    described = formula.text, formula.steps, formula.precision
    read = _read_products(*described, tuple(kept)) if kept else ()
    return _cut(*described, read) if read else None


def describe_gradient(formula: _core.Formula, inputs: Sequence[Any]) -> str:
    """What the gradient keeps of a call on these inputs; "" if it has none."""
    if not any(isinstance(value, Tensor) and value.requires_grad for value in inputs):
        return ""
    tensors = [value if isinstance(value, Tensor) else torch.zeros(()) for value in inputs]
    cut = find_cut(formula, tensors)
    needed = tuple([tensor.requires_grad for tensor in tensors])
    reads = cut.reads(needed) if cut else gradient_of(formula, needed).reads
    names = [name for name, read in zip(formula.inputs, reads) if read]
    inputs_kept = "the inputs" if len(names) == len(tensors) else ", ".join(names) or "nothing"
    if cut is None:
        return f"gradient: keeps {inputs_kept}, computes what else it needs again\n"
    kept = ", ".join("the product of " + " and ".join(
        formula.inputs[place] if place < len(formula.inputs) else "an earlier product"
        for place in product.places) for product in cut.products)
    return (f"gradient: keeps {inputs_kept} and {kept}: to compute it again, {FEWEST_TERMS} or more "
            "products an element, would take longer than to read it\n")
