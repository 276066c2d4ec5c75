# SPDX-License-Identifier: MIT
"""The precision of matrix products that nothing else says."""

from __future__ import annotations

_chosen: str | None = None


def set_precision(precision: str | None) -> None:
    """The precision of matrix products in ogive.torch's functions, modules without their own
    and models compiled from now on: "float32", or "strict" for the CPU's bits on every device.
    None, as at the start: PyTorch's setting counts. What torch.set_float32_matmul_precision
    knows is "highest", which is float32, and two that allow less; none is computed here with
    less than float32."""
    global _chosen
    if precision not in (None, "float32", "strict"):
        raise ValueError(f"precision is {precision!r}: expected 'float32', 'strict' or None")
    _chosen = precision


def precision() -> str:
    return _chosen or "float32"
