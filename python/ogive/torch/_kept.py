# SPDX-License-Identifier: MIT
"""Which matrix products of a formula are kept for its gradient.

A gradient computes again what it needs of the forward pass. For a product of k terms that is
2 k operations an element, beside which writing and reading the element is little: from some k
on it is kept. The formula is then cut at its products: "z = linear(x, w); z * tanh(z)" gives
kept0 = linear(x, w) as one more result, and its gradient is that of "z = kept0; z * tanh(z)",
then that of "linear(x, w)".
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from ._text import Program, read

# Terms of a product from which on it is kept. Forward and backward of z + 2 sigmoid(z) on
# one core, ms kept and computed again, k of 64, 128, 512, 1024: .82 .85, 1.13 1.16, 4.2 9.9,
# 34 43; on an H200, 8192 x 4096 x k of 128, 256, 512: 1.02 1.05, 1.34 1.51, 2.21 2.37.
# Below, the memory is worth more.
FEWEST_TERMS = 128


@dataclasses.dataclass(frozen=True)
class Cut:
    """A formula cut at some of its products."""
    whole: _core.Formula  # the formula's results, then the kept products
    tail: _core.Formula  # its results from its inputs and the kept products
    products: tuple[tuple[str, _core.Formula], ...]  # name and meaning, from inputs and earlier ones
    results: int


class _Finder(ast.NodeTransformer):
    """Gives products names; those that are kept become bindings."""

    def __init__(self, keep: Sequence[bool] | None) -> None:
        self.keep, self.found = keep, list[ast.expr]()
        self.before: list[tuple[str, ast.expr]] = []
        self.kept: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            and node.func.id in ("linear", "matmul"))
        if not is_product:
            return node
        assert isinstance(node, ast.expr)
        self.found.append(node)
        if self.keep is None or not self.keep[len(self.found) - 1]:
            return node
        name = f"ogive_kept_{len(self.kept)}_"
        self.kept.append(name)
        self.before.append((name, node))
        return ast.Name(name)


def _left_side(product: ast.expr) -> ast.expr:
    if isinstance(product, ast.BinOp):
        return product.left
    assert isinstance(product, ast.Call)
    return product.args[0] if product.args else next(
        each.value for each in product.keywords if each.arg == "input")


def _needed(bindings: Sequence[tuple[str, ast.expr]], results: list[ast.expr],
            stand_ins: dict[str, str]) -> Program:
    """Without the bindings that results do not need: they would name inputs."""
    names = {each.id for result in results for each in ast.walk(result) if isinstance(each, ast.Name)}
    chosen: list[tuple[str, ast.expr]] = []
    for name, value in reversed(bindings):
        if name in names:
            chosen.append((name, value))
            names |= {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    return Program(chosen[::-1], results, stand_ins)


@functools.lru_cache(maxsize=1024)
def _left_sides(text: str) -> tuple[_core.Formula, ...]:
    """The left side of each product, as a formula; () too if Python's grammar, or its stack,
    is too small for the text: nothing is kept then."""
    finder, sides = _Finder(None), []
    try:
        program = read(text)
        for i, (_, value) in enumerate([*program.bindings, *(("", r) for r in program.results)]):
            count = len(finder.found)
            finder.visit(value)
            before = program.bindings[:i]
            sides += [_core.compile(_needed(before, [_left_side(p)], program.stand_ins).text())
                      for p in finder.found[count:] if not isinstance(_left_side(p), ast.Constant)]
    except (SyntaxError, RecursionError):
        return ()
    return tuple(sides) if len(sides) == len(finder.found) else ()


@functools.lru_cache(maxsize=1024)
def _cut(text: str, precision: str, keep: tuple[bool, ...]) -> Cut | None:
    """None: as for _left_sides()."""
    try:
        return _cut_at(read(text), precision, keep)
    except RecursionError:
        return None


def _cut_at(program: Program, precision: str, keep: tuple[bool, ...]) -> Cut:
    finder = _Finder(keep)
    bindings: list[tuple[str, ast.expr]] = []
    for name, value in program.bindings:
        value = finder.visit(value)
        bindings += [*finder.before, (name, value)]
        finder.before = []
    results = [finder.visit(result) for result in program.results]
    bindings += finder.before
    kept = [ast.Name(name) for name in finder.kept]

    def compiled(some: Sequence[tuple[str, ast.expr]], wanted: list[ast.expr]) -> _core.Formula:
        return _core.compile(_needed(some, wanted, program.stand_ins).text(), precision)

    rest = [(name, value) for name, value in bindings if name not in finder.kept]
    meanings = dict(bindings)
    products = tuple((name, compiled(rest, [meanings[name]])) for name in finder.kept)
    whole = Program(bindings, [*results, *kept], program.stand_ins).text()
    return Cut(_core.compile(whole, precision), compiled(rest, results), products, len(results))


def _terms(side: _core.Formula, inputs: dict[str, Tensor]) -> Any:
    """The k of a product; symbols count as many."""
    tensors = [inputs[name] for name in side.inputs]
    if any(not isinstance(size, int) for tensor in tensors for size in tensor.shape):
        return FEWEST_TERMS
    if side.text == side.inputs[0]:  # as mostly: saves a third of the time of a small call
        return tensors[0].shape[-1] if tensors[0].dim() else 0
    layouts = [(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in tensors]
    shape: tuple[int, ...] = side._infer(*layouts)[0][0]
    return shape[-1] if shape else 0


def has_products(formula: _core.Formula) -> bool:
    """Whether find_cut() has to look at the inputs."""
    return not formula.gradients and bool(_left_sides(formula.text))


def find_cut(formula: _core.Formula, inputs: Sequence[Tensor]) -> Cut | None:
    """Where to cut formula, which has these inputs; None: nothing is worth keeping."""
    if not has_products(formula):
        return None
    named = dict(zip(formula.inputs, inputs))
    keep = tuple(_terms(side, named) >= FEWEST_TERMS for side in _left_sides(formula.text))
    return _cut(formula.text, formula.precision, keep) if any(keep) else None


def describe_gradient(formula: _core.Formula, inputs: Sequence[Any]) -> str:
    """What the gradient keeps of a call on these inputs; "" if it has none."""
    if not any(isinstance(value, Tensor) and value.requires_grad for value in inputs):
        return ""
    cut = find_cut(formula, [value if isinstance(value, Tensor) else torch.zeros(())
                             for value in inputs])
    if cut is None:
        return "gradient: keeps the inputs, computes what else it needs again\n"
    kept = ", ".join(product.text for _, product in cut.products)
    return (f"gradient: keeps the inputs and {kept}: to compute it again, {FEWEST_TERMS} or more "
            "products an element, would take longer than to read it\n")
