# SPDX-License-Identifier: MIT
"""CUDA graphs of what the level "aten" compiles, a model's and its gradient's: PyTorch's own, with
the memory that cudagraph_trees.py shares among them. Parameters stay where they are, other inputs are
copied to where a graph reads them. Results live until the model's next step, as by Inductor's
mode="reduce-overhead".
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

Compile = Callable[[GraphModule, Sequence[Any]], Any]


def _fixed_inputs() -> Sequence[int]:
    """Which inputs of the graph that AOTAutograd is making lie in the same place at every call."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return ()
    return list(context.fw_metadata.static_input_indices or ())


def _record_alone(call: Callable[[list[Any]], Any], arguments: list[Any], fixed: Sequence[int],
                  **named: Any) -> Callable[[list[Any]], Any]:
    """What cudagraphify_impl() gives, for a model without gradient. It decides at each call, in two rounds,
    what is to be replayed; where nothing else was since the last replay it is that again."""
    from torch._inductor import cudagraph_trees as trees
    home = threading.get_ident()  # others have no manager
    ran = False  # rather than replayed
    known: tuple[Any, Any] | None = None  # manager and node, weakly, of the last replay

    def note(given: list[Any]) -> Any:
        nonlocal ran
        ran = True
        return call(given)

    recorded: Callable[[list[Any]], Any] = trees.cudagraphify_impl(note, arguments, fixed, **named)
    if not all(isinstance(each, torch.Tensor) for each in arguments):  # a graph for each number
        return recorded

    def is_same(manager: Any, node: Any, given: list[Any]) -> bool:
        return (manager is not None and node is not None and manager.current_node is node
                and manager.path_state is trees.ExecutionState.EXECUTION
                and (manager.can_start_new_generation() or node.all_outputs_are_dead())
                and node.check_invariants(given)[0] is trees.CheckInvariantStatus.SUCCESS)

    def run(given: list[Any]) -> Any:
        nonlocal ran, known
        if threading.get_ident() != home:
            return recorded(given)
        if known is not None:
            manager, node = known[0](), known[1]()
            if is_same(manager, node, given):
                return manager.execute_node(node, given)
        ran = False
        results = recorded(given)
        manager = trees.get_manager(named["device_index"], create_if_none_exists=False)
        node = manager.current_node if manager is not None else None
        is_replay = not ran and isinstance(node, trees.CUDAGraphNode) and node.parent is None
        known = (weakref.ref(manager), weakref.ref(node)) if is_replay else None
        return results

    return run


class _Graphs:
    """Of one model. Where its own graph cannot be recorded, that of its gradient is not, either."""

    def __init__(self, compile_graph: Compile) -> None:
        self.compile_graph = compile_graph
        self.recorded = False

    def _record(self, module: GraphModule, inputs: Sequence[Any], fixed: Sequence[int] | None,
                **how: bool) -> Callable[[list[Any]], Any] | None:
        """None: it cannot be recorded; PyTorch's log says why. fixed: None, all but gradients."""
        from torch._dynamo.backends import cudagraphs
        from torch._inductor.cudagraph_trees import cudagraphify_impl
        from torch._inductor.cudagraph_utils import (get_placeholder_info,
                                                     log_cudagraph_skip_and_bump_counter)
        from torch._inductor.utils import count_tangents
        fixed = range(count_tangents(module)) if fixed is None else fixed
        skip = cudagraphs.check_for_skip(module, 0)
        if skip:
            log_cudagraph_skip_and_bump_counter(skip)
            return None
        known = {"stack_traces": cudagraphs.get_stack_traces(module),
                 "placeholders": get_placeholder_info(module.graph),
                 "device_index": cudagraphs.get_device_index(module)}
        call = self.compile_graph(module, inputs)
        recorded: list[Callable[[list[Any]], Any]] = []

        def run(arguments: list[Any]) -> Any:
            if not recorded:  # sizes that are inputs are numbers only now: each has a graph
                record = _record_alone if how["is_inference"] else cudagraphify_impl
                recorded.append(record(call, arguments, fixed, **known, **how))
            return recorded[0](arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def forward(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        made = self._record(module, inputs, _fixed_inputs(), is_backward=False, is_inference=False)
        self.recorded = made is not None
        return made or self.compile_graph(module, inputs)

    def inference(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        made = self._record(module, inputs, _fixed_inputs(), is_backward=False, is_inference=True)
        return made or self.compile_graph(module, inputs)

    def backward(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        if not self.recorded:
            return self.compile_graph(module, inputs)
        made = self._record(module, inputs, None, is_backward=True, is_inference=False)
        if made is not None:
            return made
        call = self.compile_graph(module, inputs)

        def run(arguments: list[Any]) -> Any:  # memory that the model's graph kept is in use
            from torch._inductor.cudagraph_trees import get_manager
            manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
            if manager is not None:
                manager.set_to_running_backward()
            return call(arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def compilers(compile_graph: Compile, graphs: bool) -> dict[str, Compile]:
    """For aot_autograd()."""
    if not graphs:
        return dict.fromkeys(("fw_compiler", "bw_compiler", "inference_compiler"), compile_graph)
    made = _Graphs(compile_graph)
    return {"fw_compiler": made.forward, "bw_compiler": made.backward,
            "inference_compiler": made.inference}
