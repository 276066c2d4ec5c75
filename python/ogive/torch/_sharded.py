# SPDX-License-Identifier: MIT
"""Formulas of DTensors: tensors that torch.distributed has divided among processes.

Imported when the first DTensor comes (_operator.py). Two hooks of torch.ops.ogive.run:
  - below autograd, by torch.library.register_torch_dispatch(): per dim of the mesh, the index
    (dims that are divided together: ogive.h) whose placements move the fewest bytes; inputs are
    redistributed to it, the formula runs on this process's parts, results are DTensors again.
    Gradients are the operator once more, so they come here, too.
  - above autograd: a formula that uses a sum nonlinearly runs in stages, with the sums reduced
    between them, where that moves less than gathering inputs would.

All data is moved by DTensor.redistribute().
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.placement_types import Placement

from .. import _core
from . import _operator
from ._operator import run
from ._shapes import infer
from ._sums import sums
from ._text import restore

Shape = tuple[int, ...]
Layout = tuple[Shape, str]  # of a whole tensor: shape, name of the dtype
Placements = tuple[Placement, ...]  # per dim of the mesh
# What an input is to be on one dim of the mesh; None: the same everywhere, given as a sum.
Wanted = Any  # Placement | None

_MOST_PLANS = 4096


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bytes_of(layout: Layout) -> int:
    return math.prod(layout[0]) * int(getattr(torch, layout[1]).itemsize)


# ---- steps --------------------------------------------------------------------------


def _is_gradient(step: str) -> bool:
    """Names of inputs; others are stages here (@1.0), casts (exp=float32), values (0,<1)."""
    return not (step.startswith(("@", "<")) or step[:1].isdigit() or "=" in step)


def _split(steps: str) -> tuple[list[str], list[str]]:
    """Steps before the first gradient, and from it on."""
    levels = steps.split(";") if steps else []
    first = next((i for i, level in enumerate(levels) if _is_gradient(level)), len(levels))
    return levels[:first], levels[first:]


def _stage_step(which: str, layouts: Sequence[Layout]) -> str:
    return ",".join([f"@{which}", *("x".join(map(str, shape)) + f":{dtype}"
                                    for shape, dtype in layouts)])


def _with_counts(text: str, steps: str, precision: str, layouts: Sequence[Layout]) -> str:
    """steps for a formula that counts elements as the whole inputs have them."""
    before, after = _split(steps)
    inputs = restore(text, ";".join(before), precision).inputs
    return ";".join([*before, _stage_step("", layouts[:len(inputs)]), *after])


# ---- choosing -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Choice:
    """For one dim of the mesh."""
    inputs: tuple[Wanted, ...]
    results: Placements
    cost: float  # bytes that a process receives
    counts: bool = False


def _moved(current: Placement, wanted: Wanted, size: int, ranks: int) -> float:
    """Bytes that one process receives for a tensor of size bytes."""
    if wanted is None:
        wanted = current if isinstance(current, Partial) else Replicate()
    if current == wanted or isinstance(current, Replicate):
        return 0.0
    share = size * (ranks - 1) / ranks
    if isinstance(current, Shard):
        return share / ranks if isinstance(wanted, Shard) else share
    return share if isinstance(wanted, Shard) else 2 * share  # reduce-scatter, all-reduce


def _as_placement(share: int | str) -> Placement:
    if isinstance(share, int):
        return Shard(share)
    return Replicate() if share == "same" else Partial(share)


def _as_wanted(share: int | str) -> Wanted:
    return None if share == "sum" else _as_placement(share)


def _fits(division: dict[str, Any], ranks: int) -> bool:
    """Whether processes can have parts. One that is empty has a sum, but no greatest element."""
    extent = division["extent"]
    if not division["stages"] or extent < ranks:
        return False
    has_empty = extent <= -(-extent // ranks) * (ranks - 1)
    shares = [*division["results"], *(cut["share"] for cut in division["cuts"])]
    return not has_empty or not any(share in ("max", "min") for share in shares)


@functools.lru_cache(maxsize=_MOST_PLANS)
def _divisions(text: str, steps: str, precision: str, layouts: tuple[Layout, ...],
               ) -> list[dict[str, Any]]:
    return restore(text, steps, precision)._divisions(*layouts)


def _candidates(formula: _core.Formula, layouts: tuple[Layout, ...],
                current: Sequence[Placement], ranks: int) -> Iterator[_Choice]:
    """The ways to run in one stage; that of no communication, if there is one, is not last."""
    def choice(inputs: Sequence[Wanted], results: Placements, counts: bool) -> _Choice:
        cost = sum(_moved(p, w, _bytes_of(layout), ranks)
                   for p, w, layout in zip(current, inputs, layouts))
        return _Choice(tuple(inputs), results, cost, counts)

    sums = tuple([isinstance(p, Partial) and p.reduce_op == "sum" for p in current])
    if any(sums):
        given = formula._sums(sums, *layouts)
        if given is not None:
            yield choice([Partial() if is_sum else Replicate() for is_sum in sums],
                         tuple(map(_as_placement, given)), False)
    divisions = _divisions(formula.text, formula.steps, formula.precision, layouts)
    for division in divisions:
        if division["stages"] == 1 and _fits(division, ranks):
            yield choice([_as_wanted(share) for share in division["inputs"]],
                         tuple(map(_as_placement, division["results"])), division["counts"])
    yield choice([Replicate()] * len(layouts), (Replicate(),) * formula.results, False)


def _choose(formula: _core.Formula, layouts: tuple[Layout, ...],
            placements: Sequence[Placements], ranks: Sequence[int]) -> list[_Choice]:
    """One choice per dim of the mesh; placements: of each input."""
    chosen = []
    for j, count in enumerate(ranks):
        current = [placed[j] for placed in placements]
        chosen.append(min(_candidates(formula, layouts, current, count),
                          key=lambda c: (c.cost, sum(w != p for w, p in zip(c.inputs, current)))))
    for k in range(formula.results):  # a maximum of sums is no sum of maxima
        if len({p.reduce_op for c in chosen if isinstance(p := c.results[k], Partial)}) > 1:
            whole = _Choice((Replicate(),) * len(layouts), (Replicate(),) * formula.results,
                            math.inf)
            return [whole] * len(ranks)
    return chosen


# ---- below autograd -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Plan:
    """All that can be said before looking at data."""
    order: tuple[int, ...]  # of the inputs that the local formula takes
    wanted: tuple[tuple[Wanted, ...], ...]  # per input, per dim of the mesh
    fits: tuple[bool, ...]  # whether an input is placed so already
    all_fit: bool
    steps: str
    results: tuple[Placements, ...]


def _make_plan(text: str, steps: str, precision: str, layouts: tuple[Layout, ...],
               placements: tuple[Placements, ...], ranks: tuple[int, ...]) -> _Plan:
    formula = restore(text, steps, precision)
    chosen = _choose(formula, layouts, placements, ranks)
    local = steps
    if any(choice.counts for choice in chosen):
        local = _with_counts(text, steps, precision, layouts)
    names = restore(text, local, precision).inputs
    wanted = tuple([tuple([choice.inputs[i] for choice in chosen]) for i in range(len(layouts))])
    fits = tuple([w == p for w, p in zip(wanted, placements)])
    return _Plan(tuple([formula.inputs.index(name) for name in names]), wanted, fits, all(fits),
                 local, tuple([tuple([c.results[k] for c in chosen])
                               for k in range(formula.results)]))


_find_plan = functools.lru_cache(maxsize=_MOST_PLANS)(_make_plan)


def _check_mesh(formula: _core.Formula, inputs: Sequence[Tensor]) -> Any:
    """The mesh of the inputs; says what is wrong if they have not one."""
    first = next(i for i, tensor in enumerate(inputs) if isinstance(tensor, DTensor))
    mesh = inputs[first].device_mesh
    for name, tensor in zip(formula.inputs, inputs):
        if not isinstance(tensor, DTensor):
            if tensor.numel() != 1:
                raise RuntimeError(
                    f"input '{name}' is a tensor, '{formula.inputs[first]}' a DTensor: all must be "
                    "DTensors (torch.distributed.tensor.distribute_tensor makes one of a tensor, "
                    "DTensor.from_local of this process's part)")
        elif tensor.device_mesh != mesh:
            raise RuntimeError(f"input '{name}' is on {tensor.device_mesh}, "
                               f"'{formula.inputs[first]}' on {mesh}: all must be on one mesh")
    return mesh


def _as_dtensors(formula: _core.Formula, inputs: Sequence[Tensor]) -> list[DTensor]:
    """Numbers, too: every process has them."""
    mesh = _check_mesh(formula, inputs)
    return [tensor if isinstance(tensor, DTensor) else
            DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
            for tensor in inputs]


def _redistribute(name: str, tensor: DTensor, placements: Sequence[Placement]) -> DTensor:
    try:
        return tensor.redistribute(tensor.device_mesh, placements)
    except (NotImplementedError, RuntimeError, ValueError, AssertionError) as error:
        raise RuntimeError(f"input '{name}', placed {tuple(tensor.placements)}, cannot be made "
                           f"{tuple(placements)}: {error}") from error


def _local(name: str, tensor: DTensor, wanted: tuple[Wanted, ...]) -> Tensor:
    """This process's part of tensor, placed as wanted."""
    mesh, divisor, placements = tensor.device_mesh, 1, []
    for j, (placed, placement) in enumerate(zip(tensor.placements, wanted)):
        if placement is None and not isinstance(placed, Partial):
            divisor *= mesh.size(j)
        placements.append(placement or (placed if isinstance(placed, Partial) else Replicate()))
    if list(tensor.placements) != placements:
        tensor = _redistribute(name, tensor, placements)
    local = tensor.to_local()
    return local / divisor if divisor > 1 else local


def _contiguous_strides(shape: Sequence[Any]) -> tuple[Any, ...]:
    strides: list[Any] = []
    size: Any = 1
    for extent in reversed(shape):
        strides.insert(0, size)
        size = size * extent
    return tuple(strides)


def _number(size: Any, exact: bool) -> int:
    """A symbol's value here; exact: with a guard. Of others only "not 1" is relied upon."""
    return size if isinstance(size, int) else int(size) if exact else int(size.node.hint)


def _layouts(inputs: Sequence[DTensor], exact: bool) -> tuple[Layout, ...]:
    if exact:  # in 2.13 a guard on the whole's size alone is not kept
        for tensor in inputs:
            for size in tensor.to_local().shape:
                _number(size, True)
    return tuple([(tuple([_number(size, exact) for size in tensor.shape]),
                   _dtype_name(tensor.dtype)) for tensor in inputs])


def _add_in_order(tensor: DTensor) -> DTensor:
    """A sum, gathered and added from the first process to the last."""
    mesh = tensor.device_mesh
    for j, placed in enumerate(tensor.placements):
        if not (isinstance(placed, Partial) and placed.reduce_op == "sum"):
            continue
        # Whatever others are, only dim j of the mesh is looked at: they stay this process's.
        apart = [Shard(0) if i == j else Replicate() for i in range(mesh.ndim)]
        whole = [Replicate()] * mesh.ndim
        parts = DTensor.from_local(tensor.to_local().unsqueeze(0), mesh, apart,
                                   run_check=False).redistribute(mesh, whole).to_local().unbind(0)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        placements = [Replicate() if i == j else p for i, p in enumerate(tensor.placements)]
        tensor = DTensor.from_local(total, mesh, placements, run_check=False, shape=tensor.shape,
                                    stride=tensor.stride())
    return tensor


def _run_parts(inputs: Sequence[Tensor], text: str, steps: str,
               precision: str) -> tuple[list[DTensor], bool]:
    """The results, and whether nothing had to be moved for them."""
    formula = restore(text, steps, precision)
    # detach(): redistribute() would record a gradient, which 2.6 and 2.9 cannot here.
    given = [tensor.detach() for tensor in _as_dtensors(formula, inputs)]
    placements = tuple([tensor.placements for tensor in given])
    mesh = given[0].device_mesh
    plan = _find_plan(text, steps, precision, _layouts(given, False), placements, tuple(mesh.shape))
    if plan.steps != steps and _layouts(given, True):
        plan = _find_plan(text, steps, precision, _layouts(given, True), placements,
                          tuple(mesh.shape))
    parts = [tensor.to_local() if fits else _local(name, tensor, wanted) for name, tensor, wanted,
             fits in zip(formula.inputs, given, plan.wanted, plan.fits)]
    results = run([parts[i] for i in plan.order], text, plan.steps, precision)
    made = [DTensor.from_local(result, mesh, placed, run_check=False, shape=torch.Size(shape),
                               stride=_contiguous_strides(shape))
            for result, placed, (shape, _) in zip(results, plan.results, infer(formula, given))]
    if sums() == "ranks":
        return [_add_in_order(result) for result in made], False
    return made, plan.all_fit


# Of calls whose inputs are placed as they should be: what to run, and what the results are. By
# the operator's other arguments and the inputs' specs. DTensor's own constructor takes 3 us less
# than from_local().
_quick: dict[Any, tuple[tuple[int, ...], str, list[DTensorSpec]]] = {}


def _dispatch(kind: type, function: Any, types: Any, args: tuple[Any, ...],
              kwargs: dict[str, Any] | None) -> list[DTensor]:
    """torch.ops.ogive.run below autograd, where one of the inputs is a DTensor."""
    names = ("inputs", "formula", "steps", "precision")
    given = {"steps": "", "precision": "float32", **dict(zip(names, args)), **(kwargs or {})}
    inputs, text, steps, precision = (given[name] for name in names)
    key = None
    if all([type(tensor) is DTensor and type(tensor._local_tensor) is Tensor for tensor in inputs]):
        key = (text, steps, precision, *[tensor._spec for tensor in inputs])
        found = _quick.get(key)
        if found is not None and sums() == "any":
            order, local, specs = found
            results = run([inputs[i]._local_tensor for i in order], text, local, precision)
            return [DTensor(result, spec, requires_grad=False)
                    for result, spec in zip(results, specs)]
    results, nothing_moved = _run_parts(inputs, text, steps, precision)
    if key is not None and nothing_moved:
        if len(_quick) >= _MOST_PLANS:
            _quick.clear()
        plan = _find_plan(text, steps, precision, _layouts(inputs, False),
                          tuple([tensor.placements for tensor in inputs]),
                          tuple(inputs[0].device_mesh.shape))
        _quick[key] = plan.order, plan.steps, [result._spec for result in results]
    return results


# ---- above autograd -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Stage:
    steps: str
    inputs: tuple[str, ...]
    cuts: tuple[tuple[str, bool], ...]  # the results' names, and whether they have a gradient


@dataclasses.dataclass(frozen=True)
class _Stages:
    mesh_dim: int
    wanted: Placements  # of the inputs on that dim
    stages: tuple[_Stage, ...]


def _write_stages(formula: _core.Formula, layouts: tuple[Layout, ...], index: int,
                  division: dict[str, Any]) -> tuple[_Stage, ...]:
    stages = []
    for stage in range(division["stages"]):
        step = _stage_step(f"{index}.{stage}", layouts)
        steps = f"{formula.steps};{step}" if formula.steps else step
        made = restore(formula.text, steps, formula.precision)
        stages.append(_Stage(steps, made.inputs, tuple([
            (cut["name"], not cut["constant"]) for cut in division["cuts"]
            if cut["stage"] == stage])))
    return tuple(stages)


@functools.lru_cache(maxsize=_MOST_PLANS)
def _find_stages(text: str, steps: str, precision: str, layouts: tuple[Layout, ...],
                 placements: tuple[Placements, ...], ranks: tuple[int, ...]) -> _Stages | None:
    """None: to run in one stage moves no more."""
    formula = restore(text, steps, precision)
    chosen = _choose(formula, layouts, placements, ranks)
    best: tuple[float, int, int, Placements] | None = None
    divisions = _divisions(text, steps, precision, layouts)
    for j, count in enumerate(ranks):
        current = [placed[j] for placed in placements]
        for index, division in enumerate(divisions):
            shares = division["inputs"]
            if division["stages"] < 2 or not _fits(division, count) or not any(
                    isinstance(p, Shard) and p.dim == share for p, share in zip(current, shares)):
                continue
            wanted = tuple([_as_placement(share) for share in shares])
            cost = sum(_moved(p, w, _bytes_of(layout), count)
                       for p, w, layout in zip(current, wanted, layouts))
            cost += sum(_moved(Partial(), Replicate(), 4 * math.prod(cut["shape"]), count)
                        for cut in division["cuts"])
            if cost < chosen[j].cost and (best is None or cost < best[0]):
                best = cost, j, index, wanted
    if best is None:
        return None
    _, j, index, wanted = best
    return _Stages(j, wanted, _write_stages(formula, layouts, index, divisions[index]))


class _Reduce(torch.autograd.Function):
    """Contributions, reduced by DTensor.redistribute(). Its own backward takes, in 2.6 and 2.9,
    a gradient that is contributions itself for the whole: here it is reduced, too."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        return _whole(tensor.detach())

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _whole(grad)


def _whole(tensor: DTensor) -> DTensor:
    return tensor.redistribute(tensor.device_mesh, [
        Replicate() if isinstance(p, Partial) else p for p in tensor.placements])


def _run_stages(inputs: Sequence[DTensor], formula: _core.Formula, found: _Stages) -> list[Tensor]:
    values: dict[str, Tensor] = {}
    for name, tensor, wanted in zip(formula.inputs, inputs, found.wanted):
        placements = list(tensor.placements)
        if placements[found.mesh_dim] != wanted:
            placements[found.mesh_dim] = wanted
            tensor = _redistribute(name, tensor, placements)
        values[name] = tensor
    results: list[Tensor] = []
    for stage in found.stages:
        given = [values[name] for name in stage.inputs]
        if stage.cuts and not any(differentiable for _, differentiable in stage.cuts):
            given = [tensor.detach() for tensor in given]
        results = run(given, formula.text, stage.steps, formula.precision)
        for (name, differentiable), result in zip(stage.cuts, results):
            reduced = _Reduce.apply(result)
            values[name] = reduced if differentiable else reduced.detach()
    return results


# Specs of inputs, with the operator's other arguments, that need no stages.
_one_stage: set[Any] = set()


def _run_in_stages(inputs: Sequence[Tensor], text: str, steps: str,
                   precision: str) -> list[Tensor] | None:
    """None: it is one call."""
    key = None
    if all([type(tensor) is DTensor and type(tensor._local_tensor) is Tensor for tensor in inputs]):
        key = (text, steps, precision, *[tensor._spec for tensor in inputs])
        if key in _one_stage:
            return None
    if not any([isinstance(tensor, DTensor) for tensor in inputs]) or _split(steps)[1]:
        return None
    formula = restore(text, steps, precision)
    given = _as_dtensors(formula, inputs)
    placements = tuple([tensor.placements for tensor in given])
    ranks = tuple(given[0].device_mesh.shape)
    found = _find_stages(text, steps, precision, _layouts(given, False), placements, ranks)
    if found is None:
        if key is not None:
            if len(_one_stage) >= _MOST_PLANS:
                _one_stage.clear()
            _one_stage.add(key)
        return None
    found = _find_stages(text, steps, precision, _layouts(given, True), placements, ranks)
    return _run_stages(given, formula, found) if found else None


torch.library.register_torch_dispatch("ogive::run", DTensor, _dispatch, lib=_operator.library)
_operator.run_in_stages = _run_in_stages
