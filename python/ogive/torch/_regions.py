# SPDX-License-Identifier: MIT
"""Which calls of a graph become formulas together.

A call joins the region of what it reads, if the graph can still be put into an order: with
regions as single calls, nothing waits for itself. A product or a convolution begins a region, since
what comes before it would be computed again for every tile; all that follows belongs to its
kernel or to ones that read what it kept. Calls keep their order around what writes to
tensors, draws random numbers or changes PyTorch's state.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from .. import _core
from ._aten import CONSTANT, COPY, aten
from ._aten import is_view as is_aten_view
from ._autocast import signatures
from ._batch_norm import OF_BATCH, is_of_batch, running_of, statistics_of, translate_of_batch
from ._operator import attributes_among, run
from ._cost import (Estimate, add_estimates, estimate_call, estimate_formula, estimate_gradients,
                    works_by_element, works_by_rows)
from ._identities import SAME_MEMORY, storage_of
from ._lifted import is_dtensor
from ._precision import precision
from ._translate import (COMPARISONS, CONVOLUTIONS, FLOATS, PRODUCTS, Left, Part, argument,
                         is_harmless, is_number, may_write, name_of, plain_name, translate,
                         value_of, why_unknown)

_NO_WORK = {*FLOATS.values(), *COMPARISONS, COPY, CONSTANT}
_ALONE = "nothing beside it that a formula could join it with"
_APART = "PyTorch's, with a formula of what follows, is estimated to be faster"
_MOST_NODES = 256  # of a region
_BEGINNINGS = PRODUCTS | CONVOLUTIONS  # of regions


class Region:
    """Calls that become one formula; nodes are in the graph's order."""

    def __init__(self, nodes: list[Node], strided: bool = False) -> None:
        """strided: whoever calls the formula gives it tensors for its results."""
        self.nodes, self.inside, self.strided = nodes, set(nodes), strided
        self.outputs: list[Node] = []
        self.orders: list[tuple[int, ...]] = []  # of each output's dims in memory
        self.inputs: list[Node] = []
        self.kept: set[Node] = set()  # stay in the graph, too
        self.detached: set[Node] = set()  # outputs that do not require grad, as others do
        self.changing = [node for node in nodes if is_of_batch(node) and running_of(node)]
        self.text = ""
        self.estimate = Estimate(0, 0)

    def find_outputs(self, parts: dict[Node, list[Part]]) -> None:
        """What others read. What a formula cannot give as PyTorch does (masks; results with
        gaps, or the argument itself) is computed once more by PyTorch."""
        pending = [n for n in self.nodes if any(user not in self.inside for user in n.users)]
        while pending:
            node = pending.pop()
            if node in self.kept or node in self.outputs:
                continue
            value = value_of(node)
            fits = value.dtype in FLOATS and (self.strided or order_of(value) is not None)
            if name_of(node) != CONSTANT and (
                    fits or self.strided and value.dtype == torch.bool):
                self.outputs.append(node)
            else:
                self.kept.add(node)
                pending += [part for part in parts[node] if part in self.inside]
        self.outputs.sort(key=self.nodes.index)
        self.orders = [() if self.strided else order_of(value_of(node)) or ()
                       for node in self.outputs]

    def write(self, parts: dict[Node, list[Part]]) -> None:
        """Fills inputs and text: of outputs, then of what running values change by."""
        uses = dict.fromkeys(self.outputs, 0)  # of what outputs need
        for node in reversed(self.nodes):
            for part in parts[node] if node in uses else ():
                if part in self.inside:
                    uses[part] = uses.get(part, 0) + 1
        names: dict[Any, str] = {}
        bound: list[str] = []
        for node in self.nodes:
            if node not in uses:
                continue
            text = ""
            for part in parts[node]:
                if isinstance(part, Node) and part not in names:
                    names[part] = _name_input(part, set(names.values()))
                text += (_factor(names[part], part) if part in self.inside and name_of(node) in _BEGINNINGS
                         else names[part] if isinstance(part, Node) else part)
            if uses[node] > 1 or uses[node] and node in self.outputs:
                name = _free_name("z", set(names.values()))
                bound.append(f"{name} = {_unwrapped(text)}")
                text = name
            names[node] = text
        if any(node not in uses for node in self.changing):
            raise ValueError("nothing reads what changes running values")
        results = [_permuted(names[n], order) for n, order in zip(self.outputs, self.orders)]
        results += ["".join(names[part] if isinstance(part, Node) else part for part in parts)
                    for node in self.changing for parts in statistics_of(node)]
        self.text = "; ".join([*bound, ", ".join(results)])
        nodes = {name: node for node, name in names.items() if node not in self.inside}
        self.inputs = [nodes[name] for name in _core.compile(self.text).inputs]

    def find_detached(self, names: dict[Node, str], parts: dict[Node, list[Part]]) -> None:
        """A call's results require grad if one of its inputs does, whichever they depend on.
        In PyTorch's chain each depends on its own: a buffer's update is no part of a graph."""
        requires: dict[Any, bool] = {}
        for node in self.nodes:
            requires[node] = names[node] not in COMPARISONS and any(
                requires.get(part, _requires_grad(part)) for part in parts[node])
        if any(map(_requires_grad, self.inputs)):
            self.detached = {node for node in self.outputs if not requires[node]}


def _factor(text: str, node: Node) -> str:
    """Of a product, computed beside it: a formula keeps float32, with which tensor cores do nothing, where
    PyTorch has halves."""
    dtype = value_of(node).dtype
    return f"{FLOATS[dtype]}({_unwrapped(text)})" if dtype.itemsize == 2 else text


def _requires_grad(part: Part) -> bool:
    value = value_of(part) if isinstance(part, Node) else None
    return isinstance(value, Tensor) and value.requires_grad


def _free_name(letter: str, taken: set[str]) -> str:
    return next(name for i in range(len(taken) + 1) if (name := f"{letter}{i}") not in taken)


def _name_input(node: Node, taken: set[str]) -> str:
    """A parameter's name in its module, or the argument's: Dynamo has made l_x_ of x, and
    l_self_modules_fc_parameters_weight_ of self.fc.weight."""
    name = re.sub(r"^[lL]_|_$", "", node.name)
    name = re.sub(r"^[a-z]+_(?=(modules|parameters|buffers)_)", "", name)
    name = re.sub(r"(^|_)(modules|parameters|buffers)_", ".", name).strip("._")
    if (name in taken or name in signatures() or attributes_among([name]) or name in ("inf", "nan", "true", "false")
            or not re.fullmatch(r"[A-Za-z_]\w*(\.([A-Za-z_]\w*|\d+))*", name)):
        return _free_name("x", taken)
    return name


def order_of(value: Tensor) -> tuple[int, ...] | None:
    """The dims as they lie in memory, the one with the greatest stride first; None: there are
    gaps, or elements in the same place."""
    plain = tuple(range(value.dim())) if value.is_contiguous() else None
    if is_dtensor(value) or plain is not None and not any(
            isinstance(size, int) and size == 1 for size in value.shape):
        return plain
    strides, count = value.stride(), 1
    order = sorted(range(value.dim()), key=lambda dim: (-strides[dim], bool(value.shape[dim] == 1)))
    for dim in reversed(order):
        if strides[dim] != count:
            return plain
        count *= value.shape[dim]
    return tuple(order)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(order.index, range(len(order))))


def _permuted(text: str, order: tuple[int, ...]) -> str:
    """text with its dims in this order."""
    now = list(range(len(order)))
    text = _unwrapped(text)
    for i, dim in enumerate(order):
        j = now.index(dim)
        if i != j:
            text = f"transpose({text}, {i}, {j})"
            now[i], now[j] = now[j], now[i]
    return text


def _unwrapped(text: str) -> str:
    """Without a pair of brackets around all of it."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 and text[0] == "(" else text
    return text


def _why_not_product(name: str, node: Node, parts: list[Part]) -> str | None:
    """Products and convolutions that formulas have no measured rate for."""
    what = "convolution" if name in CONVOLUTIONS else "product"
    if estimate_call(name, node, parts).ours == 0:
        return f"formulas were not measured to compute such a {what} faster"
    value = value_of(node)
    if value.device.type == "cpu" and precision() == "tf32":
        return "the precision is tf32, which CPUs do not have"
    if value.device.type == "cuda" and value.dtype != torch.float32 and _requires_grad(node):
        return "gradients of products of half types take longer as formulas on a GPU"
    return None


class Analysis:
    """A graph's regions, the names of its calls in the language, and why others are left."""

    def __init__(self, module: GraphModule, strided: bool = False) -> None:
        self.strided = strided
        self.nodes = list(module.graph.nodes)
        self.index = {node: i for i, node in enumerate(self.nodes)}
        self._same_memory = module.meta.get(SAME_MEMORY, {})
        self.names: dict[Node, str] = {}
        self.parts: dict[Node, list[Part]] = {}
        self.left: dict[Node, str] = {}
        self.regions: list[Region] = []
        self._unit: dict[Node, list[Node]] = {}  # those that are joined, of each
        self._own = self._find_own()
        self._translate_all()
        self._before = dict(self._predecessors())
        self._writers = [node for node in self.nodes if may_write(node) and node not in self._own]
        self.estimates = {node: estimate_call(self.names[node], node, self.parts[node])
                          for node in self.parts if self.names[node] != CONSTANT}
        while True:
            self._join_all()
            slow = self._settle()
            if not slow:
                break
            for node in slow:  # what follows a product may do better without it
                del self.names[node], self.parts[node]
            self.regions.clear()

    @staticmethod
    def call_name(node: Node) -> str:
        return name_of(node) or plain_name(node)

    # ---- calls ----

    def _find_own(self) -> set[Node]:
        """Calls that write to nothing but inputs of the graph that no other call has: a module's
        running values, and its count of batches. Others may change places with them."""
        inputs = [node for node in self.nodes if node.op in ("placeholder", "get_attr")]
        memories = Counter(map(self._memory, inputs))
        alone = {node for node in inputs if len(node.users) == 1 and memories[self._memory(node)] == 1}
        return {node for node in self.nodes if not alone.isdisjoint(written := written_by(node))
                and alone.issuperset(written)}

    def _translate_call(self, name: str, node: Node) -> tuple[str, list[Part]]:
        """What regions call it, and its text."""
        if not is_of_batch(node):
            return name, translate(name, node)
        if running_of(node) and node not in self._own:
            raise Left("it changes running_mean and running_var, which others read or write")
        return OF_BATCH, translate_of_batch(node)

    def _translate_all(self) -> None:
        for node in self.nodes:
            if not is_call(node):
                continue
            name = name_of(node)
            if name is None:
                if isinstance(value_of(node), Tensor) and not is_view(node):
                    self.left[node] = why_unknown(node)
                continue
            if not isinstance(value_of(node), Tensor) or name in ("t", "transpose", "narrow"):
                continue  # sizes; views cost nothing
            try:
                name, parts = self._translate_call(name, node)
                reason = _why_not_product(name, node, parts) if name in _BEGINNINGS else None
                if reason:
                    raise Left(reason)
                self.names[node], self.parts[node] = name, parts
            except Left as reason:
                self.left[node] = str(reason)

    # ---- an account of all ----

    def account(self) -> tuple[list[tuple[Region, list[Node]]], dict[Node, str]]:
        """Every call once: those that formulas compute, by region, or why it is PyTorch's."""
        taken = [(region, [node for node in region.nodes if node not in region.kept])
                 for region in self.regions]
        done = {node for _, nodes in taken for node in nodes}
        left = dict(self.left)
        for region in self.regions:
            left.update({node: why_kept(node) for node in region.kept})
        for node in self.nodes:
            if is_call(node) and node not in done and node not in left:
                left[node] = why_plain(node)
        return taken, left

    # ---- order ----

    def _predecessors(self) -> Iterator[tuple[Node, list[Node]]]:
        """What has to come before each node: what it reads, and the last call that others
        must not change places with; for such a call all since the one before."""
        fence: Node | None = None
        since: list[Node] = []
        for node in self.nodes:
            before = list(node.all_input_nodes)
            if is_harmless(node) or node in self._own:
                since.append(node)
                if fence is not None and node.op != "placeholder":
                    before.append(fence)
            else:
                before += since if fence is None else [*since, fence]
                fence, since = node, []
            yield node, before

    def _sorted(self, group: dict[Node, int]) -> list[Any] | None:
        """Nodes and groups, so that each comes after what it needs; None: impossible."""
        members: dict[Any, list[Node]] = {}
        for node in self.nodes:
            members.setdefault(group.get(node, node), []).append(node)
        waits = {unit: {group.get(p, p) for node in nodes for p in self._before[node]} - {unit}
                 for unit, nodes in members.items()}
        users: dict[Any, list[Any]] = {unit: [] for unit in members}
        for unit, needed in waits.items():
            for other in needed:
                users[other].append(unit)
        missing = {unit: len(needed) for unit, needed in waits.items()}
        ready = [(self.index[members[unit][-1]], i, unit)
                 for i, unit in enumerate(members) if missing[unit] == 0]
        heapq.heapify(ready)
        position = {unit: i for i, unit in enumerate(members)}
        done = []
        while ready:
            unit = heapq.heappop(ready)[2]
            done.append(unit)
            for user in users[unit]:
                missing[user] -= 1
                if missing[user] == 0:
                    heapq.heappush(ready, (self.index[members[user][-1]], position[user], user))
        return done if len(done) == len(members) else None

    def order(self) -> Iterator[Node | Region]:
        """What the new graph computes, in order."""
        group = {n: i for i, region in enumerate(self.regions) for n in region.nodes
                 if n not in region.kept}
        units = self._sorted(group)
        assert units is not None
        for unit in units:
            yield self.regions[unit] if isinstance(unit, int) else unit

    # ---- regions ----

    def _join_all(self) -> None:
        self._unit.clear()
        for node in self.parts:
            self._unit[node] = [node]
            if self.names[node] in _BEGINNINGS:
                continue
            for part in self.parts[node]:
                if part in self.parts and not self._sums_rows(part, node) and self._may_join(
                        self._unit[part], self._unit[node]):
                    self._join(part, node)
        for node in self.nodes:  # what is written side by side
            pieces = [each for each in node.args[0] if each in self.parts] if (
                self.strided and node.target is aten.cat.default) else []
            for first, last in zip(pieces, pieces[1:]):
                if value_of(first).shape == value_of(last).shape and self._may_join(
                        self._unit[first], self._unit[last]) and not self._is_around(
                        self._unit[last], self._unit[first]):
                    self._join(first, last)
        if self.strided:
            self._join_siblings()

    def _sums_rows(self, part: Node, node: Node) -> bool:
        """Whether node sums part, which is a result too, over rows of a product: that is a kernel of
        its own, which would have to keep the product and compute part of it again, instead of reading
        part. (At the level "torch" a gradient would be recorded for each.)"""
        value, result = value_of(part), value_of(node)
        if not self.strided or not works_by_rows(self.names[node]) or result.dim() == 0 or (
                result.shape[-1] != value.shape[-1] or value.shape[-1] == 1):
            return False
        is_result = any(user not in self.parts or self.names[user] in _BEGINNINGS for user in part.users)
        return is_result and any(self.names[each] in PRODUCTS for each in self._unit[part])

    def _join_siblings(self) -> None:
        """Calls that work element by element on the same tensor, which is then read once. Only at
        ATen's level: a formula that PyTorch derives would wait for all of its results' gradients."""
        readers: dict[Node, list[Node]] = {}
        for node, parts in self.parts.items():
            for part in dict.fromkeys(each for each in parts if isinstance(each, Node)):
                if part not in self.parts and isinstance(value_of(part), Tensor):
                    readers.setdefault(part, []).append(node)
        for source, nodes in readers.items():
            shape = value_of(source).shape
            alike = [node for node in nodes if all(
                works_by_element(self.names[each]) and value_of(each).shape == shape
                for each in self._unit[node])]
            for first, last in zip(alike, alike[1:]):
                if self._may_join(self._unit[first], self._unit[last]) and self._can_order(
                        self._unit[first] + self._unit[last]):
                    self._join(first, last)

    def _can_order(self, joined: list[Node]) -> bool:
        """Whether nothing would wait for itself if these were one, too. (_is_around() knows that
        only of what reads the other.)"""
        group = {node: id(unit) for node, unit in self._unit.items()}
        return self._sorted({**group, **dict.fromkeys(joined, 0)}) is not None

    def _join(self, first: Node, last: Node) -> None:
        joined = sorted(self._unit[first] + self._unit[last], key=self.index.__getitem__)
        self._unit.update(dict.fromkeys(joined, joined))

    def _may_join(self, first: list[Node], last: list[Node]) -> bool:
        return (first is not last and len(first) + len(last) <= _MOST_NODES
                and not self._is_around(first, last))

    def _is_around(self, first: list[Node], last: list[Node]) -> bool:
        """Whether there is a way from first to last, which reads it, by something else: joined
        they would wait for it, and it for them."""
        pending = [last]
        seen = set()
        while pending:
            unit = pending.pop()
            for node in unit:
                for before in self._before[node]:
                    other = self._unit.get(before, [before])
                    if other is first:
                        if unit is not last:
                            return True
                    # What lies before first altogether does not depend on it.
                    elif other is not last and other[0] not in seen and (
                            self.index[other[-1]] > self.index[first[0]]):
                        seen.add(other[0])
                        pending.append(other)
        return False

    def _settle(self) -> list[Node]:
        """Regions of groups that are worth it. Gives the products that keep others from it."""
        autocasts = self._autocasts()
        for nodes in {id(unit): unit for unit in self._unit.values()}.values():
            region = Region(nodes, self.strided)
            reason = self._why_not(region, autocasts) or self._why_slow(region)
            if reason is None:
                self.regions.append(region)
                continue
            self.left.update(dict.fromkeys(nodes, reason))
            products = [node for node in nodes if self.names[node] in _BEGINNINGS]
            if region.estimate.ours and products and len(nodes) > len(products):
                return products
        while self._sorted({n: i for i, r in enumerate(self.regions) for n in r.nodes
                            if n not in r.kept}) is None:  # a kept node ties two regions up
            region = self.regions.pop(next(i for i, r in enumerate(self.regions) if r.kept))
            self.left.update(dict.fromkeys(region.nodes, "its results have gaps in memory"))
        for region in self.regions:
            for node in region.nodes:
                self.left.pop(node, None)
        return []

    def _why_slow(self, region: Region) -> str | None:
        """Whether PyTorch is estimated to be as fast."""
        inside = [node for node in region.nodes if node not in region.kept]
        work = [node for node in region.nodes if self.names[node] not in _NO_WORK]
        theirs = sum(self.estimates[node].theirs for node in inside if node in self.estimates)
        records = len(work) == 1 and not self.strided and any(map(_requires_grad, region.inputs))
        try:
            ours = estimate_formula(region.text, region.inputs, inside, self.names, self.parts,
                                    records)
        except (ValueError, TypeError, NotImplementedError) as error:
            return f"a formula refuses it: {str(error).splitlines()[0]}"
        region.estimate = self._with_gradients(Estimate(ours, theirs), inside)
        if 0 < region.estimate.ours < region.estimate.theirs:
            return _APART if self._is_better_apart(region) else None
        return _ALONE if len(work) == 1 else "PyTorch is estimated to be as fast"

    def _with_gradients(self, estimate: Estimate, nodes: list[Node]) -> Estimate:
        """Who computes a convolution computes its gradients, but at ATen's level, where they are
        calls of their own."""
        derived = [] if self.strided else [
            node for node in nodes if self.names[node] in CONVOLUTIONS and _requires_grad(node)]
        return add_estimates([estimate, *(each for node in derived for each in estimate_gradients(
            self.names[node], node, self.parts[node]))])

    def _is_better_apart(self, region: Region) -> bool:
        """Whether PyTorch's convolutions with a formula of what follows take less time."""
        apart = [node for node in region.nodes if self.names[node] in CONVOLUTIONS]
        rest = Region([node for node in region.nodes if node not in apart], self.strided)
        if not apart or all(self.names[node] in _NO_WORK for node in rest.nodes):
            return False
        rest.find_outputs(self.parts)
        if not rest.outputs:
            return False
        try:
            rest.write(self.parts)
            ours = estimate_formula(rest.text, rest.inputs,
                                    [n for n in rest.nodes if n not in rest.kept],
                                    self.names, self.parts, False)
        except (ValueError, TypeError, NotImplementedError):  # only the whole is a formula
            return False
        theirs = self._with_gradients(add_estimates([self.estimates[n] for n in apart]), apart).theirs
        return 0 < ours and 0 < theirs and ours + theirs < region.estimate.ours

    def _why_not(self, region: Region, autocasts: dict[Node, Any]) -> str | None:
        if all(self.names[node] in _NO_WORK for node in region.nodes):
            return _ALONE
        if any(self.call_name(user) == "register_hook" and not node.users.keys().isdisjoint(
                region.inside) for node in region.nodes for user in node.users):
            return "a hook waits for the gradient of a value in it"
        if self._is_written_later(region):
            return "one of its inputs is written to later, which its gradient needs"
        region.find_outputs(self.parts)
        if not region.outputs or any(self.names[node] in _BEGINNINGS or node in region.changing
                                     for node in region.kept):
            return "its results have gaps in memory"
        try:
            region.write(self.parts)
        except ValueError as error:  # softmax without dim
            return f"a formula refuses it: {str(error).splitlines()[0]}"
        region.find_detached(self.names, self.parts)
        return _why_different(region, autocasts.get(region.nodes[0]))

    def _memory(self, node: Node) -> Any:
        storage = storage_of(node)
        return self._same_memory.get(storage, storage)

    def _is_written_later(self, region: Region) -> bool:
        """A formula keeps its inputs for its gradient, where PyTorch may keep results."""
        inputs = {self._memory(part) for node in region.nodes for part in self.parts[node]
                  if isinstance(part, Node) and part not in region.inside}
        first = self.index[region.nodes[0]]
        return any(self.index[node] > first and
                   not inputs.isdisjoint(map(self._memory, node.all_input_nodes))
                   for node in self._writers)

    def _autocasts(self) -> dict[Node, Any]:
        """The arguments of the autocast around each node, where the graph has one."""
        stack: list[Any] = []
        found = {}
        for node in self.nodes:
            name = getattr(node.target, "__name__", "")
            if name == "_enter_autocast":
                stack.append(node.args)
            elif name == "_exit_autocast" and stack:
                stack.pop()
            elif stack:
                found[node] = stack[-1]
        return found


def written_by(node: Node) -> list[Node]:
    """What a norm, or a sum whose result nobody reads, writes to; [] of all other calls."""
    if is_of_batch(node) and node.users:
        return running_of(node)
    counts = node.op == "call_method" and node.target == "add_" and not node.users and (
        len(node.args) == 2 and not node.kwargs and isinstance(node.args[1], (int, float)))
    return [node.args[0]] if counts and isinstance(node.args[0], Node) else []


def is_call(node: Node) -> bool:
    return node.op in ("call_function", "call_method", "call_module")


def is_hopeless(module: GraphModule) -> bool:
    """Whether no formula could be of use, for tensors of any shape and dtype: the graph has
    nothing but calls that the language lacks, and one at most that works element by element."""
    names = [name for node in module.graph.nodes if is_call(node)
             and (name := name_of(node)) is not None]
    lone = {name for name, _, group, _ in _core.functions()
            if group in ("activation", "mathematics", "arithmetic", "cast", "comparison", "view")} | {COPY}
    return len(names) <= 1 and lone.issuperset(names) and not any(
        isinstance(each, GraphModule) for each in module.children())


def takes_product(node: Node) -> bool:
    """Whether a product, by itself, is one that formulas compute."""
    name = name_of(node)
    try:
        return name is not None and _why_not_product(name, node, translate(name, node)) is None
    except Left:
        return False


def why_kept(node: Node) -> str:
    """Of a call in a region whose result others read, and not a formula's."""
    if value_of(node).dtype not in FLOATS:
        return f"its result, which others read, is {value_of(node).dtype}".replace("torch.", "")
    return "its result, which others read, has gaps in memory"


def why_plain(node: Node) -> str:
    """Of a call that no formula was thought of for."""
    value = value_of(node)
    if may_write(node):
        return "it writes to a tensor"
    if isinstance(value, Tensor) and is_view(node):
        return "a view, or one of several results: nothing to compute"
    if isinstance(value, Tensor) or isinstance(value, (tuple, list)) and any(
            isinstance(each, Tensor) for each in value):
        return why_unknown(node)
    return ("a number or a size" if is_harmless(node)
            else "it changes PyTorch's state, or what it does is not known")


def is_view(node: Node) -> bool:
    """Also one of several results."""
    return is_aten_view(node) or any(
        storage_of(node) == storage_of(each) or isinstance(value_of(each), (tuple, list))
        for each in node.all_input_nodes)


def _why_different(region: Region, autocast: Any) -> str | None:
    """Asks the operator for its results' shapes and dtypes, which must be PyTorch's."""
    values = [value_of(node) for node in region.inputs]
    inner = [getattr(value, "_local_tensor", value) for value in values]  # of DTensors
    mode = next((value.fake_mode for value in inner if hasattr(value, "fake_mode")), None)
    context = torch.autocast(*autocast) if autocast else contextlib.nullcontext()
    device = value_of(region.outputs[0]).device
    try:
        with mode or contextlib.nullcontext(), context, torch.no_grad():
            tensors = [torch.ones((), device=device) if is_number(node) else value
                       for node, value in zip(region.inputs, values)]
            results = run(tensors, region.text, "", precision())
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        return f"a formula refuses it: {str(error).splitlines()[0]}"
    for node, result, order in zip(region.outputs, results, region.orders):
        want = value_of(node)
        if order != tuple(range(len(order))) and len(order) == result.dim():
            result = result.permute(inverse(order))
        if result.dtype != want.dtype or result.dim() != want.dim() or not all(
                a == b for a, b in zip(result.shape, want.shape)):
            return (f"a formula would give {result.dtype} {tuple(result.shape)}, "
                    f"PyTorch gives {want.dtype} {tuple(want.shape)}")
        if is_dtensor(want) and result.placements != want.placements:
            return (f"a formula would place it {tuple(result.placements)}, "
                    f"PyTorch has it {tuple(want.placements)}")
    return None
