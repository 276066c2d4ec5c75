# SPDX-License-Identifier: MIT
"""torch.ops.ogive.run: a formula as an operator of PyTorch's dispatcher.

    run(Tensor[] inputs, str formula, str steps="", str precision="float32") -> Tensor[]

The formula travels as text, so that traced and exported graphs are readable and need
nothing but this package. steps says what of it is meant: "w,b" is the gradient by w and b,
"w,b;w" that one's gradient by w, "linear=bfloat16" the formula with casts, "0,<1" the part of
it that computes value 0 given value 1 (ogive.h). So the operator's gradient is the operator
itself with one more step, to any order.

Calls reach it only when something needs the dispatcher (core_torch.c); all others go
straight to the kernels.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import _core
from ._autocast import find_casts, signatures
from ._batched import run_by_items
from ._gradient import Blank, Gradient, gradient_of, restore_saved, save
from ._kept import Cut, Part, describe_gradient, find_cut, has_products, results_of
from ._shapes import infer
from ._text import make, restore

library = torch.library.Library("ogive", "FRAGMENT")
library.define('run(Tensor[] inputs, str formula, str steps="", str precision="float32")'
               " -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
run = torch.ops.ogive.run.default


# ---- what runs it -------------------------------------------------------------------


def _kernel(inputs: Sequence[Tensor], formula: str, steps: str = "",
            precision: str = "float32") -> list[Tensor]:
    found = restore(formula, steps, precision)
    result = found._straight(*inputs)
    return list(result) if found.results > 1 else [result]


def _fake(inputs: Sequence[Tensor], formula: str, steps: str = "",
          precision: str = "float32") -> list[Tensor]:
    layouts = infer(restore(formula, steps, precision), inputs)
    model = next((tensor for tensor in inputs if tensor.dim() > 0), inputs[0])
    for tensor in inputs:  # a meta tensor beside one with memory comes here, too
        if tensor.dim() > 0 and tensor.device != model.device:
            raise RuntimeError("Expected all tensors to be on the same device, but found at least "
                               f"two devices, {model.device} and {tensor.device}!")
    return [model.new_empty(shape, dtype=dtype) for shape, dtype in layouts]


for _device in ("CPU", "CUDA"):
    library.impl("run", _kernel, _device)
torch.library.register_fake("ogive::run", _fake, lib=library)


# ---- gradients ----------------------------------------------------------------------


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Computes what it needs of the results again, from the inputs."""
    formula, needed = ctx.formula, ctx.needs_input_grad[1:]
    gradient = make(formula, [n for n, need in zip(formula.inputs, needed) if need])
    results = gradient(*ctx.saved_tensors, *grads)
    given = iter(results if gradient.results > 1 else (results,))
    return (None, *(next(given) if need else None for need in needed))


def _jvp(ctx: Any, _: None, *tangents: Tensor | None) -> Any:
    """A formula's gradient is linear in grad, with the transposed Jacobian: its gradient by
    grad, of tangents, is the Jacobian's product with them, whatever grad is."""
    formula, inputs = ctx.formula, ctx.saved_tensors
    along = {name: t for name, t in zip(formula.inputs, tangents) if t is not None}
    gradient = make(formula, along)
    grads = [inputs[0].new_zeros(shape, dtype=dtype) for shape, dtype in infer(formula, inputs)]
    product = make(gradient, gradient.inputs[len(formula.inputs):])
    return product(*inputs, *grads, *along.values())


def _gradient_of_some(formula: _core.Formula, needed: Sequence[bool],
                      values: Sequence[Tensor | Blank], grads: Sequence[Tensor | None],
                      straight: bool = True) -> list[Tensor | None]:
    """Of formula, by each of its inputs. A grad that is None is of a result that nobody derives:
    its part of the gradient is not computed."""
    found: list[Tensor | None] = [None] * len(needed)
    given = tuple([i for i, grad in enumerate(grads) if grad is not None])
    if not given:
        return found
    part = results_of(formula, given)
    by = tuple([needed[place] for place in part.places])
    if any(by):
        gradient = gradient_of(part.formula, by)
        results = gradient([values[place] for place in part.places],
                           [grad for grad in grads if grad is not None], straight)
        for i, grad in zip(gradient.by, results):
            found[part.places[i]] = grad
    return found


def _or_zeros(needed: bool, grad: Tensor | None, value: Tensor | Blank) -> Tensor | None:
    """A gradient by value, which nothing depended on if there is none."""
    if needed and grad is None:
        return torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return grad


class _Run(torch.autograd.Function):
    """formula of inputs, with a gradient."""

    @staticmethod
    def forward(ctx: Any, formula: _core.Formula, *inputs: Any) -> Any:
        tensors = _as_tensors(inputs)
        ctx.gradient = gradient_of(formula, ctx.needs_input_grad[1:])
        save(ctx, tensors, ctx.gradient.reads)
        ctx.formula = formula
        ctx.set_materialize_grads(False)
        return formula._straight(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        values = restore_saved(ctx)
        if any([grad is None for grad in grads]):
            some = _gradient_of_some(ctx.formula, needed, values, grads)
            return (None, *map(_or_zeros, needed, some, values))
        found = iter(ctx.gradient(values, grads))
        return (None, *(next(found) if need else None for need in needed))


class _Dispatch(torch.autograd.Function):
    """The same through what is below autograd in the dispatcher."""

    @staticmethod
    def forward(ctx: Any, formula: _core.Formula, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.formula = formula
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)
        with torch._C._AutoDispatchBelowAutograd():
            return tuple(run(inputs, formula.text, formula.steps, formula.precision))

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)


def _backward_of_cut(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    """From the last part of the formula to the first, by the products between them."""
    cut, needed = ctx.cut, ctx.needs_input_grad[2:]
    values = restore_saved(ctx)
    results = cut.tail.formula.results
    sums = [*(None for _ in needed), *grads[results:]]
    gradients = cut.gradients(needed)

    def add_gradients(part: Part, gradient: Gradient | None, *by_results: Tensor | None) -> None:
        if gradient is None:
            return
        by = [i in gradient.by for i in range(len(part.places))]
        found = _gradient_of_some(part.formula, by, [values[place] for place in part.places],
                                  by_results, ctx.straight)
        for place, grad in zip(part.places, found):
            before = sums[place]
            sums[place] = grad if before is None else before if grad is None else before + grad

    if any(grad is not None for grad in grads[:results]):
        add_gradients(cut.tail, gradients[-1], *grads[:results])
    for i in reversed(range(len(cut.products))):
        grad = sums[len(needed) + i]
        if grad is not None:
            add_gradients(cut.products[i], gradients[i], grad)
    return (None, None, *map(_or_zeros, needed, sums, values))


class _Cut(torch.autograd.Function):
    """A formula whose products are kept for the gradient: they are results, too. straight:
    not through the dispatcher."""

    @staticmethod
    def forward(ctx: Any, cut: Cut, straight: bool, *inputs: Tensor) -> tuple[Tensor, ...]:
        whole = cut.whole.formula
        ordered = [inputs[place] for place in cut.whole.places]
        results: tuple[Tensor, ...]
        if straight:
            results = whole._straight(*ordered)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                results = tuple(run(ordered, whole.text, whole.steps, whole.precision))
        ctx.cut, ctx.straight = cut, straight
        ctx.set_materialize_grads(False)
        values = [*inputs, *results[cut.tail.formula.results:]]
        reads = cut.reads(ctx.needs_input_grad[2:]) if straight else [True] * len(values)
        save(ctx, values, reads)
        return results

    backward = staticmethod(_backward_of_cut)


def _apply_cut(cut: Cut, straight: bool, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = _Cut.apply(cut, straight, *inputs)
    return results[:cut.tail.formula.results]


def _record(formula: _core.Formula, *inputs: Any) -> Any:
    """formula of inputs, with a gradient and nothing else that needs the dispatcher."""
    cut = None
    if has_products(formula):
        inputs = tuple(_as_tensors(inputs))
        cut = find_cut(formula, inputs)
    if cut is None:
        return _Run.apply(formula, *inputs)
    results = _apply_cut(cut, True, inputs)
    return results[0] if len(results) == 1 else results


class _Transform(torch.autograd.Function):
    """The same under torch.func's transforms, in the form that they ask for."""

    @staticmethod
    def forward(formula: _core.Formula, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(run(inputs, formula.text, formula.steps, formula.precision))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.formula = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], formula: _core.Formula,
             *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        results = _each(info.batch_size, inputs, in_dims[1:],
                        lambda items: _Transform.apply(formula, *items))
        return tuple(results), (0,) * len(results)


# Set by _sharded.py: (inputs, formula, steps, precision) -> results, where DTensors need
# several calls, else None.
run_in_stages: Callable[..., list[Tensor] | None] | None = None
# Set by it, too: (formula, inputs) -> a call's result, where its DTensors lie as they should and
# nothing needs the dispatcher, else None.
run_quick: Callable[[_core.Formula, list[Any]], Any] | None = None
# And: (formula, inputs) -> how it is divided, as text.
explain_parts: Callable[[_core.Formula, Sequence[Any]], str] | None = None


def _autograd(inputs: Sequence[Tensor], formula: str, steps: str = "",
              precision: str = "float32") -> list[Tensor]:
    if run_in_stages is not None:
        results = run_in_stages(inputs, formula, steps, precision)
        if results is not None:
            return results
    found = restore(formula, steps, precision)
    if forward_ad._current_level >= 0 or torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in inputs):
        if torch._C._functorch.maybe_current_level() is not None:
            return list(_Transform.apply(found, *inputs))
        cut = find_cut(found, inputs) if forward_ad._current_level < 0 else None
        if cut is None:
            return list(_Dispatch.apply(found, *inputs))
        return list(_apply_cut(cut, False, inputs))
    with torch._C._AutoDispatchBelowAutograd():
        below: list[Tensor] = run(inputs, formula, steps, precision)
        return below


library.impl("run", _autograd, "Autograd")


# ---- vmap ---------------------------------------------------------------------------


def _each(size: int, inputs: Sequence[Tensor], dims: Sequence[int | None],
          function: Callable[[list[Tensor]], Sequence[Tensor]]) -> list[Tensor]:
    """One call per element of the mapped dim: dims in a formula's text stay what they
    are. Slow for many, but right for every formula."""
    if size == 0:
        raise NotImplementedError("vmap of a formula over a dim of size 0")
    calls = [function([tensor if dim is None else tensor.select(dim, i)
                       for tensor, dim in zip(inputs, dims)]) for i in range(size)]
    return [torch.stack(results) for results in zip(*calls)]


def _vmap(info: Any, in_dims: Any, inputs: Sequence[Tensor], formula: str,
          steps: str = "", precision: str = "float32") -> tuple[list[Tensor], list[int]]:
    results = _each(info.batch_size, inputs, in_dims[0],
                    lambda items: run(items, formula, steps, precision))
    return results, [0] * len(results)


torch.library.register_vmap("ogive::run", _vmap, lib=library)


def _batched(inputs: Sequence[Tensor], formula: str, steps: str = "",
             precision: str = "float32") -> list[Tensor]:
    return run_by_items(inputs, lambda items: run(items, formula, steps, precision))


library.impl("run", _batched, "Batched")


# ---- autocast -----------------------------------------------------------------------


def _autocast(device: str, key: torch._C.DispatchKey, inputs: Sequence[Tensor], formula: str,
              steps: str = "", precision: str = "float32") -> list[Tensor]:
    # A gradient follows its forward formula, which has its casts.
    if not steps and all(tensor.dtype != torch.float64 for tensor in inputs):
        steps = find_casts(formula, device, torch.get_autocast_dtype(device))
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
        cast: list[Tensor] = run(inputs, formula, steps, precision)
        return cast


for _device, _key in (("cpu", torch._C.DispatchKey.AutocastCPU),
                      ("cuda", torch._C.DispatchKey.AutocastCUDA)):
    library.impl("run", functools.partial(_autocast, _device, _key), _key.name)


# ---- the way in ---------------------------------------------------------------------


def _as_tensors(inputs: Sequence[Any]) -> list[Tensor]:
    """Numbers become 0-d tensors: float64 if a tensor is, else float32, which promotes
    nothing that has dims; beside 0-d tensors alone they have the type of these. 0-d CPU
    tensors follow the others to their device."""
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise TypeError(f"a tensor has the layout {tensor.layout}: expected a dense one, as "
                            "to_dense() gives")
        if tensor.is_quantized or tensor.is_nested:
            raise TypeError(f"a tensor is {'quantized' if tensor.is_quantized else 'nested'}: "
                            "expected a dense one")
    device = tensors[0].device
    dtype = tensors[0].dtype
    for tensor in tensors:
        if tensor.dtype != dtype or tensor.dim() > 0 or not tensor.is_floating_point():
            dtype = torch.float32
        if device.type == "cpu":
            device = tensor.device
    for tensor in tensors:
        if tensor.dtype == torch.float64:
            dtype = torch.float64
    ready = []
    for value in inputs:
        if not isinstance(value, Tensor):
            # A product stays dynamic in compiled code, where full() makes a constant of it.
            value = (torch.ones((), dtype=dtype, device=device) * value
                     if torch.compiler.is_compiling()
                     else torch.full((), value, dtype=dtype, device=device))
        elif value.dim() == 0 and value.device.type == "cpu" and device.type == "cuda":
            value = value.to(device)
        ready.append(value)
    return ready


def _is_transformed() -> bool:
    """Whether a transform of torch.func is on that needs _Transform; functionalize does not."""
    functorch = torch._C._functorch
    return functorch.maybe_current_level() is not None and (
        functorch.peek_interpreter_stack().key() != functorch.TransformType.Functionalize)


def _fill(out: Any, results: Sequence[Tensor]) -> Any:
    """Results into what the caller gave, which must fit exactly."""
    outs = out if len(results) > 1 else (out,)
    if not isinstance(outs, (tuple, list)) or len(outs) != len(results):
        raise TypeError(f"the formula has {len(results)} results: out must be a tuple of them")
    for i, (target, result) in enumerate(zip(outs, results)):
        if not isinstance(target, Tensor):
            raise TypeError(f"out is a {type(target).__name__}: expected a tensor")
        if any([target is other for other in outs[:i]]):
            raise ValueError("two outputs are one tensor")
        if target.shape != result.shape:
            raise ValueError(f"out has shape {tuple(target.shape)}: "
                             f"expected {tuple(result.shape)}")
        if target.dtype != result.dtype:
            raise TypeError(f"out is {target.dtype}: expected {result.dtype}")
        target.copy_(result)
    return out


def call(text: str, steps: str, precision: str, inputs: Sequence[Any],
         out: Any = None) -> Any:
    """The operator, from what a caller gave: numbers too, out, one result by itself."""
    tensors = _as_tensors(inputs)
    if out is not None and torch.is_grad_enabled():
        outs = out if isinstance(out, (tuple, list)) else (out,)
        if any(isinstance(tensor, Tensor) and tensor.requires_grad
               for tensor in (*tensors, *outs)):
            raise RuntimeError("functions with out=... arguments don't support automatic "
                               "differentiation, but one of the arguments requires grad.")
    results: Sequence[Tensor]
    if not torch.compiler.is_compiling() and _is_transformed():
        results = _Transform.apply(restore(text, steps, precision), *tensors)
    else:
        results = run(tensors, text, steps, precision)
    if out is not None:
        return _fill(out, results)
    return results[0] if len(results) == 1 else tuple(results)


def _operator(formula: _core.Formula, inputs: list[Any], out: Any) -> Any:
    if run_quick is not None and out is None:
        result = run_quick(formula, inputs)
        if result is not None:
            return result
    return call(formula.text, formula.steps, formula.precision, inputs, out)


def attributes_among(names: Sequence[str]) -> dict[str, str]:
    """Those of the names that could be meant as an attribute of a tensor, x.mean, each with what
    is said where it is given by position."""
    found = {}
    for name in names:
        before, _, last = name.rpartition(".")
        if not before or not hasattr(Tensor, last):
            continue
        instead = (f"for {last} of a tensor {before} write {last}({before})" if last in signatures()
                   else f"a formula does not know the {last} of a tensor {before}")
        found[name] = (f"input '{name}' is given by position: {instead}; a tensor that is called so "
                       f"is given by name, **{{'{name}': ...}}")
    return found


def traceable(formula: _core.Formula) -> Callable[..., Any]:
    """What Dynamo traces in place of a call of formula."""
    names, text = formula.inputs, formula.text
    steps, precision = formula.steps, formula.precision
    attributes = attributes_among(names)

    def formula_call(*args: Any, out: Any = None, **named: Any) -> Any:
        inputs = list(args)
        for name, message in attributes.items():
            if name in names[:len(args)]:
                raise TypeError(message)
        for name in names[len(args):]:
            if name not in named:
                raise TypeError(f"input '{name}' is missing")
            inputs.append(named[name])
        if len(args) > len(names) or len(named) != len(names) - len(args):
            raise TypeError(f"the formula's inputs are {names}: "
                            f"{len(args)} and {tuple(named)} were given")
        return call(text, steps, precision, inputs, out)

    return formula_call


def _is_distributed(kind: type) -> bool:
    return any([each.__module__.startswith("torch.distributed") for each in kind.__mro__])


def _meet(kind: type) -> None:
    """A subclass of Tensor is seen for the first time."""
    if _is_distributed(kind):
        from . import _sharded  # noqa: F401  imports torch.distributed.tensor: half a second


def _explain(formula: _core.Formula, inputs: Sequence[Any]) -> str:
    """What explain() says behind the plan; of DTensors, of which there is no such plan, all."""
    if explain_parts is not None and any([_is_distributed(type(value)) for value in inputs]):
        return explain_parts(formula, inputs)
    for name, value in zip(formula.inputs, inputs):
        if is_traceable_wrapper_subclass(value):
            raise TypeError(f"input '{name}' is a {type(value).__name__}, which has no memory of "
                            "its own: expected a tensor or a DTensor")
    return describe_gradient(formula, inputs)


def _find_quick() -> dict[str, int]:
    """The C++ functions behind the questions below, and the keys they are asked for, by
    their mangled names, which change with their arguments; {} if one is missing."""
    folder = pathlib.Path(torch.__file__).parent / "lib"
    try:
        parse = torch._C._dispatch_key_parse
        c10 = ctypes.CDLL(str(folder / "libc10.so"), os.RTLD_NOLOAD | os.RTLD_NOW)
        cpu = ctypes.CDLL(str(folder / "libtorch_cpu.so"), os.RTLD_NOLOAD | os.RTLD_NOW)
        functions = {
            "key_included": c10._ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE,
            "key_excluded": c10._ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE,
            "dispatch_modes": c10._ZN3c104impl20TorchDispatchModeTLS9stack_lenEv,
            "function_mode": cpu._ZN2at4impl27torch_function_mode_enabledEv,
        }
        keys = {"functorch": "FuncTorchDynamicLayerFrontMode", "tracer": "Tracer",
                "autocast_cpu": "AutocastCPU", "autocast_cuda": "AutocastCUDA"}
        return {**{name: ctypes.cast(function, ctypes.c_void_p).value or 0
                   for name, function in functions.items()},
                **{name: int(parse(key)) for name, key in keys.items()}}
    except (OSError, AttributeError, RuntimeError):
        return {}


def _share_threads() -> None:
    """Runs on the CPU take PyTorch's own threads, if they are OpenMP's. (The first runtime among
    the libraries that PyTorch was linked with: a process may have several.)"""
    path = pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        cpu = ctypes.CDLL(str(path), os.RTLD_NOLOAD | os.RTLD_NOW)
        # at::get_num_threads(). The runtime's own number is a thread's: one that has run no operator
        # yet does not know of torch.set_num_threads().
        functions = cpu.GOMP_parallel, cpu._ZN2at15get_num_threadsEv
    except (OSError, AttributeError):
        return
    _core._use_openmp(*[ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions])


# What the C part asks, to know whether a call needs the dispatcher at all.
doors: dict[str, Any] = {
    "grad_mode": torch.is_grad_enabled,
    "functorch": torch._C._functorch.maybe_current_level,
    "dispatch_modes": torch._C._len_torch_dispatch_stack,
    "function_modes": torch._C._len_torch_function_stack,
    "autocast": torch._C._is_any_autocast_enabled,
    "tracing": torch._C._get_tracing_state,
    "is_negative": torch._C.TensorBase.is_neg,
    "is_inference": torch._C.TensorBase.is_inference,
    "inference_mode": torch.is_inference_mode_enabled,
    "written": torch.autograd.graph.increment_version,
    "lend": torch._C._to_dlpack,
    "stream": lambda device: torch.cuda.current_stream(device).cuda_stream,
    "operator": _operator,
    "gradient": _record,
    "explain": _explain,
    "dispatch": run._op,
    "meet": _meet,
    "forward_ad": vars(forward_ad),
    "quick": _find_quick(),
}
_core._register_torch(doors)
_share_threads()
# What a call of the operator from Python, by traced code too, comes to first.
run._op = torch.ops.ogive.run._op = _core._operator
