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
from ._batch_norm import OF_BATCH
from ._translate import CONVOLUTIONS, FLOATS, PRODUCTS, arguments_of, value_of

_OGIVE, _PYTORCH = 0, 1  # ogive_worker
_ELEMENTS, _ROWS, _SOFTMAX, _NORM, _PRODUCT, _WINDOWS = range(6)  # ogive_work_kind
# ogive_windows_form
_PLAIN, _TRANSPOSED, _STRIDED, _PHASES, _POINTS, _DEPTHWISE, _BY_WEIGHT, _MAXIMA, _AVERAGES = range(9)
# Of a convolution's gradient by its input.
_MIRRORED = {_PLAIN: _TRANSPOSED, _TRANSPOSED: _PLAIN, _STRIDED: _PHASES, _PHASES: _STRIDED,
             _POINTS: _POINTS, _DEPTHWISE: _TRANSPOSED}
# batch_norm is none: of running values it works element by element.
_NORMS = {"layer_norm", "rms_norm", "var", "std", "group_norm", "instance_norm", OF_BATCH}
_SOFTMAXES = {"softmax", "log_softmax", "softmin", "logsumexp"}
# Comparisons and multiplications, which take no longer than moving what they are of.
_CHEAP = {"relu", "relu6", "leaky_relu", "hardtanh", "hardsigmoid", "hardswish", "prelu", "softshrink",
          "hardshrink", "threshold", "clamp", "abs", "neg", "sign", "square", "floor", "ceil", "round",
          "trunc"}
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
    """Functions of elements that cost more than moving them; arithmetic does not. batch_norm has
    a root for each of its elements."""
    costly = name == "batch_norm" or (
        _groups().get(name) in ("activation", "mathematics") and name not in _CHEAP)
    return float(math.prod(_shape(value_of(node)))) if costly else 0.0


def _kind(name: str) -> int:
    if name in PRODUCTS:
        return _PRODUCT
    if name in CONVOLUTIONS or _groups().get(name) == "pooling":
        return _WINDOWS
    if name in _SOFTMAXES:
        return _SOFTMAX
    if name in _NORMS:
        return _NORM
    rows = _groups().get(name) in ("reduction", "normalisation") and name != "batch_norm"
    return _ROWS if rows else _ELEMENTS


def works_by_element(name: str) -> bool:
    return _kind(name) == _ELEMENTS


def works_by_rows(name: str) -> bool:
    return _kind(name) == _ROWS


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


_ACROSS = _Product(0, 0, 0, 0, True)  # of a reduction


class _Windows(NamedTuple):
    """As _Product, then as ogive_windows."""
    batch: int
    m: int
    n: int
    k: int
    across: bool
    form: int
    dims: int
    channels: int
    taps: int
    span: int
    depth: int
    height: int
    width: int
    exact: bool
    last: bool
    biased: int  # bytes
    phases: int  # kernels of a formula that it takes
    read: float  # bytes that each of these reads


def _each(value: Any, dims: int) -> list[int]:
    """An argument for each dim: it is given for all of them, or as a list."""
    values = [value] if not isinstance(value, (tuple, list)) else list(value)
    sizes = [_size(value_of(each) if isinstance(each, Node) else each) for each in values]
    return sizes * dims if len(sizes) == 1 else sizes


def _must_be_exact(device: torch.device) -> bool:
    """Whether PyTorch's convolutions of float32 may not take TF32."""
    try:
        return device.type == "cuda" and not torch.backends.cudnn.allow_tf32
    except RuntimeError:  # it was set in the way of later versions, for each operator
        return bool(getattr(torch.backends.cudnn, "conv").fp32_precision == "ieee")


def _lies_channels_last(value: Tensor) -> bool:
    of = {4: torch.channels_last, 5: torch.channels_last_3d}.get(value.dim())
    return of is not None and not value.is_contiguous() and value.is_contiguous(memory_format=of)


def _windows(name: str, node: Node) -> _Windows:
    given, result, dims = arguments_of(name, node), value_of(node), int(name[-2])
    shape = _shape(result)
    places = [1] * (3 - dims) + list(shape[-dims:])
    x = value_of(given["input"])
    further: Any = (*places, _must_be_exact(result.device),
                    _lies_channels_last(x) or _lies_channels_last(result),
                    int(_bytes([result])) if "bias" in given else 0, 1, _bytes([x]))
    if name not in CONVOLUTIONS:
        form = _MAXIMA if "max" in name else _AVERAGES
        if "kernel_size" in given:
            taps = math.prod(_each(given["kernel_size"], dims))
        else:  # windows of several lengths, which are read as those along one dim are
            taps, dims = math.prod(_shape(x)) // max(1, math.prod(shape)), 1
        return _Windows(0, 0, 0, 0, False, form, dims, 1, taps, taps, *further)
    weight, groups = _shape(value_of(given["weight"])), _size(given.get("groups", 1))
    taps = math.prod(weight[2:])
    strides = math.prod(_each(given.get("stride", 1), dims))
    dilations = _each(given.get("dilation", 1), dims)
    span = math.prod((size - 1) * by + 1 for size, by in zip(weight[2:], dilations))
    m = math.prod(shape) // max(1, shape[-dims - 1])
    if "transpose" in name:
        channels, filters = weight[0] // groups, weight[1]
        k, form = max(1, channels * taps // strides), _PHASES if strides > 1 else _TRANSPOSED
    else:
        channels, filters = weight[1], weight[0] // groups
        k, form = channels * taps, _STRIDED if strides > 1 else _POINTS if taps == 1 else _PLAIN
        if channels == filters == 1:
            form = _DEPTHWISE
    made = _Windows(groups, m, filters, k, False, form, dims, channels, taps, span,
                    *further)
    return made._replace(phases=strides) if form == _PHASES else made


@functools.lru_cache(maxsize=1024)
def _slides(text: str, layout: tuple[tuple[int, ...], str]) -> bool:
    """Whether a formula of one tensor is planned with windows."""
    return any([slides for *_, slides in _core.compile(text)._kernels(layout)])


def _sees_all(name: str, node: Node, parts: Sequence[Any]) -> bool:
    """Whether node is a pooling with one window, which sees all of the dims it pools: the plan has it as a
    reduction over these."""
    tensors = [part for part in parts if isinstance(part, Node)]
    if _groups().get(name) != "pooling" or len(tensors) != 1:
        return False
    value = value_of(tensors[0])
    text = "".join("x" if isinstance(part, Node) else part for part in parts)
    try:
        return not _slides(text, (_shape(value), str(value.dtype).removeprefix("torch.")))
    except (ValueError, TypeError, NotImplementedError):
        return False


def _tensors_of(node: Node, parts: Sequence[Any]) -> list[Tensor]:
    nodes = dict.fromkeys(part for part in parts if isinstance(part, Node))
    return [value for each in nodes if isinstance(value := value_of(each), Tensor)]


def _ask(machine: str, by: int, kind: int, dtype: torch.dtype, bytes_: float, operations: float,
         follows: bool = False, product: _Product | _Windows | None = None,
         records: bool = False) -> float:
    return _core._estimate(machine, by, kind, FLOATS.get(dtype, "float32"), bytes_, operations,
                           int(follows), int(records), *(map(int, product[:16]) if product else ()))


def _dtype(tensors: Sequence[Tensor]) -> torch.dtype:
    """Of the largest."""
    return max(tensors, key=lambda each: math.prod(_shape(each))).dtype


def estimate_call(name: str, node: Node, parts: Sequence[Any]) -> Estimate:
    """A call by itself."""
    result, tensors = value_of(node), _tensors_of(node, parts)
    machine, kind = _machine(result.device), _kind(name)
    product = _factors(name, node, parts)
    dtype = result.dtype if product else _dtype([*tensors, result])
    operations = _seen(product, result) if product else _operations(name, node)
    moved = _bytes([*tensors, result])
    if kind == _ROWS and _is_across(name, node):
        product = _ACROSS
    work = (kind, dtype, moved, operations, False, product)
    theirs = ours = (_ROWS, dtype, moved, 0.0, False, None) if _sees_all(name, node, parts) else work
    if kind == _WINDOWS and not name.startswith("adaptive_avg"):  # of which PyTorch makes a mean, too
        theirs = work
    return Estimate(_ask(machine, _OGIVE, *ours), _ask(machine, _PYTORCH, *theirs))


def _is_across(name: str, node: Node) -> bool:
    """Whether a reduction's elements are no neighbours in memory: it has not the dim whose are."""
    given = arguments_of(name, node)
    source, dim = given.get("input"), given.get("dim")
    value = value_of(source) if isinstance(source, Node) else None
    dims = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    if not isinstance(value, Tensor) or value.dim() == 0 or not all(
            isinstance(each, int) for each in dims):
        return False
    return not any(value.stride(each) == 1 for each in dims)


def _factors(name: str, node: Node, parts: Sequence[Any]) -> _Product | _Windows | None:
    kind = _kind(name)
    return (_product(name, node, parts) if kind == _PRODUCT else
            _windows(name, node) if kind == _WINDOWS else None)


def _seen(windows: _Product | _Windows, result: Tensor) -> float:
    """Elements that a pooling's windows see."""
    if not isinstance(windows, _Windows) or windows.form not in (_MAXIMA, _AVERAGES):
        return 0.0
    return float(math.prod(_shape(result)) * windows.taps)


def _behind(node: Node, names: dict[Node, str], parts: dict[Node, list[Any]]) -> list[Node]:
    """Calls of a formula's that work element by element on what node gave: its kernel has them."""
    found = [node]
    for each in found:
        found += [user for user in each.users if user in names and user not in found
                  and each in parts[user] and _kind(names[user]) == _ELEMENTS]
    return found[1:]


def _is_reduced(nodes: Sequence[Node], names: dict[Node, str],
                parts: dict[Node, list[Any]]) -> bool:
    """Whether the formula reduces what one of these gives, in a kernel of its own: what that reads is
    kept as the convolution gives it, and functions are computed there."""
    return any(user in names and (_kind(names[user]) in (_ROWS, _SOFTMAX, _NORM) or
                                  _sees_all(names[user], user, parts[user]))
               for node in nodes for user in node.users)


def _behind_costs(behind: Sequence[Node], names: dict[Node, str]) -> float:
    """Functions of elements behind a convolution; a batch_norm's root is one for each channel there."""
    return sum(_operations(names[node], node) for node in behind if names[node] != "batch_norm")


def estimate_gradients(name: str, node: Node, parts: Sequence[Any]) -> list[Estimate]:
    """Of a convolution's gradients by its input and its weight, those that are asked for."""
    given, result, of = arguments_of(name, node), value_of(node), _windows(name, node)
    machine, moved = _machine(result.device), _bytes([*_tensors_of(node, parts), result])
    works = []
    if value_of(given["input"]).requires_grad:
        works.append(of._replace(form=_MIRRORED[of.form], n=of.channels, channels=of.n,
                                 k=max(1, of.k * of.n // max(1, of.channels))))
    if value_of(given["weight"]).requires_grad:
        works.append(of._replace(form=_BY_WEIGHT))
    return [Estimate(*(_ask(machine, by, _WINDOWS, result.dtype, moved, 0.0, False, work)
                       for by in (_OGIVE, _PYTORCH))) for work in works]


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
    inside = {node: names[node] for node in nodes}
    factors: list[_Factors] = []
    counted: set[Node] = set()
    for node in nodes:
        found = _factors(names[node], node, parts[node])
        if found is not None and not _sees_all(names[node], node, parts[node]):
            behind = [each for each in _behind(node, inside, parts) if each not in counted] if (
                names[node] in CONVOLUTIONS) else []
            if _is_reduced([node, *behind], inside, parts):
                behind = []
            counted.update(behind)
            factors.append((found, value_of(node), _behind_costs(behind, inside)))
    queue = _Queue(factors)
    operations = sum(_operations(names[node], node) for node in nodes if node not in counted)
    norm = any(names[node] in _NORMS for node in nodes)
    dtype = _dtype([value for value in values if isinstance(value, Tensor)])
    total, follows = 0.0, False
    kernels = [(kernel, bytes_) for kernel, bytes_, *_ in _core.compile(text)._kernels(*layouts)]
    for kernel, bytes_ in _join_phases(kernels, queue.products):
        works: list[_Work] = [
            (_kind_of(product), value.dtype, bytes_ if i == 0 else 0.0,
             _seen(product, value) + behind + (
                 0.0 if i or isinstance(product, _Windows) else operations),
             follows or i > 0, product)
            for i, (product, value, behind) in enumerate(queue.take(kernel))]
        if not works:
            kind = (_ELEMENTS if kernel.startswith("pointwise") else _SOFTMAX if "sumexp" in kernel
                    else _NORM if norm else _ROWS)
            across = _ACROSS if kind == _ROWS and kernel.startswith("columns") else None
            works = [(kind, dtype, bytes_, operations, follows, across)]
        for kind, of, moved, computed, later, product in works:
            seconds = _ask(machine, _OGIVE, kind, of, moved, computed, later, product,
                           records and not later)
            if seconds == 0:
                return 0.0
            total += seconds
        follows = True
        if not any(isinstance(work[-1], _Windows) for work in works):
            operations = 0.0
    return total


_Factors = tuple["_Product | _Windows", Tensor, float]  # the last: functions that its kernel has, too
_Work = tuple[int, torch.dtype, float, float, bool, "_Product | _Windows | None"]


def _kind_of(product: _Product | _Windows) -> int:
    return _WINDOWS if isinstance(product, _Windows) else _PRODUCT


def _join_phases(kernels: list[tuple[str, float]],
                 products: Sequence[_Factors]) -> list[tuple[str, float]]:
    """A transposed convolution with strides is several kernels, one for each phase, that read the
    same: here they are one."""
    joined: list[tuple[str, float]] = []
    waiting, left, of = list(products), 0, None
    for kernel, bytes_ in kernels:
        if left and "product" in kernel and of is not None:
            left -= 1
            joined[-1] = kernel, joined[-1][1] + max(0.0, bytes_ - of.read)
            continue
        joined.append((kernel, bytes_))
        left = 0
        if "product" in kernel and waiting:
            first = waiting[0][0]
            waiting = waiting[2 if kernel.startswith("two products") else 1:]
            if isinstance(first, _Windows):
                of, left = first, first.phases - 1
    return joined


class _Queue:
    """Products, convolutions and poolings of a formula, for its kernels to take in order."""

    def __init__(self, factors: list[_Factors]) -> None:
        self.products = [each for each in factors if not _is_sum(each[0])]
        self.sums = [each for each in factors if _is_sum(each[0])]

    def take(self, kernel: str) -> list[_Factors]:
        """What a kernel of this name computes."""
        waiting = (self.products if "product" in kernel else
                   self.sums if kernel.startswith("columns") else [])
        count = 2 if kernel.startswith("two products") else 1
        taken = waiting[:count]
        del waiting[:count]
        return taken


def _is_sum(product: _Product | _Windows) -> bool:
    """Over the windows of one channel, which is no product."""
    return isinstance(product, _Windows) and product.form in (_DEPTHWISE, _MAXIMA, _AVERAGES)
