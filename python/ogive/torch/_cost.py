# SPDX-License-Identifier: MIT
"""How long calls take by PyTorch and as a formula, as far as ogive_estimate() knows: what each moves
and computes, put together from the tensors of a graph and the formula's plan. All numbers are the
library's (src/api/rates.def): here is none that was measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from .. import _core
from ._translate import FLOATS, PRODUCTS, value_of

_OGIVE, _PYTORCH = 0, 1  # ogive_worker
_ELEMENTS, _ROWS, _SOFTMAX, _NORM, _PRODUCT = range(5)  # ogive_work_kind
_NORMS = {"layer_norm", "rms_norm", "var", "std", "batch_norm", "group_norm"}
_SOFTMAXES = {"softmax", "log_softmax", "softmin", "logsumexp"}
_UNKNOWN_SIZE = 1024  # stands for a size that depends on the data


class Estimate(NamedTuple):
    """Seconds; 0: not known."""
    ours: float
    theirs: float

    def __str__(self) -> str:
        return f"{_shown(self.ours)} as a formula, {_shown(self.theirs)} by PyTorch"


def add_estimates(estimates: Sequence[Estimate]) -> Estimate:
    """Of calls one after the other; what is not known of one is not known of all."""
    ours, theirs = (0.0 if 0 in column else sum(column) for column in zip(*estimates))
    return Estimate(ours, theirs)


def _shown(seconds: float) -> str:
    if seconds == 0:
        return "?"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def architecture(device: torch.device) -> tuple[int, int]:
    """Of a GPU, as CUDA counts."""
    major, minor = torch.cuda.get_device_capability(device)
    return major, minor


def cpu_has_bfloat16() -> bool:
    """Whether PyTorch's products use instructions for it."""
    ask = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # from 2.6 on, so far
    return bool(ask and ask())


def _machine(device: torch.device) -> str:
    if device.type != "cuda":
        return "cpu-bf16" if cpu_has_bfloat16() else "cpu"
    found = architecture(device)
    return "sm_90" if found == (9, 0) else "sm_80" if found >= (8, 0) else "sm"


@functools.cache
def _groups() -> dict[str, str]:
    return {name: group for name, _, group, _ in _core.functions()}


def _size(size: Any) -> int:
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else _UNKNOWN_SIZE


def _shape(value: Tensor) -> tuple[int, ...]:
    return tuple(map(_size, value.shape))


def _bytes(tensors: Iterable[Tensor]) -> float:
    return float(sum(math.prod(_shape(each)) * each.element_size() for each in tensors))


def _operations(name: str, node: Node) -> float:
    """Functions of elements that cost more than moving them; arithmetic does not."""
    costly = _groups().get(name) in ("activation", "mathematics")
    return float(math.prod(_shape(value_of(node)))) if costly else 0.0


def _kind(name: str) -> int:
    if name in PRODUCTS:
        return _PRODUCT
    if name in _SOFTMAXES:
        return _SOFTMAX
    if name in _NORMS:
        return _NORM
    return _ROWS if _groups().get(name) in ("reduction", "normalisation") else _ELEMENTS


class _Product(NamedTuple):
    batch: int
    m: int
    n: int
    k: int
    across: bool


def _product(name: str, node: Node, parts: Sequence[Any]) -> _Product:
    x, w = [value_of(part) for part in parts if isinstance(part, Node)][:2]
    left, right, result = _shape(x), _shape(w), _shape(value_of(node))
    along = len(right) == 2 and (name == "linear" or w.stride(0) == 1)
    k = left[-1] if left else 1
    if len(right) <= 2:
        return _Product(1, math.prod(left[:-1]), math.prod(result) // max(1, math.prod(left[:-1])), k,
                        not along)
    m, n = result[-2:] if len(left) > 1 else (1, result[-1])
    return _Product(math.prod(result) // max(1, m * n), m, n, k, not along)


def _tensors_of(node: Node, parts: Sequence[Any]) -> list[Tensor]:
    nodes = dict.fromkeys(part for part in parts if isinstance(part, Node))
    return [value for each in nodes if isinstance(value := value_of(each), Tensor)]


def _ask(machine: str, by: int, kind: int, dtype: torch.dtype, bytes_: float, operations: float,
         follows: bool = False, product: _Product | None = None, records: bool = False) -> float:
    return _core._estimate(machine, by, kind, FLOATS.get(dtype, "float32"), bytes_, operations,
                           int(follows), int(records), *(map(int, product) if product else ()))


def _dtype(tensors: Sequence[Tensor]) -> torch.dtype:
    """Of the largest."""
    return max(tensors, key=lambda each: math.prod(_shape(each))).dtype


def estimate_call(name: str, node: Node, parts: Sequence[Any]) -> Estimate:
    """A call by itself."""
    result, tensors = value_of(node), _tensors_of(node, parts)
    machine, kind = _machine(result.device), _kind(name)
    product = _product(name, node, parts) if kind == _PRODUCT else None
    dtype = result.dtype if product else _dtype([*tensors, result])
    work = (kind, dtype, _bytes([*tensors, result]), _operations(name, node), False, product)
    return Estimate(_ask(machine, _OGIVE, *work), _ask(machine, _PYTORCH, *work))


def estimate_formula(text: str, inputs: Sequence[Node], nodes: Sequence[Node],
                     names: dict[Node, str], parts: dict[Node, list[Any]],
                     records: bool) -> float:
    """What nodes take as one formula; 0: not known. records: its gradient is recorded in place of
    one call's."""
    device = value_of(nodes[-1]).device
    machine = _machine(device)
    layouts: list[tuple[tuple[int, ...], str]] = []
    values = [value_of(node) for node in inputs]
    for value in values:
        if isinstance(value, Tensor):
            layouts.append((_shape(value), str(value.dtype).removeprefix("torch.")))
        else:
            layouts.append(((), "float32"))
    products = [(_product(names[node], node, parts[node]), value_of(node).dtype) for node in nodes
                if names[node] in PRODUCTS]
    operations = sum(_operations(names[node], node) for node in nodes)
    norm = any(names[node] in _NORMS for node in nodes)
    dtype = _dtype([value for value in values if isinstance(value, Tensor)])
    total, follows = 0.0, False
    for kernel, bytes_, _ in _core.compile(text)._kernels(*layouts):
        count = 2 if kernel.startswith("two products") else int("product" in kernel)
        works: list[tuple[int, torch.dtype, float, float, bool, _Product | None]] = [
            (_PRODUCT, product_dtype, bytes_ if i == 0 else 0.0, 0.0 if i else operations,
             follows or i > 0, product)
            for i, (product, product_dtype) in enumerate(products[:count])]
        if not works:
            kind = (_ELEMENTS if kernel.startswith("pointwise") else _SOFTMAX if "sumexp" in kernel
                    else _NORM if norm else _ROWS)
            works = [(kind, dtype, bytes_, operations, follows, None)]
        del products[:count]
        for kind, of, moved, computed, later, product in works:
            seconds = _ask(machine, _OGIVE, kind, of, moved, computed, later, product,
                           records and not later)
            if seconds == 0:
                return 0.0
            total += seconds
        follows, operations = True, 0.0
    return total
