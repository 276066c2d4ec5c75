# SPDX-License-Identifier: MIT
"""batch_norm with statistics of its batch, as models call it in training: a formula gives the
statistics beside its result, and what runs behind it changes running_mean and running_var by them.

A formula changes no tensor, and the order of calls around what writes must stay; so this is for
running values that nothing else in the graph reads or writes (Analysis of _regions.py sees to it).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, Node

from ._text import literal
from ._translate import Left, Part, argument, arguments_of, check_tensor, constant, value_of

OF_BATCH = "batch_norm of a batch"  # as regions and estimates call it


def is_of_batch(node: Node) -> bool:
    return node.target is F.batch_norm and argument(node, 5, "training", False) is True


def running_of(node: Node) -> list[Any]:
    """The tensors that node changes."""
    both = (argument(node, 1, "running_mean"), argument(node, 2, "running_var"))
    return [each for each in both if each is not None]


def _reduced(name: str, x: Node, more: str) -> list[Part]:
    """A reduction of every channel of x; of halves in float32, as PyTorch computes it."""
    value, dims = value_of(x), [0, *range(2, value_of(x).dim())]
    wide = [x] if value.dtype in (torch.float32, torch.float64) else ["float32(", x, ")"]
    return [f"{name}(", *wide, f", {dims}{more})"]


def translate_of_batch(node: Node) -> list[Part]:
    """node as a batch_norm whose running values are statistics of its input, which can be results,
    too. Raises Left."""
    given = arguments_of("batch_norm", node)
    x, parameters = given["input"], {key: given[key] for key in ("weight", "bias") if key in given}
    device = None
    for each in (x, *parameters.values(), *running_of(node)):
        device = check_tensor(each, device)
    if type(value_of(x)).__name__ == "DTensor":
        raise Left("its statistics are those of other processes' parts, too")
    if len(running_of(node)) == 1:
        raise Left("it has one of running_mean and running_var only")
    parts = ["batch_norm(", x, ", ", *_reduced("mean", x, ""), ", ",
             *_reduced("var", x, ", correction=0")]
    for key, each in parameters.items():
        parts += [f", {key}=", each]
    return [*parts, f", eps={literal('eps', constant(given.get('eps', 1e-5)))})"]


def statistics_of(node: Node) -> list[list[Part]]:
    """What running values change by: the means, and the unbiased variances."""
    x = argument(node, 0, "input")
    return [_reduced("mean", x, ""), _reduced("var", x, "")] if running_of(node) else []


def _update(running: list[Tensor], found: list[Tensor], momentum: float) -> None:
    """As batch_norm does it: running values of halves are computed with in float32."""
    found = [each.detach() for each in found]
    if all(each.dtype == other.dtype for each, other in zip(running, found)):
        torch._foreach_mul_(running, 1 - momentum)
        torch._foreach_add_(running, found, alpha=momentum)
        return
    for each, other in zip(running, found):
        each.copy_(each.to(other.dtype) * (1 - momentum) + other * momentum)


def insert_update(graph: Graph, node: Node, copies: dict[Node, Node], found: list[Node]) -> None:
    """What node does to its running values. copies: of nodes, in graph; found: its statistics."""
    momentum = argument(node, 6, "momentum", 0.1)
    graph.call_function(_update, (
        [copies[each] for each in running_of(node)], found,
        copies[momentum] if isinstance(momentum, Node) else momentum))
