# SPDX-License-Identifier: MIT
"""Calls that give their argument itself: dropout while it is not training, a cast to the dtype that
a tensor has, contiguous() of what is so, detach() of what requires no gradient. They leave a graph of
Dynamo's before anything else is made of it.

PyTorch's own tracing makes a clone of such a dropout, so that what is written to it afterwards
would not be written to its argument, as it is eagerly.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

from ._lifted import is_dtensor
from ._translate import FLOATS, argument, may_write, name_of, value_of

SAME_MEMORY = "ogive_same_memory"  # of a module's meta data: a storage, and the one that it is


def _drops_nothing(node: Node) -> bool:
    name = "training" if node.target is F.dropout else "train"
    return bool(argument(node, 2, name, True) is False or argument(node, 1, "p", 0.5) == 0)


def _changes_nothing(node: Node) -> bool:
    """Of a method."""
    given, result = value_of(node.args[0]), value_of(node)
    if not isinstance(given, Tensor) or not isinstance(result, Tensor):
        return False
    if node.target == "detach":  # a result is a tensor of its own: it may require grad later
        return not given.requires_grad and all(user.op != "output" for user in node.users)
    if node.target == "contiguous":
        return len(node.args) == 1 and not node.kwargs and given.is_contiguous()
    return (name_of(node) in FLOATS.values() and given.dtype == result.dtype
            and given.stride() == result.stride())


def _is_identity(node: Node) -> bool:
    if node.op == "call_function":
        return (node.target in (F.dropout, torch.dropout) and not may_write(node)
                and _drops_nothing(node))
    return node.op == "call_method" and bool(node.args) and _changes_nothing(node)


def storage_of(node: Node) -> Any:
    """What tells the memory of a tensor from that of others; where there is none, the node."""
    value = value_of(node)
    value = value._local_tensor if is_dtensor(value) else value
    try:
        return value.untyped_storage()._cdata if isinstance(value, Tensor) else node
    except NotImplementedError:  # a tensor of torch.func
        return node


def drop_identities(module: GraphModule) -> list[Node]:
    """The calls that it dropped. The graphs inside of module are left as they are."""
    dropped: list[Node] = []
    same: dict[Any, Any] = module.meta.setdefault(SAME_MEMORY, {})
    for node in list(module.graph.nodes):
        if not _is_identity(node):
            continue
        given = argument(node, 0, "input")
        if storage_of(node) != storage_of(given):  # the clone, of which there may be views
            same[storage_of(node)] = same.get(storage_of(given), storage_of(given))
        node.replace_all_uses_with(given)
        module.graph.erase_node(node)
        dropped.append(node)
    if dropped:
        module.recompile()
    return dropped
