# SPDX-License-Identifier: MIT
"""Views that would keep calls of a graph of ATen's operators out of one formula, because they stand
between a reduction and what it is of, or what is computed of it: they are moved to where they divide
nothing. _aten.py has the rest of what is made of a graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

aten: Any = torch.ops.aten
_REDUCTIONS = {aten.sum.dim_IntList, aten.mean.dim, aten.var.correction, aten.amax.default,
               aten.amin.default}
_MERGING = {aten.view.default, aten._unsafe_view.default}
_MOST_COPIES = 16  # of calls that are repeated in another shape


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, Node) else None


def _made(graph: Graph, target: Any, arguments: tuple[Any, ...], value: Any, model: Node,
          **named: Any) -> Node:
    made = graph.call_function(target, arguments, named)
    made.meta = {**model.meta, "val": value}
    return made


def _sizes(shape: Any) -> list[Any] | None:
    """As arguments of a view; None: some are symbols, which nodes stand for."""
    return list(shape) if all(isinstance(size, int) for size in shape) else None


def sum_before_views(graph: Graph) -> None:
    """The sum over the rows of a matrix that is a view of a tensor with more dims, as gradients of
    biases are: one over these dims of the tensor."""
    for node in list(graph.nodes):
        if node.target is not aten.sum.dim_IntList or node.kwargs or (
                node.args[0].target not in _MERGING or list(node.args[1]) != [0]):
            continue
        source, matrix = node.args[0].args[0], _value(node.args[0])
        whole = _value(source)
        if matrix.dim() != 2 or whole.dim() < 3 or not isinstance(matrix.shape[1], int) or (
                whole.shape[-1] != matrix.shape[1]):
            continue
        dims = list(range(whole.dim() - 1))
        with graph.inserting_before(node):
            made = _made(graph, aten.sum.dim_IntList, (source, dims), whole.sum(dims), node)
            if _value(node).dim() == 2:
                shape = [1, matrix.shape[1]]
                made = _made(graph, aten.view.default, (made, shape),
                             _value(made).view(shape), node)
        node.replace_all_uses_with(made)
        graph.erase_node(node)


# ---- what is computed of reductions ---------------------------------------------------------


def _widened(node: Node) -> tuple[Node, tuple[Any, ...]] | None:
    """What unsqueeze() upon unsqueeze() is of, and the shape that it comes to."""
    source: Any = node
    while source.target is aten.unsqueeze.default:
        source = source.args[0]
    return None if source is node else (source, tuple(_value(node).shape))


class _Wide:
    """Nodes of values a channel as they are with dims of 1 in place of those reduced."""

    def __init__(self, graph: Graph, shape: tuple[Any, ...],
                 is_elementwise: Callable[[Node], bool]) -> None:
        self.graph, self.shape, self.is_elementwise = graph, shape, is_elementwise
        self.made: dict[Node, Node] = {}
        self.found_sum = False

    def of(self, node: Any) -> Any:
        value = _value(node)
        if not isinstance(value, Tensor) or value.dim() == 0:
            return node
        if node in self.made:
            return self.made[node]
        if len(self.made) >= _MOST_COPIES or math.prod(value.shape) != math.prod(self.shape):
            raise ValueError
        self.made[node] = made = self._again(node)
        return made

    def _again(self, node: Node) -> Node:
        value = _value(node)
        if node.target in _REDUCTIONS and len(node.args) == 2 and not node.kwargs.get("keepdim"):
            wide = _value(node.args[0])
            dims = {dim % wide.dim() for dim in node.args[1]}
            if tuple(1 if i in dims else size for i, size in enumerate(wide.shape)) == self.shape:
                self.found_sum = True
                named = dict(node.kwargs)
                if node.target is aten.var.correction:
                    return _made(self.graph, node.target, node.args, value.view(self.shape), node,
                                 **{**named, "keepdim": True})
                return _made(self.graph, node.target, (*node.args, True), value.view(self.shape),
                             node, **named)
        if self.is_elementwise(node):
            arguments = tuple(map(self.of, node.args))
            return _made(self.graph, node.target, arguments, value.view(self.shape), node,
                         **node.kwargs)
        return _made(self.graph, aten.view.default, (node, list(self.shape)),
                     value.view(self.shape), node)


def keep_reduced_dims(graph: Graph, is_elementwise: Callable[[Node], bool]) -> None:
    """What is computed of sums over all dims but one, and then has these dims again, has them from
    the beginning, so that sums and what reads them can be one formula."""
    for node in list(graph.nodes):
        found = _widened(node)
        if found is None or any(user.target is aten.unsqueeze.default for user in node.users) or (
                _sizes(found[1]) is None or _value(found[0]).dim() != 1):
            continue
        wide = _Wide(graph, found[1], is_elementwise)
        with graph.inserting_before(node):
            try:
                made = wide.of(found[0])
            except ValueError:
                made = None
        if made is not None and wide.found_sum:
            node.replace_all_uses_with(made)
        else:
            for each in reversed(wide.made.values()):
                graph.erase_node(each)


# ---- parts that are put side by side ----------------------------------------------------------


def _scattered(node: Any) -> list[tuple[Any, int, int]] | None:
    """What a sum of tensors that are zeros but for one part has: source, dim, index."""
    if not isinstance(node, Node):
        return None
    if node.target is aten.add.Tensor and not node.kwargs:
        first, second = map(_scattered, node.args)
        return None if first is None or second is None or len(node.users) == 0 else first + second
    if node.target is not aten.select_scatter.default or not _is_zeros(node.args[0]):
        return None
    zeros, source, dim, index = node.args
    return [(source, dim % _value(zeros).dim(), index)]


def _is_zeros(node: Node) -> bool:
    return node.target in (aten.new_zeros.default, aten.zeros.default) or (
        node.target is aten.full.default and node.args[1] == 0)


def _permuted(graph: Graph, node: Node, order: list[int]) -> Node:
    return _made(graph, aten.permute.default, (node, order), _value(node).permute(order), node)


def join_scattered(graph: Graph) -> None:
    """Gradients of parts of a tensor, each added up within zeros, are the parts side by side; where
    all that is read of it is a copy with its dims in another order, in that order."""
    for node in reversed(list(graph.nodes)):
        parts = _scattered(node) if node.target is aten.add.Tensor else None
        if parts is None:
            continue
        whole, dim = _value(node), parts[0][1]
        if any(each[1] != dim for each in parts) or sorted(each[2] for each in parts) != list(
                range(len(parts))) or whole.shape[dim] != len(parts):
            continue
        pieces = [source for source, _, _ in sorted(parts, key=lambda each: each[2])]
        if any(_value(piece).dtype != whole.dtype for piece in pieces):
            continue
        target, order = _copied(node)
        with graph.inserting_before(node):
            pieces = [_made(graph, aten.unsqueeze.default, (piece, dim), _value(piece).unsqueeze(dim),
                            piece) for piece in pieces]
            if order:
                pieces = [_permuted(graph, piece, order) for piece in pieces]
                dim = order.index(dim)
            joined = _made(graph, aten.cat.default, (pieces, dim), _value(target), target)
        target.replace_all_uses_with(joined)


def _copied(node: Node) -> tuple[Node, list[int]]:
    """The copy of node with its dims in another order that is all that is read of it, and the order;
    else node, and no order."""
    permute = next(iter(node.users)) if len(node.users) == 1 else node
    copy = next(iter(permute.users)) if len(permute.users) == 1 else node
    if permute.target is aten.permute.default and copy.target is aten.clone.default and (
            _value(copy).is_contiguous()):
        return copy, [dim % _value(node).dim() for dim in permute.args[1]]
    return node, []
