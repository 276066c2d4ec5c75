# SPDX-License-Identifier: MIT
"""How what processes have of a sum is added."""

from __future__ import annotations

_ORDERS = ("any", "ranks")
_order = "any"


def set_sums(order: str) -> None:
    """How the parts of a sum that several processes have (DTensors) are added: "any", by
    DTensor's all-reduce or reduce-scatter, in an order that depends on the transport and the
    number of processes; or "ranks": they are gathered, and every process adds them from the first
    to the last. That moves more, but gives the same bits on every transport, and those of one
    process wherever the border between two parts is one of the blocks in which a sum is defined
    (docs/distributed.md)."""
    global _order
    if order not in _ORDERS:
        raise ValueError(f"order is {order!r}: expected 'any' or 'ranks'")
    _order = order


def sums() -> str:
    return _order
