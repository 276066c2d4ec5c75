# SPDX-License-Identifier: MIT
"""A call in a graph of torch.fx as a call in the formula language: which functions of
PyTorch those are, with which arguments, and why not if not. Knows one node at a time;
_regions.py joins them.
"""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import _core
from . import _aten
from ._autocast import TENSORS, VALUES, signatures
from ._text import literal

FLOATS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16",
          torch.float64: "float64"}
PRODUCTS = {"linear", "matmul"}
CONVOLUTIONS = {name for name, _, group, _ in _core.functions() if group == "convolution"}
COMPARISONS = {name for name, _, group, symbol in _core.functions()
               if group == "comparison" and symbol}
_OTHER_NAMES = {"log_sigmoid": "logsigmoid", "divide": "div", "true_divide": "div",
                "multiply": "mul", "subtract": "sub", "negative": "neg", "absolute": "abs",
                "float": "float32", "half": "float16", "double": "float64", "mm": "matmul",
                "bmm": "matmul", "truediv": "div", "mod": "remainder", "arctan": "atan",
                "fix": "trunc", "and_": "logical_and", "or_": "logical_or", "xor": "logical_xor",
                "invert": "logical_not", "inv": "logical_not", "bitwise_and": "logical_and",
                "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
                "bitwise_not": "logical_not", "__and__": "logical_and", "__or__": "logical_or",
                "__xor__": "logical_xor", "__invert__": "logical_not", "masked_fill": "where"}
# With a second tensor these are functions of two.
_OF_TWO = {"max": "maximum", "min": "minimum"}
_LOGICAL = {"logical_and", "logical_or", "logical_xor", "logical_not"}
_INTEGERS = {"uint8", "int8", "int16", "int32", "int64"}
_MEETING = {"add", "sub", "mul", "div", "maximum", "minimum", "where", "pow", "clamp", "fmod",
            "remainder", "xlogy", "sigmoid", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10",
            "sin", "cos", "atan", "tanh", "erf", "sqrt", "rsqrt", "reciprocal"}
_LEFT = {"addmm"}  # a product that is PyTorch's business
_INFIX = {name: symbol for name, parameters, _, symbol in _core.functions()
          if symbol and parameters == "input, other"}
# Arguments of PyTorch's that the language does not have, with the values that change nothing.
_WITHOUT_EFFECT = {"inplace": (False,), "dtype": (None,), "alpha": (1,), "rounding_mode": (None,),
                   "out": (None,), "size_average": (None,), "reduce": (None,)}
# The same by position, after those that the language has.
_FURTHER = {"softmax": ("_stacklevel", "dtype"), "softmin": ("_stacklevel", "dtype"),
            "log_softmax": ("_stacklevel", "dtype")}
# What is left to PyTorch but changes nothing that others read: the order of these and of
# the calls around them does not matter.
_HARMLESS = {
    "view", "reshape", "permute", "transpose", "t", "flatten", "unflatten", "unsqueeze", "squeeze",
    "expand", "expand_as", "repeat", "contiguous", "chunk", "split", "unbind", "cat", "stack",
    "from_local", "to_local", "prim from_local", "prim_to_local",
    "narrow", "select", "movedim", "clone", "detach", "getitem", "getattr", "size", "dim", "numel",
    "item", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "embedding",
    "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "group_norm", "addmm", "baddbmm", "einsum", "argmax", "argmin", "cumsum",
    "tril", "triu", "pad", "interpolate", "pixel_shuffle", "zeros", "ones", "arange",
    "full", "zeros_like", "ones_like", "empty_like", "type_as", "to",
    "add", "sub", "mul", "floordiv", "mod", "truediv"}


class Left(Exception):
    """Why a node is left to PyTorch."""


@functools.cache
def _functions() -> dict[Any, str]:
    """PyTorch's functions, and Python's operators, by what the language calls them."""
    names = {name: name for name in signatures()} | _OTHER_NAMES
    found: dict[Any, str] = {}
    for space in (torch, F, torch._C._nn, torch.linalg, operator):
        for name, meaning in names.items():
            if name in _LEFT:
                continue
            function = getattr(space, name, None)
            if callable(function) and not isinstance(function, (type, torch.dtype)):
                found[function] = meaning
    return found


def _name_of_method(node: Node) -> str | None:
    """Of a method that may cast."""
    given, result = value_of(node.args[0]), value_of(node)
    if not isinstance(given, Tensor) or not isinstance(result, Tensor):
        return None
    others = [*node.args[1:], *node.kwargs.values()]
    if len(others) != 1 or given.device != result.device or not isinstance(
            others[0], (Node, torch.dtype, torch.device, str)):
        return None
    return FLOATS.get(result.dtype)


def name_of(node: Node) -> str | None:
    """The language's name for what node calls; None: it has none."""
    if isinstance(node.target, OpOverload):
        return _aten.name_of(node, FLOATS)
    if node.target in ("clone", torch.clone) and len(node.args) == 1 and not node.kwargs:
        return _aten.COPY
    if node.op == "call_function":
        return _functions().get(node.target)
    if node.op != "call_method" or not isinstance(node.target, str):
        return None
    if node.target in ("to", "type", "type_as"):
        return _name_of_method(node)
    if node.kwargs.get("memory_format") is not None:
        return None
    name = _OTHER_NAMES.get(node.target, node.target)
    known = name in signatures() and name not in _LEFT
    return name if known and hasattr(Tensor, node.target) else None


def argument(node: Node, index: int, name: str, default: Any = None) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def is_harmless(node: Node) -> bool:
    """Whether other calls may change places with this one: it writes to nothing, draws no
    random number, changes no state. Nothing is known of what is not listed."""
    if node.op in ("placeholder", "get_attr"):
        return True
    if node.op not in ("call_function", "call_method") or may_write(node):
        return False
    target: Any = node.target
    if isinstance(target, OpOverload):
        return not any(tag == torch.Tag.nondeterministic_seeded for tag in target.tags)
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name_of(node) is not None or name in _HARMLESS


# Where norms have the switch for statistics of their input, and what it is if it is not given.
_OF_INPUT = {"batch_norm": ("training", False), "instance_norm": ("use_input_stats", True)}


def changes_running(node: Node) -> bool:
    """Whether node is a norm that changes running_mean and running_var. (torch.batch_norm and
    torch.instance_norm, which nobody calls, have other arguments: nothing is known of theirs.)"""
    target: Any = node.target
    if target not in (F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm):
        return False
    switch, default = _OF_INPUT[target.__name__]
    plain = target in (F.batch_norm, F.instance_norm)
    return not plain or bool(argument(node, 5, switch, default)) and any(
        argument(node, place, name) is not None
        for place, name in ((1, "running_mean"), (2, "running_var")))


def may_write(node: Node) -> bool:
    """Whether node writes to a tensor that it reads, as far as its name tells."""
    if node.op not in ("call_function", "call_method"):
        return bool(node.op == "call_module")
    target: Any = node.target
    if isinstance(target, OpOverload):
        return bool(target._schema.is_mutable)
    if changes_running(node):
        return True
    name = target if isinstance(target, str) else getattr(target, "__name__", "_")
    space = "torch" if isinstance(target, str) else getattr(target, "__module__", None) or "torch"
    names = _parameters(target)
    place = names.index("inplace") if "inplace" in names else len(node.args)
    written = "out" in node.kwargs or node.kwargs.get("inplace") or any(
        value is True for value in node.args[place:])
    if space == "_operator":
        return name == "setitem" or name in ("iadd", "isub", "imul", "itruediv", "ipow", "imatmul",
                                             "ifloordiv", "imod", "iand", "ior", "ixor")
    return bool(written) or name.endswith("_") or space.partition(".")[0] not in ("torch", "builtins")


@functools.cache
def _parameters(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a built-in function, or a method's name
        return ()


def value_of(node: Node) -> Any:
    """What PyTorch says a node gives: a tensor without data, a symbol, or nothing."""
    return node.meta.get("example_value", node.meta.get("val"))


def is_tensor(value: Any) -> bool:
    """As an argument: a node that stands for one."""
    return isinstance(value, Node) and isinstance(value_of(value), Tensor)


def is_number(value: Any) -> bool:
    """As an argument: also a node that stands for one."""
    if isinstance(value, Node):
        value = value_of(value)
        return isinstance(value, (torch.SymInt, torch.SymFloat))
    return isinstance(value, (bool, int, float))


def constant(value: Any) -> Any:
    """For the formula's text; symbols become numbers, with a guard."""
    if isinstance(value, (tuple, list)):
        return [constant(item) for item in value]
    if isinstance(value, Node) and is_number(value):
        from torch.fx.experimental.symbolic_shapes import guard_scalar
        if not value_of(value).node.has_hint():
            raise Left("an argument is a number that depends on the data")
        return guard_scalar(value_of(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise Left(f"an argument is a {type(value).__name__}")


def check_tensor(node: Node, device: torch.device | None) -> torch.device:
    value = value_of(node)
    if not isinstance(value, Tensor):
        raise Left("an argument is no tensor")
    if is_functorch_wrapped_tensor(value) or (
            is_traceable_wrapper_subclass(value) and type(value).__name__ != "DTensor"):
        raise Left("it works on a tensor subclass, or under torch.func")
    if value.layout != torch.strided or value.device.type not in ("cpu", "cuda"):
        raise Left(f"a tensor is {value.layout} on {value.device}")
    if value.dim() > 8:
        raise Left(f"a tensor has {value.dim()} dims")
    if device is not None and value.device != device:
        raise Left("its tensors are on different devices")
    return value.device


def _is_masked_fill(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return bool(name == "masked_fill")


def _check_dtypes(name: str, given: dict[str, Any], result: torch.dtype) -> None:
    """Integers and bool: what becomes floats, is cast, or is a condition."""
    dtypes = {key: value_of(value).dtype for key, value in given.items() if is_tensor(value)}
    # 2.5, or a function like exp, makes PyTorch's default type of integers, which may be another.
    floats = (result == torch.float32
              or any(dtype.is_floating_point for dtype in dtypes.values()))
    for key, dtype in dtypes.items():
        conditional = key == "condition" or name in _LOGICAL
        if dtype in FLOATS or dtype == torch.bool and conditional:
            continue
        known = dtype == torch.bool or str(dtype).removeprefix("torch.") in _INTEGERS
        meets = floats and (name in _MEETING or name in COMPARISONS)
        if not known or conditional or not (name in FLOATS.values() or meets):
            raise Left(f"an argument is {str(dtype).removeprefix('torch.')}")


def _bind(name: str, node: Node) -> dict[str, Any]:
    """The language's parameters and their arguments; raises Left for one it lacks."""
    if _is_masked_fill(node):
        value = argument(node, 2, "value")
        if not is_number(value):
            raise Left("masked_fill with a tensor")
        return {"condition": argument(node, 1, "mask"), "input": value, "other": node.args[0]}
    parameters = signatures()[name].parameters
    positional = [each.name for each in parameters.values() if each.kind != each.KEYWORD_ONLY]
    names = [*positional, *(_FURTHER.get(name) or ("inplace",))]
    if name in FLOATS.values():
        return {"input": node.args[0]}
    if name in ("var", "std", "var_mean", "std_mean"):
        names = ["input", "unbiased" if len(node.args) == 2 and isinstance(node.args[1], bool)
                 else "dim", "unbiased", "keepdim"]
    if len(node.args) > len(names):
        raise Left(f"{name} with {len(node.args)} arguments")
    given = {**dict(zip(names, node.args)), **{
        {"axis": "dim", "self": "input", "mat2": "other"}.get(key, key): value for key, value in node.kwargs.items()}}
    if isinstance(given.get("_stacklevel"), torch.dtype):
        given["dtype"] = given.pop("_stacklevel")  # torch.softmax(input, dim, dtype)
    for key in [key for key in given if key not in parameters]:
        value = given.pop(key)
        if key == "_stacklevel":
            continue
        if key == "unbiased":
            given["correction"] = 1.0 if value else 0.0
        elif key == "dtype" and value in FLOATS:
            given["input"] = (FLOATS[value], given["input"])
        elif not any(value is each or value == each for each in _WITHOUT_EFFECT.get(key, ())):
            raise Left(f"{name} with {key}={value}")
    return {key: given[key] for key in parameters if given.get(key) is not None}


def arguments_of(name: str, node: Node) -> dict[str, Any]:
    """The language's parameters and what node gives for them. Raises Left for one it lacks."""
    return _aten.bind(name, node, FLOATS, Left) if isinstance(
        node.target, OpOverload) else _bind(name, node)


Part = Any  # text, or a node whose text belongs there


def translate(name: str, node: Node) -> list[Part]:
    """The call as text in which nodes stand for their own. Raises Left."""
    result = value_of(node)
    mask = name in COMPARISONS
    if not isinstance(result, Tensor):
        raise Left("its result is no tensor")
    if not mask and result.dtype not in FLOATS:
        raise Left(f"its result is {str(result.dtype).removeprefix('torch.')}")
    if changes_running(node):  # but for what _batch_norm.py translates
        raise Left("it changes running_mean and running_var")
    if name == _aten.COPY:
        check_tensor(node, None)
        return [argument(node, 0, "input")]
    if name == _aten.CONSTANT:
        return [literal(name, float(constant(_aten.number_of(node))))]
    if _aten.packet_of(node) == "addmm":
        return _translate_addmm(node)
    if name in _OF_TWO and is_tensor(argument(node, 1, "other")):
        name = _OF_TWO[name]
    given = arguments_of(name, node)
    _check_dtypes(name, given, result.dtype)
    if name == "norm" and given.get("p") == "fro":
        del given["p"]
    device, numbers = None, 0
    infix = _INFIX.get(name)
    parts: list[Part] = ["" if infix else name, "("]
    for key, value in given.items():
        cast = None
        if isinstance(value, tuple) and len(value) == 2 and value[0] in FLOATS.values():
            cast, value = value
        parts.append("" if len(parts) == 2 else f" {infix} " if infix else ", ")
        if key not in TENSORS and not (key in VALUES and is_tensor(value)):
            parts.append(f"{key}={literal(key, constant(value))}")
            continue
        if key in VALUES | {"weight", "bias"} or signatures()[name].parameters[key].default is None:
            parts.append(f"{key}=")
        if isinstance(value, Node) and not is_number(value):
            device = check_tensor(value, device)
            parts += [f"{cast}(", value, ")"] if cast else [value]
        elif is_number(value):
            numbers += 1
            parts.append(value if isinstance(value, Node) else literal(key, float(value)))
        else:
            raise Left(f"an argument is a {type(value).__name__}")
    if device is None or numbers and name in PRODUCTS:
        raise Left("it has no tensor")
    return [*parts, ")"]


def _translate_addmm(node: Node) -> list[Part]:
    bias, x, w = node.args
    if any(value != 1 for value in node.kwargs.values()):
        raise Left("addmm with factors")
    device = None
    for each in (bias, x, w):
        device = check_tensor(each, device)
    return ["((", x, " @ ", w, ") + ", bias, ")"]


def plain_name(node: Node) -> str:
    """What PyTorch calls it."""
    target: Any = node.target
    if isinstance(target, str):
        return target
    return _aten.packet_of(node) or getattr(target, "__name__", str(target))


def why_unknown(node: Node) -> str:
    """What is wrong with a node that has no name in the language."""
    name = plain_name(node)
    if name in _LEFT:
        return "PyTorch's libraries compute it"
    if name in signatures() and isinstance(value_of(node), (tuple, list)):  # max, std_mean
        return "it gives several tensors at once"
    return f"the formula language has no {name}"
