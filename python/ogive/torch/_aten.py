# SPDX-License-Identifier: MIT
"""Graphs of ATen's operators, as AOTAutograd makes them of a model and its gradient: which
operator is which function of the formula language, and what is made of a graph before regions
are looked for in it. _wrapper.py makes code of the result.

Such a graph writes to nothing, so that views are nothing but sizes and strides of memory that
another node has.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node

from .. import _core
from ._aten_views import join_scattered, keep_reduced_dims, sum_before_views
from ._autocast import signatures

aten: Any = torch.ops.aten
COPY, CONSTANT = "copy", "constant"  # of a tensor; a number as a tensor without dims

# What PyTorch makes other operators of that the language has, and nothing else; where the language
# has the function itself (gelu, softmax), it is not among them, nor what draws random numbers.
_DECOMPOSED = (
    "_fused_rms_norm", "_fused_rms_norm_backward", "native_layer_norm",
    "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward",
    "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training", "native_batch_norm", "native_batch_norm_backward",
    "batch_norm_backward", "_batch_norm_with_update_functional",
    "_softmax_backward_data", "_log_softmax_backward_data", "log_sigmoid_forward",
    "log_sigmoid_backward", "elu_backward", "gelu_backward", "glu", "glu_backward",
    "hardsigmoid_backward", "hardswish", "hardswish_backward", "hardtanh_backward",
    "leaky_relu_backward", "mish_backward", "sigmoid_backward",
    "softplus_backward", "tanh_backward", "threshold_backward", "softshrink", "hardshrink",
    "softshrink_backward", "hardshrink_backward", "selu", "celu", "addcmul", "addcdiv",
    "binary_cross_entropy", "binary_cross_entropy_backward", "binary_cross_entropy_with_logits",
    "huber_loss", "huber_loss_backward", "l1_loss", "mse_loss", "mse_loss_backward",
    "smooth_l1_loss", "smooth_l1_loss_backward", "soft_margin_loss", "soft_margin_loss_backward",
    "kl_div", "lerp", "rsub", "squeeze", "square", "std", "std_mean", "logit", "logit_backward",
    "_safe_softmax", "_prelu_kernel", "_prelu_kernel_backward", "native_dropout_backward",
    "masked_fill", "linalg_vector_norm", "nan_to_num", "slice_backward", "select_backward")
_NAMES = {"_softmax": "softmax", "_log_softmax": "log_softmax", "clamp_min": "clamp",
          "clamp_max": "clamp", "mm": "matmul", "bmm": "matmul", "addmm": "linear",
          "bitwise_and": "logical_and", "bitwise_or": "logical_or",
          "bitwise_xor": "logical_xor", "bitwise_not": "logical_not"}
_PARAMETERS = {"self": "input", "mat2": "other"}
# Arguments that the language does not have, with the values that change nothing.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "alpha": (1,), "dtype": (None,), "rounding_mode": (None,), "half_to_float": (False,),
    "scale": (1,), "input_scale": (1,), "layout": (None, torch.strided),
    "pin_memory": (None, False), "non_blocking": (False,)}
VIEWS = {"view", "_unsafe_view", "permute", "t", "transpose", "expand", "unsqueeze", "squeeze",
         "slice", "select", "as_strided", "alias", "detach", "diagonal", "lift_fresh"}


def _unless_halves(decompose: Callable[..., Any]) -> Callable[..., Any]:
    def call(grad: Tensor, *args: Any, **named: Any) -> Any:
        if grad.device.type == "cuda" and grad.element_size() == 2:
            return NotImplemented
        return decompose(grad, *args, **named)

    return call


def _derive_silu(grad: Tensor, x: Tensor) -> Tensor:
    """By sigmoid, which some versions of PyTorch write as a quotient of exponentials."""
    wide = x if x.dtype == torch.float64 else x.float()
    s = torch.sigmoid(wide)
    return (grad.to(wide.dtype) * s * (1 + wide * (1 - s))).to(grad.dtype)


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """gelu's gradient, an erf and an exp for each element, takes longer in a formula than halves do
    to be moved, and PyTorch's, less exact, does not."""
    from torch._decomp import get_decompositions
    found = dict(get_decompositions([getattr(aten, name) for name in _DECOMPOSED
                                     if hasattr(aten, name)]))
    gelu = aten.gelu_backward.default
    return {**found, gelu: _unless_halves(found[gelu]), aten.silu_backward.default: _derive_silu}


def packet_of(node: Node) -> str:
    """The operator's name without its overload; "" of what is no operator of ATen's."""
    target: Any = node.target
    if not isinstance(target, OpOverload) or target.namespace not in ("aten", "prims"):
        return ""
    return str(target._schema.name.partition("::")[2])


def joined_dim(cat: Node) -> int:
    """The dim along which a cat joins, by position or by name."""
    dim: Any = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
    return int(dim % max(1, _value(cat).dim()))


def is_view(node: Node) -> bool:
    return packet_of(node) in VIEWS


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, Node) else None


def name_of(node: Node, floats: dict[torch.dtype, str]) -> str | None:
    """The language's name for what node calls; None: it has none."""
    packet, result = packet_of(node), _value(node)
    if packet in ("convert_element_type", "_to_copy"):
        given = _value(node.args[0])
        others = {key for key, value in node.kwargs.items() if value is not None} - {"dtype"}
        same = isinstance(given, Tensor) and isinstance(result, Tensor) and (
            given.device == result.device)
        # Whatever its memory format, strides are those of the graph's value.
        if not same or others - {"layout", "pin_memory", "device", "non_blocking", "memory_format"}:
            return None
        return COPY if given.dtype == result.dtype else floats.get(result.dtype)
    if packet in ("full", "scalar_tensor"):
        return CONSTANT if isinstance(result, Tensor) and result.dim() == 0 else None
    if packet == "clone":
        return COPY
    if packet == "convolution":
        weight, transposed = _value(node.args[1]), node.args[6]
        return f"conv{'_transpose' if transposed else ''}{weight.dim() - 2}d"
    name = _NAMES.get(packet, packet)
    return name if name in signatures() else None


def number_of(node: Node) -> Any:
    """The number that a tensor without dims is made of."""
    value: Any = node.args[1 if packet_of(node) == "full" else 0]
    return value


def bind(name: str, node: Node, floats: dict[torch.dtype, str],
         refuse: Callable[[str], Exception]) -> dict[str, Any]:
    """The language's parameters and their arguments."""
    target: Any = node.target
    given: dict[str, Any] = {}
    for i, argument in enumerate(target._schema.arguments):
        value = (node.args[i] if i < len(node.args) else
                 node.kwargs.get(argument.name, argument.default_value))
        given[_PARAMETERS.get(argument.name, argument.name)] = value
    if name in floats.values():
        return {"input": node.args[0]}
    parameters = signatures()[name].parameters
    if given.get("half_to_float"):
        given["input"], given["half_to_float"] = ("float32", given["input"]), False
    if name in ("var", "std") and given.get("correction") is None:
        given["correction"] = 1.0
    for key in ("dim", "stride"):
        if given.get(key) == []:
            given[key] = None
    if packet_of(node) == "convolution":
        given.pop("transposed")
        if "output_padding" not in parameters:
            given.pop("output_padding")
    for key in [key for key in given if key not in parameters]:
        value = given.pop(key)
        if key == "dtype" and value in floats:
            given["input"] = (floats[value], given["input"])
        elif value not in _WITHOUT_EFFECT.get(key, ()):
            raise refuse(f"{name} with {key}={value}")
    return {key: given[key] for key in parameters if given.get(key) is not None}


# ---- what is made of a graph first -----------------------------------------------------


def _replace(node: Node, other: Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)


def _call(graph: Graph, target: Any, arguments: tuple[Any, ...], model: Node,
          value: Any = None) -> Node:
    """A call in model's place, with its meta data but for the value."""
    made = graph.call_function(target, arguments)
    made.meta = {**model.meta, "val": _value(model) if value is None else value}
    return made


def _split_variances(graph: Graph) -> None:
    """var_mean as a variance and a mean."""
    for node in list(graph.nodes):
        if packet_of(node) != "var_mean" or node.target is not aten.var_mean.correction:
            continue
        named = dict(node.kwargs)
        dims = node.args[1] if len(node.args) > 1 else named.pop("dim", None)
        named.pop("dim", None)
        if dims is None or not all(user.target is operator.getitem for user in node.users):
            continue
        for user in list(node.users):
            with graph.inserting_before(user):
                if user.args[1] == 0:
                    made = graph.call_function(aten.var.correction, (node.args[0], dims), named)
                else:
                    made = graph.call_function(
                        aten.mean.dim, (node.args[0], dims, named.get("keepdim", False)))
            made.meta = dict(user.meta)
            _replace(user, made)
        graph.erase_node(node)


def _drop_indices(graph: Graph) -> None:
    """Maxima of windows whose places nobody asks for."""
    for node in list(graph.nodes):
        packet = packet_of(node)
        users = list(node.users)
        if not packet.endswith("_with_indices") or not packet.startswith("max_pool") or any(
                user.target is not operator.getitem or user.args[1] != 0 for user in users):
            continue
        target = getattr(aten, packet.removesuffix("_with_indices")).default
        for user in users:
            with graph.inserting_before(user):
                made = _call(graph, target, tuple(node.args), user)
                made.kwargs = node.kwargs
            _replace(user, made)


def _drop_aliases(graph: Graph) -> None:
    """All but results, which are tensors of their own: one may require grad, the other not."""
    for node in list(graph.nodes):
        if packet_of(node) in ("alias", "detach", "lift_fresh"):
            node.replace_all_uses_with(node.args[0], lambda user: user.op != "output")


def _clone_copies(graph: Graph) -> None:
    """What was copied into a tensor is all that is read of it."""
    for node in list(graph.nodes):
        if node.target is not aten.copy.default:
            continue
        source = _value(node.args[1])
        if source.shape == _value(node).shape and source.dtype == _value(node).dtype and (
                source.device == _value(node).device):
            with graph.inserting_before(node):
                made = _call(graph, aten.clone.default, (node.args[1],), node)
            _replace(node, made)


def _rows_of(factor: Node, view: Node) -> Node | None:
    """factor, (rows, k), with its rows divided as view, (.., n), has them."""
    lead, k = tuple(_value(view).shape[:-1]), _value(factor).shape[1]
    if packet_of(factor) in ("view", "_unsafe_view"):
        source = factor.args[0]
        if tuple(_value(source).shape) == (*lead, k):
            return source
    if not isinstance(k, int) or not _value(factor).is_contiguous():
        return None
    sizes = [*view.args[1][:-1], k]
    return _call(factor.graph, aten.view.default, (factor, sizes), view,
                 _value(factor).view(*lead, k))


def _lift_products(graph: Graph, takes: Callable[[Node], bool]) -> None:
    """A product of matrices whose rows are viewed as several dims afterwards becomes one of
    tensors with these dims, so that what follows can belong to it."""
    for node in list(graph.nodes):
        if packet_of(node) not in ("mm", "addmm") or not takes(node):
            continue
        with_bias = packet_of(node) == "addmm"
        view = next((user for user in node.users if packet_of(user) in ("view", "_unsafe_view")
                     and _value(user).dim() > 2
                     and _value(user).shape[-1] == _value(node).shape[-1]), None)
        if view is None or with_bias and _value(node.args[0]).dim() != 1:
            continue
        with graph.inserting_before(node):
            left = _rows_of(node.args[1 if with_bias else 0], view)
            if left is None:
                continue
            made = _call(graph, aten.matmul.default, (left, node.args[2 if with_bias else 1]), view)
            if with_bias:
                made = _call(graph, aten.add.Tensor, (made, node.args[0]), view)
            flat = _call(graph, aten.view.default, (made, [-1, _value(node).shape[-1]]), node)
        shape = tuple(_value(view).shape)
        for user in list(node.users):
            if packet_of(user) in ("view", "_unsafe_view") and tuple(_value(user).shape) == shape:
                _replace(user, made)
        _replace(node, flat)


def _slice_splits(graph: Graph) -> None:
    """Parts of a tensor are views each for itself."""
    for node in list(graph.nodes):
        packet = packet_of(node)
        if packet not in ("split", "split_with_sizes", "unbind") or not all(
                user.target is operator.getitem for user in node.users):
            continue
        dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        if packet == "unbind":
            dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        sizes = [each.shape[dim] for each in _value(node)] if packet != "unbind" else []
        if not all(isinstance(size, int) for size in sizes):
            continue
        for user in list(node.users):
            i = user.args[1]
            with graph.inserting_before(user):
                if packet == "unbind":
                    made = _call(graph, aten.select.int, (node.args[0], dim, i), user)
                else:
                    first = sum(sizes[:i])
                    made = _call(graph, aten.slice.Tensor,
                                 (node.args[0], dim, first, first + sizes[i]), user)
            _replace(user, made)
        graph.erase_node(node)


_ELEMENTWISE = {"add", "sub", "mul", "div", "neg", "maximum", "minimum", "convert_element_type",
                "_to_copy"}


def _is_whole(value: Any, shape: tuple[Any, ...]) -> bool:
    return isinstance(value, Node) and isinstance(_value(value), Tensor) and (
        tuple(_value(value).shape) == shape)


def _drop_expands(graph: Graph) -> None:
    """What is expanded to be combined with a tensor of that shape is broadcast by the function
    itself, and a function of what is expanded is that of it before."""
    pending = [node for node in graph.nodes if packet_of(node) == "expand"]
    while pending:
        node = pending.pop()
        narrow, shape = node.args[0], tuple(_value(node).shape)
        if _value(narrow).dim() != len(shape):
            continue
        for user in list(node.users):
            if packet_of(user) not in _ELEMENTWISE or user.args.count(node) != 1 or (
                    tuple(_value(user).shape) != shape):
                continue
            arguments = tuple(narrow if each is node else each for each in user.args)
            others = [each for each in user.args if isinstance(each, Node) and each is not node]
            if any(_is_whole(each, shape) and packet_of(each) != "expand" for each in others):
                user.args = arguments
            elif not others and all(packet_of(each) in _ELEMENTWISE for each in user.users):
                pending.append(_expand_later(graph, user, node, arguments))


def _expand_later(graph: Graph, user: Node, expand: Node, arguments: tuple[Any, ...]) -> Node:
    """user's function before expand instead of behind it."""
    narrow = _value(expand.args[0])
    with graph.inserting_before(user):
        made = _call(graph, user.target, arguments, user, _value(user).new_empty(narrow.shape))
        made.kwargs = user.kwargs
        wide = _call(graph, aten.expand.default, (made, expand.args[1]), user,
                     made.meta["val"].expand(_value(expand).shape))
    _replace(user, wide)
    return wide


@functools.cache
def _elementwise() -> frozenset[str]:
    return frozenset(_ELEMENTWISE) | {name for name, _, group, _ in _core.functions()
                                      if group in ("activation", "mathematics", "arithmetic")}


def _reaches(cat: Node) -> list[Node]:
    """What is computed of cat element by element, in order."""
    shape, found = tuple(_value(cat).shape), [cat]
    for node in found:
        found += [user for user in node.users if packet_of(user) in _elementwise()
                  and user not in found and _is_whole(user, shape)]
    order = {node: i for i, node in enumerate(cat.graph.nodes)}
    return sorted(found[1:], key=order.__getitem__)


class _Parts:
    """Nodes, and what they are of, for one part, [first, last) of a dim, of a node's result."""

    def __init__(self, node: Node, dim: int, first: int, last: int) -> None:
        self.graph, self.whole = node.graph, _value(node).shape[dim]
        self.dim = dim - _value(node).dim()  # from the last
        self.first, self.last = first, last
        self.made: dict[Node, Node] = {}

    def has(self, node: Any) -> bool:
        """Whether it is divided as the whole is."""
        value = _value(node)
        return isinstance(value, Tensor) and value.dim() >= -self.dim and (
            value.shape[self.dim] == self.whole)

    def cut(self, node: Node) -> Node:
        value = _value(node)
        dim = value.dim() + self.dim
        part = value.narrow(dim, self.first, self.last - self.first)
        return _call(self.graph, aten.slice.Tensor, (node, dim, self.first, self.last), node, part)

    def of(self, node: Any) -> Any:
        if not self.has(node):
            return node
        if node not in self.made:
            if packet_of(node) in _elementwise():
                arguments = tuple(map(self.of, node.args))
                made = self.graph.call_function(node.target, arguments, dict(node.kwargs))
                made.meta = {**node.meta, "val": node.target(
                    *[each if _value(each) is None else _value(each) for each in arguments],
                    **node.kwargs)}
            else:
                made = self.cut(node)
            self.made[node] = made
        return self.made[node]


_MOST_PIECES, _MOST_REACHED = 4, 16


def _divide_cats(graph: Graph) -> None:
    """What is computed element by element of joined tensors is computed of each of them, and the
    results are joined: _wrapper.py has them written where they belong."""
    for node in list(graph.nodes):
        if node.target is not aten.cat.default or len(node.args[0]) > _MOST_PIECES or len(
                set(node.args[0])) < len(node.args[0]):
            continue
        dim = joined_dim(node)
        sizes = [_value(each).shape[dim] for each in node.args[0]]
        reached = _reaches(node)
        if not reached or len(reached) > _MOST_REACHED or len(reached) < len(node.users) or not all(
                isinstance(size, int) for size in sizes) or any(
                _value(each).dtype != _value(node).dtype for each in node.args[0]):
            continue
        ends = [each for each in reached if any(user not in reached for user in each.users)]
        parts = [_Parts(node, dim, sum(sizes[:i]), sum(sizes[:i + 1])) for i in range(len(sizes))]
        for part, piece in zip(parts, node.args[0]):
            part.made[node] = piece
        for end in ends:
            with graph.inserting_before(end):
                joined = _call(graph, aten.cat.default, ([part.of(end) for part in parts], dim), end)
            end.replace_all_uses_with(joined)


def _sliced(node: Node) -> tuple[int, int, int] | None:
    """The dim and the part of it that a slice takes; None: node is no such slice, or not known."""
    if node.target is not aten.slice.Tensor or node.kwargs or len(node.args) != 4:
        return None
    _, dim, first, last = node.args
    size = _value(node.args[0]).shape[dim]
    if not all(isinstance(each, int) for each in (size, first, last)):
        return None
    first, last = (min(max(each + size if each < 0 else each, 0), size) for each in (first, last))
    return (dim % _value(node).dim(), first, last) if first < last else None


def _slice_early(graph: Graph) -> None:
    """Parts of what is computed element by element, read by what is computed so, too, are computed
    of parts, so that all of it can be one formula: gradients of rotated halves."""
    for node in list(graph.nodes):
        found = [_sliced(user) for user in node.users]
        if packet_of(node) not in _elementwise() or len(found) < 2 or not all(found) or any(
                packet_of(reader) not in _elementwise() for user in node.users for reader in user.users):
            continue
        ranges = sorted(each for each in found if each)
        if any(a[0] != b[0] or a[2] > b[1] for a, b in zip(ranges, ranges[1:])):
            continue
        for user, (dim, first, last) in zip(list(node.users), [each for each in found if each]):
            part = _Parts(node, dim, first, last)
            with graph.inserting_before(user):
                part.made.update({each: part.cut(each) for each in node.all_input_nodes
                                  if part.has(each)})
                made = part.of(node)
            _replace(user, made)


def _share_views(graph: Graph) -> None:
    """Slices of the same part of a tensor become one, which a formula then reads once."""
    found: dict[Any, Node] = {}
    for node in list(graph.nodes):
        part = _sliced(node) if node.target is aten.slice.Tensor else None
        if part is not None and not any(user.op == "output" for user in node.users):
            first = found.setdefault((node.args[0], part), node)
            if first is not node:
                _replace(node, first)


def _wide_of(x: Node) -> Node | None:
    """x, or what halves are in float32; None: nothing has them so."""
    if _value(x).element_size() > 2:
        return x
    return next((user for user in x.users if packet_of(user) in ("convert_element_type", "_to_copy")
                 and _value(user).dtype == torch.float32), None)


def _share_sigmoids(graph: Graph) -> None:
    """silu(x) as x * sigmoid(x), where a gradient has sigmoid(x), too: of two curves, which take longer
    than halves do to be moved, one is left."""
    for node in [each for each in graph.nodes if packet_of(each) == "silu"]:
        x, dtype = node.args[0], _value(node).dtype
        wide = _wide_of(x)
        curve = None if wide is None else next(
            (user for user in wide.users if packet_of(user) == "sigmoid"), None)
        if wide is None or curve is None:
            continue
        first = next(each for each in graph.nodes if each in (node, curve))
        with graph.inserting_before(first):
            argument = x if wide is x else _call(graph, wide.target, tuple(wide.args), wide)
            if argument is not x:
                argument.kwargs = wide.kwargs
            shared = _call(graph, curve.target, (argument,), curve)
            made = _call(graph, aten.mul.Tensor, (argument, shared), curve)
            if wide is not x:
                made = _call(graph, torch.ops.prims.convert_element_type.default, (made, dtype), node)
        _replace(curve, shared)
        _replace(node, made)


def _is_needed(node: Node) -> bool:
    """Though nobody reads it: what draws random numbers does so for those that follow, too."""
    target: Any = node.target
    return node.is_impure() or isinstance(target, OpOverload) and (
        torch.Tag.nondeterministic_seeded in target.tags)


def prepare(graph: Graph, takes: Callable[[Node], bool]) -> None:
    """Brings graph into the form that regions are looked for in. takes: of a product."""
    _drop_aliases(graph)
    _clone_copies(graph)
    _split_variances(graph)
    _drop_indices(graph)
    _slice_splits(graph)
    join_scattered(graph)
    graph.eliminate_dead_code(_is_needed)
    sum_before_views(graph)
    keep_reduced_dims(graph, lambda node: packet_of(node) in _elementwise())
    _drop_expands(graph)
    _divide_cats(graph)
    graph.eliminate_dead_code(_is_needed)  # the cats that were divided
    _slice_early(graph)
    _share_views(graph)
    _share_sigmoids(graph)
    _lift_products(graph, takes)
    graph.eliminate_dead_code(_is_needed)
    graph.lint()
