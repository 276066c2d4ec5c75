# SPDX-License-Identifier: MIT
"""Calls behind a view that divides dims: `softmax(x.view(b, c, -1), 2).view(b, c, d, h, w) * scale`.
What works element by element there works as well on what is viewed, with the view behind it; so it can
be one formula with what came before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ._lifted import is_dtensor, is_pointwise
from ._translate import FLOATS, may_write, name_of, value_of

MADE = "ogive_made"  # of a node's meta data: it is none of the model's
_BROADCASTING = {"add", "sub", "mul", "div", "maximum", "minimum"}  # all of their tensors


def _divided(shape: tuple[int, ...], into: tuple[int, ...]) -> list[slice] | None:
    """Which dims of `into` each of shape's has become; None: some were merged."""
    found, at = [], 0
    for size in shape:
        first, product = at, 1
        while at < len(into) and product < size:
            product *= into[at]
            at += 1
        if product != size:
            return None
        if first == at and at < len(into) and into[at] == 1:  # of a dim of 1
            at += 1
        found.append(slice(first, at))
    return found if at == len(into) else None


def _is_static(value: Any) -> bool:
    return (isinstance(value, Tensor) and not is_dtensor(value) and value.dtype in FLOATS
            and all(isinstance(size, int) and size > 0 for size in value.shape))


def _shape_before(value: Tensor, dims: int, divided: list[slice]) -> list[int] | None:
    """Of an operand that is as the view's result, or broadcast to it, the shape that it has as what is
    viewed has; None: it moves within a dim that was divided."""
    shape = [1] * (dims - value.dim()) + list(value.shape)
    pieces = [shape[each] for each in divided]
    if any(len(piece) > 1 and any(size != 1 for size in piece) for piece in pieces):
        return None
    return [piece[0] if piece else 1 for piece in pieces]


def _operands_before(user: Node, view: Node, divided: list[slice]) -> dict[Node, list[int]] | None:
    """The other tensors that user reads, but numbers, with their shapes before the view."""
    found: dict[Node, list[int]] = {}
    for other in user.all_input_nodes:
        if other is view:
            continue
        if not _is_static(value_of(other)):
            return None
        if value_of(other).dim() == 0:  # it fits as it is; with dims it would decide the result's dtype
            continue
        shape = _shape_before(value_of(other), value_of(view).dim(), divided)
        if shape is None or other.op not in ("placeholder", "get_attr"):
            return None
        found[other] = shape
    return found


def _move(module: GraphModule, view: Node) -> Node | None:
    """The call behind view before it, if that is possible; what took view's place."""
    if view.op != "call_method" or view.target not in ("view", "reshape") or len(view.users) != 1:
        return None
    source = view.args[0]
    if not isinstance(source, Node) or len(source.users) != 1 or name_of(source) is None:
        return None
    user = next(iter(view.users))
    before, after = value_of(source), value_of(view)
    if not is_pointwise(user) or not (_is_static(before) and _is_static(after) and _is_static(
            value_of(user))) or not before.is_contiguous() or value_of(user).shape != after.shape:
        return None
    divided = _divided(tuple(before.shape), tuple(after.shape))
    operands = _operands_before(user, view, divided) if divided else None
    if operands is None or operands and name_of(user) not in _BROADCASTING:
        return None
    graph, places = module.graph, {view: source}
    with graph.inserting_before(user):
        for other, shape in operands.items():
            places[other] = graph.call_method("reshape", (other, shape))
            places[other].meta = {**other.meta, "example_value": value_of(other).reshape(shape), MADE: True}
        made = graph.node_copy(user, lambda node: places.get(node, node))
        made.meta = {**user.meta, "example_value": value_of(user).reshape(before.shape)}
        result = graph.call_method("view", (made, list(after.shape)))
        result.meta = dict(user.meta)
    user.replace_all_uses_with(result)
    graph.erase_node(user)
    graph.erase_node(view)
    return result


def move_views(module: GraphModule) -> None:
    """Nothing is moved where something is written to: it could be read before or afterwards."""
    if any(may_write(node) for node in module.graph.nodes):
        return
    moved = False
    for node in list(module.graph.nodes):
        view: Node | None = node
        with torch.enable_grad():  # values then require grad as they did
            while view is not None and (view := _move(module, view)) is not None:
                moved = True
    if moved:
        module.recompile()
