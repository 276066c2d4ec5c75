# SPDX-License-Identifier: MIT
"""Graphs of tensor-parallel models, as torch.distributed.tensor.parallel's hooks leave them: a
layer's product is a DTensor, to_local() makes a tensor of it, and an activation follows on that.
Here the activation is made one of the DTensor, with to_local() behind it, so that product and
activation can be one formula. redistribute() to where a DTensor is already is dropped.

That is right for what works element by element: of a part it is the part of what it is of the
whole.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node

from .. import _core
from ._translate import may_write, name_of, value_of


@functools.cache
def _pointwise() -> frozenset[str]:
    """The language's names of functions that work element by element."""
    groups = ("activation", "mathematics", "arithmetic", "cast")
    return frozenset([name for name, _, group, _ in _core.functions() if group in groups])


def is_pointwise(node: Node) -> bool:
    return name_of(node) in _pointwise() and not may_write(node)


def is_dtensor(value: Any) -> bool:
    """Without importing torch.distributed.tensor: whoever has one has done so."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def _place_of(node: Node) -> Any:
    """What makes two DTensors alike: mesh, placements, the number of dims."""
    value = value_of(node)
    return value.device_mesh, tuple(value.placements), value.dim()


def _method(node: Node) -> tuple[str, dict[str, Any]]:
    """The method of DTensor that node calls, "" if none, and its arguments by name. Up to 2.9
    Dynamo has functions in their place, which keep the arguments in closures."""
    if node.op == "call_method":
        return str(node.target), dict(node.kwargs)
    name = getattr(node.target, "__name__", "").removeprefix("prim").lstrip("_ ")
    if node.op != "call_function" or name not in ("to_local", "redistribute", "from_local"):
        return "", {}
    named = dict(node.kwargs)
    for cell in getattr(node.target, "__closure__", None) or ():
        if isinstance(cell.cell_contents, dict):
            named.update(cell.cell_contents)
    return name, named


def _changes_nothing(node: Node) -> bool:
    """redistribute() to where it is."""
    name, named = _method(node)
    return (name == "redistribute" and len(node.args) == 1
            and set(named) <= {"device_mesh", "placements", "async_op"}
            and is_dtensor(value_of(node)) and isinstance(node.args[0], Node)
            and is_dtensor(value_of(node.args[0])) and _place_of(node) == _place_of(node.args[0]))


def _gives_part(node: Node) -> bool:
    """to_local() of parts, or of what all processes have; of a sum it is no part."""
    name, named = _method(node)
    if (name != "to_local" or len(node.args) != 1 or named or not isinstance(node.args[0], Node)
            or not is_dtensor(value_of(node.args[0]))):
        return False
    return not any(placed.is_partial() for placed in value_of(node.args[0]).placements)


def _takes_back(node: Node, lifted: dict[Node, Node]) -> bool:
    """from_local() of what to_local() gave, placed as it was."""
    if (_method(node)[0] != "from_local" or not is_dtensor(value_of(node)) or not node.args
            or node.args[0] not in lifted):
        return False
    before = lifted[node.args[0]]
    return bool(_place_of(node) == _place_of(before)
                and value_of(node).shape == value_of(before).shape)


def _lift_call(graph: Any, node: Node, lifted: dict[Node, Node]) -> Node | None:
    """node's call on the DTensors whose parts it reads, followed by to_local(); None: it is not
    element by element, or reads something else, too."""
    tensors = [each for each in node.all_input_nodes if isinstance(value_of(each), Tensor)]
    if (not is_pointwise(node) or not tensors
            or not all(each in lifted for each in tensors)
            or len({_place_of(lifted[each]) for each in tensors}) > 1
            or not isinstance(value_of(node), Tensor)):
        return None

    def whole(argument: Node) -> Any:
        return lifted.get(argument, argument)

    with graph.inserting_before(node):
        call = graph.node_copy(node, whole)
    values = [value_of(each) if isinstance(each, Node) else each for each in call.args]
    named = {key: value_of(each) if isinstance(each, Node) else each
             for key, each in call.kwargs.items()}
    try:
        if call.op == "call_method":
            value = getattr(values[0], call.target)(*values[1:], **named)
        else:
            value = call.target(*values, **named)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        graph.erase_node(call)  # DTensor has no rule for it
        return None
    call.meta["example_value"] = value
    if _place_of(call) != _place_of(lifted[tensors[0]]):
        graph.erase_node(call)
        return None
    with graph.inserting_after(call):
        local = graph.call_method("to_local", (call,))
    local.meta = dict(node.meta)
    lifted[local] = call
    return local


def lift(module: GraphModule) -> GraphModule:
    """module, or what it is with its activations lifted."""
    if not any(is_dtensor(value_of(node)) for node in module.graph.nodes):
        return module
    graph = module.graph
    lifted: dict[Node, Node] = {}
    replaced: list[Node] = []
    for node in list(graph.nodes):
        if _changes_nothing(node):
            node.replace_all_uses_with(node.args[0])
            replaced.append(node)
        elif _takes_back(node, lifted):
            node.replace_all_uses_with(lifted[node.args[0]])
            replaced.append(node)
        elif _gives_part(node):
            lifted[node] = node.args[0]
            replaced.append(node)  # if nobody else needs it
        else:
            local = _lift_call(graph, node, lifted)
            if local is not None:
                node.replace_all_uses_with(local)
                replaced += [node, local]
    for node in reversed(replaced):
        if not node.users:
            graph.erase_node(node)
    module.recompile()
    return module
