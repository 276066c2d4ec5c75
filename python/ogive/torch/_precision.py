# SPDX-License-Identifier: MIT
"""The precision of matrix products that nothing else says."""

from __future__ import annotations

_chosen: str | None = None


def set_precision(precision: str | None) -> None:
    """The precision of matrix products in ogive.torch's functions, modules without their own
    and models compiled from now on: "float32", "strict" for the CPU's bits on every device, or
    "tf32" for one product of factors rounded to TF32, on GPUs from sm_80 on. None, as at the
    start, is float32: PyTorch's settings (torch.set_float32_matmul_precision, allow_tf32), which
    allow less, are never read."""
    global _chosen
    if precision not in (None, "float32", "strict", "tf32"):
        raise ValueError(
            f"precision is {precision!r}: expected 'float32', 'strict', 'tf32' or None")
    _chosen = precision


def precision() -> str:
    return _chosen or "float32"
