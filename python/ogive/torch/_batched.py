# SPDX-License-Identifier: MIT
"""torch.autograd.grad(..., is_grads_batched=True): a gradient of many results' gradients at once, which
are the items of one tensor. PyTorch runs it under its older vmap, whose tensors have no memory that
kernels could be given: here it is one call per item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

# (tensor) -> bool; not of torch.func.vmap's.
is_batched: Callable[[Any], bool] = torch._C._functorch.is_legacy_batchedtensor


def _level() -> int:
    """Of the innermost vmap that is on."""
    level: int = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level


def run_by_items(arguments: Sequence[Any], function: Callable[[list[Any]], Sequence[Any]]) -> list[Any]:
    """function's results, tensors or None, of arguments, of which at least one is batched."""
    level, plain = _level(), list(arguments)
    batched = [i for i, each in enumerate(plain) if isinstance(each, torch.Tensor) and is_batched(each)]
    for i in batched:
        plain[i] = torch._remove_batch_dim(plain[i], level, 0, 0)
    size, found = len(plain[batched[0]]), []
    if size == 0:
        raise NotImplementedError("is_grads_batched=True of a formula with no items")
    for item in range(size):
        given = list(plain)
        for i in batched:
            given[i] = plain[i][item]
        found.append(function(given))
    return [None if values[0] is None else torch._add_batch_dim(torch.stack(values), 0, level)
            for values in zip(*found)]


def by_items(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """function, of a list of arguments that it empties, where some may be batched."""
    def call(arguments: list[Any]) -> Any:
        if not any([isinstance(each, torch.Tensor) and is_batched(each) for each in arguments]):
            return function(arguments)
        given = list(arguments)
        arguments.clear()
        return run_by_items(given, function)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
