# SPDX-License-Identifier: MIT
"""Layers that FSDP2 has sharded and a formula reads: their parameters are whole only while their
forward() runs, so the formula runs there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn


def sharded_module_type() -> type | None:
    """FSDP2's modules; None: nobody has imported it."""
    found: type | None = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    return found


def call_inside(modules: Sequence[nn.Module], function: Callable[[dict[str, Any]], Any],
                values: dict[str, Any]) -> Any:
    """function(values) in place of the modules' forward(), one inside of the other, so that their
    hooks gather parameters before it, and know of its gradient after it."""
    if not modules:
        return function(values)
    first = modules[0]
    own = vars(first).get("forward")

    def forward(values: dict[str, Any]) -> Any:
        return call_inside(modules[1:], function, dict(values))

    object.__setattr__(first, "forward", forward)
    try:
        return first(values)
    finally:
        if own is None:
            object.__delattr__(first, "forward")
        else:
            object.__setattr__(first, "forward", own)
