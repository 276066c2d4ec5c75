# SPDX-License-Identifier: MIT
"""max and min as the language has them, where nothing tells the difference: `x.max(dim)[0]`, of which
nobody reads the indices, is amax; `torch.min(x, torch.tensor(0.5))`, whose tensor is a number on the
CPU, is a clamp. Where elements are equal their gradients differ, so only of what requires none.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ._lifted import is_dtensor
from ._translate import argument, may_write, value_of

_EXTREMA: dict[Any, tuple[Any, str]] = {
    torch.max: (torch.amax, "min"), "max": (torch.amax, "min"),
    torch.min: (torch.amin, "max"), "min": (torch.amin, "max"),
    torch.maximum: (None, "min"), "maximum": (None, "min"),
    torch.minimum: (None, "max"), "minimum": (None, "max")}


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.requires_grad and not is_dtensor(value)


def _number_of(node: Any) -> float | None:
    """What torch.tensor() was given, if it is a number that float32 has."""
    if not isinstance(node, Node) or node.target is not torch.tensor or len(node.args) != 1:
        return None
    number, value = node.args[0], value_of(node)
    if set(node.kwargs) - {"device"} or type(number) not in (int, float) or not isinstance(value, Tensor) or (
            value.dtype != torch.float32 or number != number):
        return None
    return float(torch.tensor(float(number), dtype=torch.float32, device="cpu").item())


def _replace_values(module: GraphModule, node: Node, function: Any) -> list[Node]:
    """Of max and min along a dim, whose indices nobody reads."""
    dim, keepdim = argument(node, 1, "dim"), argument(node, 2, "keepdim", False)
    if function is None or type(dim) is not int or not isinstance(keepdim, bool) or not node.users or (
            set(node.kwargs) - {"input", "dim", "keepdim"}) or len(node.args) > 3:
        return []
    users = list(node.users)
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in users):
        return []
    for user in users:
        with module.graph.inserting_before(user):
            made = module.graph.call_function(function, (argument(node, 0, "input"), dim, keepdim))
        made.meta = dict(user.meta)
        user.replace_all_uses_with(made)
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    return users


def _replace_number(module: GraphModule, node: Node, bound: str) -> list[Node]:
    """Of max and min with a number."""
    given, other = argument(node, 0, "input"), argument(node, 1, "other")
    number = _number_of(other)
    if number is None or len(node.args) + len(node.kwargs) != 2 or (
            value_of(given).dtype != torch.float32 or value_of(given).dim() == 0):
        return []
    with module.graph.inserting_before(node):
        made = module.graph.call_function(torch.clamp, (given,), {bound: number})
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    module.graph.erase_node(node)
    if other.users:
        return []
    module.graph.erase_node(other)
    return [other]


def replace_extrema(module: GraphModule) -> list[Node]:
    """The calls that have none in their place."""
    dropped: list[Node] = []
    nodes = list(module.graph.nodes)
    for node in nodes:
        if node.op not in ("call_function", "call_method") or node.target not in _EXTREMA or (
                may_write(node)):
            continue
        given = argument(node, 0, "input")
        if not isinstance(given, Node) or not _is_plain(value_of(given)):
            continue
        function, bound = _EXTREMA[node.target]
        dropped += (_replace_values(module, node, function)
                    or _replace_number(module, node, bound))
    if nodes != list(module.graph.nodes):
        module.recompile()
    return dropped
