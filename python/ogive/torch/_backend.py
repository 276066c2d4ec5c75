# SPDX-License-Identifier: MIT
"""torch.compile(model, backend="ogive"): finds what formulas can do in an ordinary model.

Dynamo hands over a graph of PyTorch's functions. Calls that the formula language has
(_translate.py) and that feed each other become regions (_regions.py); a region becomes one
formula, a function of tensors like any other in the graph, with gradients, autocast and
dynamic shapes as every formula has them. The rest stays what it was and runs eagerly, or by
another backend: options={"rest": "inductor"}.
"""

from __future__ import annotations

import contextlib
import copy
import operator
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch._functorch.aot_autograd import make_boxed_func
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import checkpoint

from .. import _core
from ._aten import decompositions, prepare
from ._batch_norm import insert_update, statistics_of
from ._behind_views import MADE, move_views
from ._cost import add_estimates
from ._direct import Direct, Once, leaves_of
from ._extrema import replace_extrema
from ._graphs import compilers
from ._identities import drop_identities
from ._lifted import lift
from ._precision import precision
from ._regions import Analysis, Region, inverse, is_hopeless, takes_product
from ._wrapper import write


def _caller(formula: _core.Formula, index: int) -> Callable[..., Any]:
    def region(*inputs: Any) -> Any:
        return formula(*inputs)

    region.__name__ = region.__qualname__ = f"ogive_region_{index}"
    return region


def _insert(graph: Graph, region: Region, index: int, copies: dict[Node, Node]) -> None:
    """One call in place of a region's."""
    formula = _core.compile(region.text, precision())
    call = graph.call_function(_caller(formula, index), tuple(copies[n] for n in region.inputs))
    for i, (node, order) in enumerate(zip(region.outputs, region.orders)):
        result = call if formula.results == 1 else graph.call_function(operator.getitem, (call, i))
        if order != tuple(range(len(order))):
            result = graph.call_method("permute", (result, inverse(order)))
        if node in region.detached:
            result = graph.call_method("detach", (result,))
        result.meta = dict(node.meta)
        copies[node] = result
    count = len(region.outputs)
    for node in region.changing:
        found = [graph.call_function(operator.getitem, (call, count + i))
                 for i in range(len(statistics_of(node)))]
        count += len(found)
        insert_update(graph, node, copies, found)


def rewrite(module: GraphModule, analysis: Analysis) -> GraphModule:
    """module with a call of a formula for each region."""
    graph, count = Graph(), 0
    copies: dict[Node, Node] = {}
    for unit in analysis.order():
        if isinstance(unit, Region):
            _insert(graph, unit, count, copies)
            count += 1
        else:
            copies[unit] = graph.node_copy(unit, copies.__getitem__)
    result = GraphModule(module, graph)
    result.meta = dict(module.meta)
    return result


def _checkpoint(body: GraphModule, *inputs: Any, **options: Any) -> Any:
    """PyTorch's own node, run eagerly, draws other random numbers when it computes again."""
    if "_checkpoint_context_fn" in body.meta:
        options["context_fn"] = body.meta["_checkpoint_context_fn"]
    return checkpoint(body, *inputs, **{**options, "use_reentrant": False})


def _checkpoints(module: GraphModule) -> Iterator[tuple[Node, str, GraphModule]]:
    """The calls of torch.utils.checkpoint: node, the name of the graph in it, that graph."""
    for node in module.graph.nodes:
        if node.target is tag_activation_checkpoint:
            yield node, node.args[0].target, getattr(module, node.args[0].target)


def _may_skip() -> bool:
    """Whether Dynamo may leave the function alone that it is tracing: it is traced as one graph,
    and nobody insists on one."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    try:
        tracer = InstructionTranslator.current_tx()
        return not (tracer.one_graph or tracer.export or getattr(tracer, "error_on_graph_break", False)
                    or tracer.output.compile_subgraph_reason.graph_break
                    or tracer.f_code.co_name.startswith("torch_dynamo_resume"))
    except AttributeError:  # not called by Dynamo, or by another version of it
        return False


def _call_without_records() -> None:
    """What Dynamo makes of the frame that it is tracing otherwise calls, for a profiler that may be on,
    two functions around loading the inputs (6 us of a call on a Zen 5)."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    config: Any = torch._dynamo.config
    try:
        before = config.record_runtime_overhead
        add = InstructionTranslator.current_tx().output.add_cleanup_hook
    except AttributeError:  # not called by Dynamo, or by another version of it
        return
    config.record_runtime_overhead = False
    add(lambda: setattr(config, "record_runtime_overhead", before))


def _with_formulas(module: GraphModule, eagerly: bool) -> GraphModule:
    drop_identities(module)
    replace_extrema(module)
    move_views(module)
    analysis = Analysis(lift(module))
    if analysis.regions:
        module = rewrite(module, analysis)
    for node, name, body in _checkpoints(module):
        setattr(module, name, _with_formulas(body, eagerly))
        if eagerly:
            node.target = _checkpoint
    module.recompile()
    return module


def _refuse_second(results: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Of AOTAutograd's function, which computed results of inputs, gradients can be had once. Its
    own refusal comes only where the second one happens to pass by it."""
    given = [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]
    direct = [each for each in given if each.grad_fn is None]
    # An input that the graph does not keep must not be kept for this.
    others = [(weakref.ref(each), each.grad_fn) for each in given if each.grad_fn is not None]

    def hook(grads: Any, _: Any) -> Any:
        if not torch.is_grad_enabled():  # nobody asked for create_graph=True
            return None
        ties = list(direct)
        for reference, function in others:
            alive = reference()
            ties += leaves_of(function) if alive is None else [alive]
        return tuple(Once.apply(grad, *ties) if isinstance(grad, Tensor) else grad
                     for grad in grads)

    functions = {each.grad_fn for each in results if isinstance(each, Tensor) and each.requires_grad}
    for function in functions:
        while function is not None and "CompiledFunction" not in function.name():
            function = next((each for each, _ in function.next_functions if each is not None), None)
        if function is not None:
            function.register_hook(hook)


def _compile_aten(module: GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Of AOTAutograd's graphs: a model's, and its gradient's."""
    prepare(module.graph, takes_product)
    return write(module, Analysis(module, strided=True))


def _compile_gradients_at_once(wanted: bool) -> Any:
    """AOTAutograd otherwise compiles a gradient when it is first computed (in older versions always)."""
    from torch._functorch import config
    if not wanted or not hasattr(config, "force_non_lazy_backward_lowering"):
        return contextlib.nullcontext()
    return config.patch(force_non_lazy_backward_lowering=True)


def _at_aten(module: GraphModule, example_inputs: Sequence[Any],
             compile_graph: Callable[..., Any] = _compile_aten,
             look_at_gradient: Callable[[GraphModule], None] | None = None,
             graphs: bool = False) -> Callable[..., Any]:
    """look_at_gradient: is shown the gradient's graph, which it must leave as it is. graphs: of
    CUDA."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor import config
    for each in module.modules():
        if isinstance(each, GraphModule):
            drop_identities(each)
    def partition(*args: Any, **named: Any) -> tuple[GraphModule, GraphModule]:
        forward, backward = min_cut_rematerialization_partition(*args, **named)
        if look_at_gradient is not None:
            look_at_gradient(backward)
        return forward, backward

    direct = Direct(compilers(compile_graph, graphs), example_inputs)
    # What draws random numbers that nobody reads stays where it is only with this setting.
    with config.patch(fallback_random=True), _compile_gradients_at_once(look_at_gradient is None):
        compiled = aot_autograd(**direct.compilers(), partition_fn=partition,
                                decompositions=decompositions())(module, example_inputs)

    if direct.call is not None:
        return direct.call

    def call(*inputs: Any) -> Any:
        if direct.call is not None:  # by now
            return direct.call(*inputs)
        results = compiled(*inputs)
        if torch.is_grad_enabled():
            _refuse_second(results, inputs)
        return results

    return call


_OPTIONS = ("rest", "level")
_LEVELS = ("torch", "aten")
_GRAPHS = "cudagraphs"


def _read_options(options: dict[str, Any] | None) -> tuple[str, str]:
    """rest and level."""
    given = dict(options or {})
    unknown = set(given) - set(_OPTIONS)
    if unknown:
        raise ValueError(f"the backend 'ogive' has no option '{unknown.pop()}': it has 'rest' "
                         "and 'level'")
    rest = given.get("rest", "eager")
    level = given.get("level", "aten" if rest == _GRAPHS else "torch")
    if level not in _LEVELS:
        raise ValueError(f"the backend 'ogive' has no level {level!r}: it has 'torch' and 'aten'")
    if level == "aten" and rest not in ("eager", _GRAPHS):
        raise ValueError(f"at the level 'aten' what is no formula runs eagerly, or with 'cudagraphs', "
                         f"not by {rest!r}")
    return rest, level


def _read_mode(mode: str | None, options: dict[str, Any] | None) -> tuple[str, str]:
    """rest and level."""
    if mode == "reduce-overhead" and not options:
        return _read_options({"rest": _GRAPHS})
    if mode not in (None, "default"):
        raise ValueError(f"the backend 'ogive' has no mode '{mode}': it has 'default' and "
                         "'reduce-overhead'")
    return _read_options(options)


def backend(module: GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
            options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """For torch.compile. options={"rest": NAME}: the backend for what is not a formula's.
    {"level": "aten"}: formulas of the graphs that AOTAutograd makes, of gradients too.
    mode="reduce-overhead", the same as {"rest": "cudagraphs"}: that, recorded as CUDA graphs."""
    rest, level = _read_mode(mode, options)
    if rest == "eager" and is_hopeless(module) and _may_skip():
        raise torch._dynamo.exc.SkipFrame("no formula could be of use to any call")
    _call_without_records()
    if level == "aten":
        return _at_aten(module, example_inputs, graphs=rest == _GRAPHS)
    module = _with_formulas(module, rest == "eager")
    compiled: Callable[..., Any] = module.forward
    if rest != "eager":
        from torch._dynamo.backends.registry import lookup_backend
        compiled = lookup_backend(rest)(module, example_inputs)
    return compiled


# ---- explain ------------------------------------------------------------------------


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _describe(analysis: Analysis, dropped: Sequence[Node] = ()) -> list[str]:
    """An account of every call; of those that were dropped before, too."""
    taken, left = analysis.account()
    left = {node: reason for node, reason in left.items() if MADE not in node.meta}
    left.update(dict.fromkeys(dropped, "it gives its argument itself"))
    lines: list[str] = []
    for region, nodes in taken:
        lines.append(f"taken: {', '.join(map(analysis.call_name, nodes))} "
                     f"({_count(len(nodes), 'call')}, one formula: {region.estimate})")
        lines.append(f"    {region.text}")
    reasons: dict[str, list[Node]] = {}
    for node, reason in left.items():
        reasons.setdefault(reason, []).append(node)
    for reason, nodes in reasons.items():
        calls = [name if count == 1 else f"{name} ({count} calls)"
                 for name, count in Counter(map(analysis.call_name, nodes)).items()]
        known = [analysis.estimates[node] for node in nodes if node in analysis.estimates]
        shown = f" ({add_estimates(known)})" if known else ""
        lines.append(f"left: {', '.join(calls)}: {reason}{shown}")
    inside = sum(len(nodes) for _, nodes in taken)
    if inside or left:
        lines.append(f"{_count(inside + len(left), 'call')}: {inside} in "
                     f"{_count(len(taken), 'formula')}, {len(left)} left")
    return lines


def _report(module: GraphModule) -> list[str]:
    dropped = drop_identities(module) + replace_extrema(module)
    move_views(module)
    lines = _describe(Analysis(lift(module)), dropped)
    return lines + [line for _, _, body in _checkpoints(module) for line in _report(body)]


def _report_aten(module: GraphModule, example_inputs: Sequence[Any]) -> list[str]:
    """Of AOTAutograd's graph of the model; then, where there is one, of its gradient."""
    graphs: list[list[str]] = []

    def describe(graph: GraphModule) -> None:
        prepare(graph.graph, takes_product)
        graphs.append(_describe(Analysis(graph, strided=True)))

    def look(graph: GraphModule, inputs: Sequence[Any]) -> Any:
        describe(graph)
        graph.recompile()
        return make_boxed_func(graph.forward)

    _at_aten(module, example_inputs, look, lambda graph: describe(copy.deepcopy(graph)))
    if len(graphs) == 1:
        return graphs[0]
    gradient, forward = graphs  # in the order in which AOTAutograd shows them
    return ["the model:", *forward, "its gradient:", *gradient]


def explain(model: Callable[..., Any], *args: Any, options: dict[str, Any] | None = None,
            **kwargs: Any) -> str:
    """What torch.compile(model, backend="ogive", options=options) does with these arguments: the
    calls that become formulas, and why others are left to PyTorch. Calls the model once; as by
    torch._dynamo.explain, what was compiled before is forgotten."""
    graphs: list[list[str]] = []
    level = _read_options(options)[1]

    def look(module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        graphs.append(_report(module) if level == "torch" else
                      _report_aten(copy.deepcopy(module), example_inputs))
        return module.forward

    try:
        with torch.random.fork_rng():
            torch.compile(getattr(model, "_orig_mod", model), backend=look)(*args, **kwargs)
    finally:
        torch._dynamo.reset()
    lines = []
    for i, graph in enumerate(graphs):
        if len(graphs) > 1:
            lines.append(f"graph {i} of {len(graphs)}: Dynamo cannot trace the model as one")
        lines += graph or ["nothing to do"]
    return "\n".join(lines) or "nothing to do"
