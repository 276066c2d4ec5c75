# SPDX-License-Identifier: MIT
"""Calls of what AOTAutograd compiled without its wrappers, for models that need none: tensors of
fixed sizes in, tensors that are nobody else's out, no writes to inputs, no random numbers of its own.
The wrappers look at every call for what such a model never has, at 40 us of a training step on a Zen 4
and several times that on a slower host. Whatever is not known to be plain is left to them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ._batched import by_items, is_batched, run_by_items

Compile = Callable[[GraphModule, Sequence[Any]], Any]
Boxed = Callable[[list[Any]], Any]  # takes a list of arguments, which it empties
# In a graph's meta data: the model's inputs are plain tensors, of which Dynamo's guards know the strides.
GUARDED = "ogive_guarded"


class Once(torch.autograd.Function):
    """A gradient that has none itself; others are tensors that it depends on."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, *others: Tensor) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("a model compiled with backend='ogive' at the level 'aten' has no second "
                           "derivatives: torch.compile(model, backend='ogive', options={'level': "
                           "'torch'}) has")


def leaves_of(function: Any) -> list[Tensor]:
    """What function, of a recorded graph, derives by in the end."""
    pending, seen, found = [function], {function}, []
    while pending:
        each = pending.pop()
        if hasattr(each, "variable"):
            found.append(each.variable)
        new = {next for next, _ in each.next_functions if next is not None} - seen
        pending += new
        seen |= new
    return found


def leave_alone(function: Any) -> None:
    """Has Dynamo, where it compiles gradients as a whole, not look into function; unlike its own
    decorator at no cost."""
    function._torchdynamo_disable = True
    skip = getattr(torch._dynamo.eval_frame, "skip_code", None)
    if skip is not None:
        skip(function.__code__)


# ---- what is plain --------------------------------------------------------------------


def _values(graph: Any, op: str) -> list[Any]:
    """Of a graph's inputs, or of its results."""
    if op == "placeholder":
        return [node.meta.get("val") for node in graph.nodes if node.op == op]
    results = next(node for node in graph.nodes if node.op == "output").args[0]
    return [each.meta.get("val") if isinstance(each, Node) else each for each in results]


def _is_plain(value: Any) -> bool:
    """A tensor of known sizes and strides."""
    return isinstance(value, Tensor) and value.layout == torch.strided and (
        not is_traceable_wrapper_subclass(value)) and all(
        isinstance(size, int) for size in (*value.shape, *value.stride()))


def _has_plain_facts(facts: Any, results: int) -> bool:
    try:
        return _are_plain(facts, results)
    except AttributeError:  # another version's
        return False


def _are_plain(facts: Any, results: int) -> bool:
    """Whether AOTAutograd says that inputs are not written to, and of so many results that they are
    new tensors. What other versions of PyTorch do not tell is not there."""
    def none(name: str) -> bool:
        return not getattr(facts, name, None)

    return (facts.num_outputs == results and facts.num_forward == results
            and all(info.mutation_type.name == "NOT_MUTATED" for info in facts.input_info)
            and all(info.output_type.name in ("non_alias", "unsafe_view_alias")
                    and issubclass(info.raw_type, Tensor) for info in facts.output_info)
            and all(type(each).__name__ in ("PlainTensorMeta", "int") for each in (
                *facts.subclass_inp_meta, *facts.subclass_fw_graph_out_meta, *facts.subclass_tangent_meta))
            and all(map(none, (
                "num_intermediate_bases", "num_outputs_aliased", "num_symints_saved_for_bw",
                "num_tensors_saved_with_no_vc_check", "num_opaque_objects_saved_for_bw", "tokens",
                "indices_of_inputs_that_requires_grad_with_mutations_in_bw", "num_backward_tokens",
                "num_graphsafe_rng_states", "is_rng_op_functionalized", "dynamic_outputs")))
            and facts.grad_enabled_mutation is None)


def _has_state() -> bool:
    """Whether what surrounds the compilation asks for more than calls: autocast, which AOTAutograd
    switches off in the graph, hooks on what is kept, transforms of torch.func, or gradients that are
    compiled as a whole."""
    hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return (torch._C._is_any_autocast_enabled() or torch._dynamo.config.compiled_autograd
            or torch._C._are_functorch_transforms_active()
            or hooks is not None and hooks(True) is not None)


class Direct:
    """A model's compilers, which remember what AOTAutograd asked them for, and the call that can be
    made of it."""

    def __init__(self, compilers: dict[str, Compile], inputs: Sequence[Any]) -> None:
        self.given, self.inputs = compilers, inputs
        self.call: Callable[..., Any] | None = None  # once it is known
        self._forward: tuple[Boxed, list[Any], list[Any]] | None = None
        self._facts: Any = None
        self._is_plain = all(map(_is_plain, inputs)) and not _has_state()

    def compilers(self) -> dict[str, Compile]:
        return {"fw_compiler": self._compile_forward, "bw_compiler": self._compile_backward,
                "inference_compiler": self._compile_inference}

    def _fits(self, module: GraphModule) -> bool:
        """Whether its inputs are the model's, one by one."""
        values = _values(module.graph, "placeholder")
        context = torch._guards.TracingContext.try_get()
        self._facts = context.fw_metadata if context is not None else None
        return self._is_plain and self._facts is not None and len(values) == len(self.inputs) and all(
            _is_plain(value) and value.shape == given.shape and value.stride() == given.stride()
            and value.dtype == given.dtype for value, given in zip(values, self.inputs))

    def _compile_inference(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        fits, results = self._fits(module), _values(module.graph, "output")
        module.meta[GUARDED] = fits
        made = self.given["inference_compiler"](module, inputs)
        if fits and all(map(_is_plain, results)) and _has_plain_facts(self._facts, len(results)):
            self.call = _without_gradient(made)
        return made

    def _compile_forward(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        fits, results = self._fits(module), _values(module.graph, "output")
        module.meta[GUARDED] = fits
        made = self.given["fw_compiler"](module, inputs)
        if fits and all(map(_is_plain, results)) and _has_plain_facts(
                self._facts, self._facts.num_outputs):
            self._forward = made, results, _values(module.graph, "placeholder")
        return made

    def _compile_backward(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        given, results = (_values(module.graph, op) for op in ("placeholder", "output"))
        module.meta[GUARDED] = self._forward is not None
        made = self.given["bw_compiler"](module, inputs)
        wrapped = by_items(made)
        leave_alone(wrapped)
        if self._forward is None or self.call is not None:
            return wrapped
        forward, kept = self._forward[0], self._forward[1][self._facts.num_outputs:]
        wanted = [i for i, info in enumerate(self._facts.output_info)
                  if getattr(info, "requires_grad_for_backward", info.requires_grad)]
        if all(map(_is_plain, given)) and len(given) == len(kept) + len(wanted) and (
                len(results) == len(self.inputs)):
            strides = [tuple(each.stride()) for each in given[len(kept):]]
            unused = [i for i, each in enumerate(results)
                      if each is None and self.inputs[i].requires_grad]
            self.call = _with_gradient(forward, made, self._facts, wanted, strides, unused)
        return wrapped


# ---- calls ----------------------------------------------------------------------------


def _without_gradient(run: Boxed) -> Callable[..., Any]:
    set_grad_enabled, is_grad_enabled = torch._C._set_grad_enabled, torch.is_grad_enabled

    def call(*inputs: Any) -> Any:
        if not is_grad_enabled():
            return run(list(inputs))
        set_grad_enabled(False)
        try:
            return run(list(inputs))
        finally:
            set_grad_enabled(True)

    return call


def _fit(grad: Any, strides: tuple[int, ...]) -> Any:
    """A gradient as the graph was traced with it."""
    if type(grad) is not Tensor and is_traceable_wrapper_subclass(grad):
        wait = getattr(grad, "trigger_wait", None)  # what a collective is still to give
        if wait is None:
            raise RuntimeError(f"a gradient of a compiled model's result is a {type(grad).__name__}, "
                               "the result was a plain tensor")
        grad = wait()
    if grad.stride() == strides:
        return grad
    made = torch.empty_strided(grad.shape, strides, dtype=grad.dtype, device=grad.device)
    return made.copy_(grad)


def _tie(grads: Sequence[Any], ctx: Any) -> tuple[Any, ...]:
    """grads, for create_graph=True, as what derives once by all that ctx derives by."""
    alive = {id(each.grad_fn): each for reference in ctx.others if (each := reference()) is not None}
    ties: list[Tensor] = []
    for function, _ in ctx.next_functions:
        if function is not None:
            ties += [alive[id(function)]] if id(function) in alive else leaves_of(function)
    return tuple(Once.apply(grad, *ties) if isinstance(grad, Tensor) else grad for grad in grads)


def _with_gradient(forward: Boxed, backward: Boxed, facts: Any, wanted: list[int],
                   strides: list[tuple[int, ...]], unused: list[int]) -> Callable[..., Any]:
    """wanted: results that have gradients, which the graph wants with such strides. unused: inputs
    that require grad and have none."""
    count = facts.num_outputs
    fixed = [i for i, info in enumerate(facts.output_info) if not info.requires_grad]
    is_grad_enabled = torch.is_grad_enabled

    def fit_and_run(arguments: list[Any]) -> Any:
        for i, each in enumerate(strides, len(arguments) - len(strides)):
            arguments[i] = _fit(arguments[i], each)
        return backward(arguments)

    def run_backward(ctx: Any, grads: Sequence[Any]) -> Any:
        arguments = [*ctx.saved_tensors]
        ctx.maybe_clear_saved_tensors()
        given = [grads[i] for i in wanted]
        if any(map(is_batched, given)):
            return run_by_items([*arguments, *given], fit_and_run)
        arguments += given
        return fit_and_run(arguments)

    leave_alone(run_backward)

    class OgiveFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            # An input that the graph does not keep must not be kept for second derivatives' sake.
            ctx.others = [weakref.ref(each) for each in inputs if each.grad_fn is not None]
            # Of a view autograd would keep what it is a view of.
            results = [each.detach() if each._is_view() else each for each in forward(list(inputs))]
            ctx.save_for_backward(*results[count:])
            if fixed:
                ctx.mark_non_differentiable(*[results[i] for i in fixed])
                ctx._materialize_non_diff_grads = False
            return tuple(results[:count])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if not is_grad_enabled():
                return tuple(run_backward(ctx, grads))
            with torch.no_grad():
                made = run_backward(ctx, grads)
            return _tie(made, ctx)

    # Function.apply() looks at every input for what only torch.func's transforms leave behind.
    apply = super(torch.autograd.Function, OgiveFunction).apply

    def call_detached(*inputs: Any) -> Any:
        return apply(*[each.detach() if i in unused else each for i, each in enumerate(inputs)])

    return call_detached if unused else apply
