# SPDX-License-Identifier: MIT
"""How what processes have of a sum is added."""

from __future__ import annotations

_ORDERS = ("any", "ranks", "one")
_order = "any"


def set_sums(order: str) -> None:
    """How the parts of a sum that several processes have (DTensors) are added: "any", by
    DTensor's all-reduce or reduce-scatter, in an order that depends on the transport and the
    number of processes; "ranks": they are gathered, and every process adds them from the first
    to the last, which moves more, but gives the same bits on every transport; or "one": as one
    process adds them, so that results have its bits. Each process then sums the blocks in which
    a sum is defined one by one, all are gathered and added in order. Where parts are not made of
    blocks, inputs are gathered instead (docs/distributed.md)."""
    global _order
    if order not in _ORDERS:
        raise ValueError(f"order is {order!r}: expected 'any', 'ranks' or 'one'")
    _order = order


def sums() -> str:
    return _order
