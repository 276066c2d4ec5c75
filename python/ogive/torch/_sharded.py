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
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Placement

from .. import _core
from . import _operator
from ._operator import run
from ._orders import find_sums, keeps_order, part_sizes
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


def _counted(formula: _core.Formula, layouts: Sequence[Layout]) -> _core.Formula:
    """What runs on parts of formula if it counts elements."""
    return restore(formula.text, _with_counts(formula.text, formula.steps, formula.precision,
                                              layouts), formula.precision)


# ---- choosing -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Choice:
    """For one dim of the mesh."""
    inputs: tuple[Wanted, ...]
    results: Placements
    cost: float  # bytes that a process receives
    counts: bool = False


def _is_sum(placed: Placement) -> bool:
    return isinstance(placed, Partial) and placed.reduce_op == "sum"


def _moved(current: Placement, wanted: Wanted, size: int, ranks: int) -> float:
    """Bytes that one process receives for a tensor of size bytes."""
    if wanted is None:
        wanted = current if _is_sum(current) else Replicate()
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


def _adds_alike(formula: _core.Formula, layouts: tuple[Layout, ...], division: dict[str, Any],
                ranks: int, alone: bool) -> bool:
    """Whether sums on parts are added as the whole's are. Without alone only where a part may have
    one element, so that the dim vanishes, is that asked, and only of sums over other dims."""
    has_sums = any([share == "sum" for share in (*division["inputs"], *division["results"])])
    sizes = part_sizes(division["extent"], ranks)
    if has_sums or not alone and min(sizes) > 1:
        return not (has_sums and alone)
    local = _counted(formula, layouts) if division["counts"] else formula
    order = [formula.inputs.index(name) for name in local.inputs]
    dims = [share if isinstance(share, int) else None for share in division["inputs"]]
    return keeps_order(local, [layouts[i] for i in order], [dims[i] for i in order], sizes)


def _candidates(formula: _core.Formula, layouts: tuple[Layout, ...], current: Sequence[Placement],
                ranks: int, alone: bool = False) -> Iterator[_Choice]:
    """The ways to run in one stage; that of no communication, if there is one, is not last. alone:
    those that give the bits of one process."""
    def choice(inputs: Sequence[Wanted], results: Placements, counts: bool) -> _Choice:
        cost = sum(_moved(p, w, _bytes_of(layout), ranks)
                   for p, w, layout in zip(current, inputs, layouts))
        return _Choice(tuple(inputs), results, cost, counts)

    divisions = [division for division in _divisions(
        formula.text, formula.steps, formula.precision, layouts)
        if division["stages"] == 1 and _fits(division, ranks)]
    alike = [_adds_alike(formula, layouts, division, ranks, alone) for division in divisions]
    if not alone and not all(alike):  # nor would sums of other parts be added as the whole's
        yield from _candidates(formula, layouts, current, ranks, True)
        return
    sums = tuple([_is_sum(p) for p in current])
    if any(sums) and not alone:
        given = formula._sums(sums, *layouts)
        if given is not None:
            yield choice([Partial() if is_sum else Replicate() for is_sum in sums],
                         tuple(map(_as_placement, given)), False)
    for division, is_alike in zip(divisions, alike):
        if is_alike:
            yield choice([_as_wanted(share) for share in division["inputs"]],
                         tuple(map(_as_placement, division["results"])), division["counts"])
    yield choice([Replicate()] * len(layouts), (Replicate(),) * formula.results, False)


def _part_layouts(layouts: Sequence[Layout], chosen: Sequence[_Choice], ranks: Sequence[int],
                  place: Sequence[int]) -> list[Any]:
    """What the process at place in the mesh has of the inputs, seen in the whole tensors."""
    found = []
    for i, (shape, dtype) in enumerate(layouts):
        local = list(shape)
        for choice, count, at in zip(chosen, ranks, place):
            if isinstance(wanted := choice.inputs[i], Shard):
                part = -(-local[wanted.dim] // count)
                local[wanted.dim] = max(0, min(part, local[wanted.dim] - at * part))
        found.append((tuple(local), dtype, _contiguous_strides(shape)))
    return found


def _all_add_alike(formula: _core.Formula, layouts: tuple[Layout, ...], chosen: Sequence[_Choice],
                   ranks: Sequence[int]) -> bool:
    """Whether choices that are each right are so together."""
    local = _counted(formula, layouts) if any([c.counts for c in chosen]) else formula
    order = [formula.inputs.index(name) for name in local.inputs]
    whole = find_sums(local, [layouts[i] for i in order])
    parts = [_part_layouts(layouts, chosen, ranks, place)
             for place in itertools.product(*map(range, ranks))] if whole else []
    return all([whole == find_sums(local, [part[i] for i in order]) for part in parts
                if all([math.prod(layout[0]) for layout in part])])


def _choose(formula: _core.Formula, layouts: tuple[Layout, ...], placements: Sequence[Placements],
            ranks: Sequence[int], alone: bool = False) -> list[_Choice]:
    """One choice per dim of the mesh; placements: of each input."""
    chosen = []
    for j, count in enumerate(ranks):
        current = [placed[j] for placed in placements]
        chosen.append(min(_candidates(formula, layouts, current, count, alone),
                          key=lambda c: (c.cost, sum(w != p for w, p in zip(c.inputs, current)))))
    whole = _Choice((Replicate(),) * len(layouts), (Replicate(),) * formula.results, math.inf)
    for k in range(formula.results):  # a maximum of sums is no sum of maxima
        if len({p.reduce_op for c in chosen if isinstance(p := c.results[k], Partial)}) > 1:
            return [whole] * len(ranks)
    if alone and len(ranks) > 1 and not _all_add_alike(formula, layouts, chosen, ranks):
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
    cost: float


def _make_plan(text: str, steps: str, precision: str, layouts: tuple[Layout, ...],
               placements: tuple[Placements, ...], ranks: tuple[int, ...],
               alone: bool = False) -> _Plan:
    formula = restore(text, steps, precision)
    chosen = _choose(formula, layouts, placements, ranks, alone)
    local = steps
    if any(choice.counts for choice in chosen):
        local = _with_counts(text, steps, precision, layouts)
    names = restore(text, local, precision).inputs
    wanted = tuple([tuple([choice.inputs[i] for choice in chosen]) for i in range(len(layouts))])
    fits = tuple([w == p for w, p in zip(wanted, placements)])
    return _Plan(tuple([formula.inputs.index(name) for name in names]), wanted, fits, all(fits),
                 local, tuple([tuple([c.results[k] for c in chosen])
                               for k in range(formula.results)]), sum(c.cost for c in chosen))


_find_plan = functools.lru_cache(maxsize=_MOST_PLANS)(_make_plan)


def _check_mesh(formula: _core.Formula, inputs: Sequence[Tensor]) -> Any:
    """The mesh of the inputs; says what is wrong if they have not one."""
    first = next(i for i, tensor in enumerate(inputs) if isinstance(tensor, DTensor))
    mesh = inputs[first].device_mesh
    implicit = DTensor._op_dispatcher._allow_implicit_replication
    for name, tensor in zip(formula.inputs, inputs):
        if not isinstance(tensor, DTensor):
            if tensor.numel() != 1 and not implicit:
                raise RuntimeError(
                    f"input '{name}' is a tensor, '{formula.inputs[first]}' a DTensor: all must be "
                    "DTensors (torch.distributed.tensor.distribute_tensor makes one of a tensor, "
                    "DTensor.from_local of this process's part)")
        elif tensor.device_mesh != mesh:
            raise RuntimeError(f"input '{name}' is on {tensor.device_mesh}, "
                               f"'{formula.inputs[first]}' on {mesh}: all must be on one mesh")
    return mesh


def _check_part(name: str, tensor: DTensor) -> None:
    """A part that is not of the size that the whole's says: DTensor.from_local() believes what it
    is given."""
    local = tensor._local_tensor
    if local.dtype != tensor.dtype:
        raise RuntimeError(f"input '{name}' is {tensor.dtype}, but this process's part of it is "
                           f"{local.dtype}")
    if type(local) is not Tensor:  # traced: there is no process yet
        return
    shape, _ = compute_local_shape_and_global_offset(tuple(tensor.shape), tensor.device_mesh,
                                                     tensor.placements)
    for dim, (got, expected) in enumerate(zip(local.shape, shape)):
        if got != expected:
            raise RuntimeError(
                f"input '{name}' of shape {tuple(tensor.shape)}, placed {tensor.placements}: this "
                f"process's part has {got} of dim {dim}, expected {expected}")
    if len(shape) != local.dim():
        raise RuntimeError(f"input '{name}' of shape {tuple(tensor.shape)}: this process's part has "
                           f"{local.dim()} dims")


def _as_dtensors(formula: _core.Formula, inputs: Sequence[Tensor]) -> list[DTensor]:
    """Numbers, too: every process has them."""
    mesh = _check_mesh(formula, inputs)
    for name, tensor in zip(formula.inputs, inputs):
        if isinstance(tensor, DTensor):
            _check_part(name, tensor)
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
        if placement is None and not _is_sum(placed):
            divisor *= mesh.size(j)
        placements.append(placement or (placed if _is_sum(placed) else Replicate()))
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
        if not _is_sum(placed):
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
    mesh, alone = given[0].device_mesh, sums() == "one"
    plan = _find_plan(text, steps, precision, _layouts(given, False), placements,
                      tuple(mesh.shape), alone)
    if plan.steps != steps and _layouts(given, True):
        plan = _find_plan(text, steps, precision, _layouts(given, True), placements,
                          tuple(mesh.shape), alone)
    parts = [tensor.to_local() if fits else _local(name, tensor, wanted) for name, tensor, wanted,
             fits in zip(formula.inputs, given, plan.wanted, plan.fits)]
    results = run([parts[i] for i in plan.order], text, plan.steps, precision)
    made = [DTensor.from_local(result, mesh, placed, run_check=False, shape=torch.Size(shape),
                               stride=_contiguous_strides(shape))
            for result, placed, (shape, _) in zip(results, plan.results, infer(formula, given))]
    if sums() == "ranks":
        return [_add_in_order(result) for result in made], False
    return made, plan.all_fit


@dataclasses.dataclass(frozen=True)
class _Quick:
    """What a call whose inputs are placed as they should be runs, and what its results are."""
    straight: Any  # the local formula's kernels
    order: tuple[int, ...] | None  # of its inputs; None: that of the formula's
    steps: str
    specs: tuple[DTensorSpec, ...]
    shapes: list[torch.Size]  # of this process's parts


# By the operator's other arguments and the inputs' specs.
_quick: dict[Any, _Quick] = {}


def _make(local: Tensor, spec: DTensorSpec) -> DTensor:
    """A DTensor by its own constructor, in a tenth of from_local()'s time; __init__(), which does
    nothing but ask Dynamo for leave, would take longer than that."""
    made: DTensor = DTensor.__new__(DTensor, local, spec, requires_grad=False)
    return made


def _key(inputs: Sequence[Any], text: str, steps: str, precision: str) -> Any:
    """What such calls are found by; None: one of the inputs is something else."""
    for tensor in inputs:
        if type(tensor) is not DTensor or type(tensor._local_tensor) is not Tensor:
            return None
    return (text, steps, precision, *[tensor._spec for tensor in inputs])


def _needs_dispatcher(inputs: Sequence[Tensor]) -> bool:
    torch_c = torch._C
    return bool(torch_c._len_torch_dispatch_stack() or torch_c._len_torch_function_stack()
                or torch_c._is_any_autocast_enabled() or torch_c._get_tracing_state()
                or torch_c._functorch.maybe_current_level() is not None
                or forward_ad._current_level >= 0
                or torch.is_grad_enabled() and any([tensor.requires_grad for tensor in inputs]))


def _run_quick(formula: _core.Formula, inputs: list[Any]) -> Any:
    """A call's result; None: it is not known, or something wants to see it go by."""
    key = _key(inputs, formula.text, formula.steps, formula.precision)
    found = _quick.get(key)
    if found is None or sums() != "any" or _needs_dispatcher(inputs):
        return None
    parts = [tensor._local_tensor for tensor in inputs]
    if [part.shape for part in parts] != found.shapes:
        return None
    results = found.straight(*(parts if found.order is None else [parts[i] for i in found.order]))
    if len(found.specs) == 1:
        return _make(results, found.specs[0])
    return tuple([_make(result, spec) for result, spec in zip(results, found.specs)])


def _remember(key: Any, inputs: Sequence[DTensor], text: str, steps: str, precision: str,
              results: Sequence[DTensor]) -> None:
    plan = _find_plan(text, steps, precision, _layouts(inputs, False),
                      tuple([tensor.placements for tensor in inputs]),
                      tuple(inputs[0].device_mesh.shape))
    straight = restore(text, plan.steps, precision)._straight
    order = None if plan.order == tuple(range(len(inputs))) else plan.order
    if len(_quick) >= _MOST_PLANS:
        _quick.clear()
    _quick[key] = _Quick(straight, order, plan.steps, tuple([each._spec for each in results]),
                         [tensor._local_tensor.shape for tensor in inputs])


def _dispatch(kind: type, function: Any, types: Any, args: tuple[Any, ...],
              kwargs: dict[str, Any] | None) -> list[DTensor]:
    """torch.ops.ogive.run below autograd, where one of the inputs is a DTensor."""
    names = ("inputs", "formula", "steps", "precision")
    given = {"steps": "", "precision": "float32", **dict(zip(names, args)), **(kwargs or {})}
    inputs, text, steps, precision = (given[name] for name in names)
    key = _key(inputs, text, steps, precision)
    found = _quick.get(key)
    if found is not None and sums() == "any" and found.shapes == [
            tensor._local_tensor.shape for tensor in inputs]:
        results = run([inputs[i]._local_tensor for i in found.order or range(len(inputs))], text,
                      found.steps, precision)
        return [_make(result, spec) for result, spec in zip(results, found.specs)]
    if sums() == "one":
        from . import _alone
        return _alone.run_alone(inputs, text, steps, precision,
                                lambda *call: _run_parts(*call)[0])
    if torch.is_inference_mode_enabled():  # which may have left out what is above autograd
        staged = _run_in_stages(inputs, text, steps, precision)
        if staged is not None:
            return staged
    results, nothing_moved = _run_parts(inputs, text, steps, precision)
    if key is not None and nothing_moved:
        _remember(key, inputs, text, steps, precision, results)
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
    reduced: tuple[tuple[str, Placement], ...]  # cuts that are not made whole, but divided
    stages: tuple[_Stage, ...]
    cost: float


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


def _cut_layouts(formula: _core.Formula, layouts: tuple[Layout, ...],
                 stages: tuple[_Stage, ...]) -> dict[str, Layout]:
    """The whole tensors that stages read: inputs, and values that are reduced between them."""
    known = dict(zip(formula.inputs, layouts))
    for stage in stages[:-1]:
        made = restore(formula.text, stage.steps, formula.precision)
        found = made._infer(*[known[name] for name in stage.inputs])
        known.update(zip([name for name, _ in stage.cuts], found))
    return known


def _plain_stages(formula: _core.Formula, layouts: tuple[Layout, ...], j: int, ranks: int,
                  current: Sequence[Placement], index: int, division: dict[str, Any]) -> _Stages:
    """Inputs as the division says, sums made whole."""
    stages = _write_stages(formula, layouts, index, division)
    wanted = tuple([_as_placement(share) for share in division["inputs"]])
    cost = sum(_moved(p, w, _bytes_of(layout), ranks)
               for p, w, layout in zip(current, wanted, layouts))
    cost += sum(_moved(Partial(), Replicate(), 4 * math.prod(cut["shape"]), ranks)
                for cut in division["cuts"])
    return _Stages(j, wanted, (), stages, cost)


def _scattered(formula: _core.Formula, layouts: tuple[Layout, ...], ranks: int,
               current: Sequence[Placement], division: dict[str, Any],
               plain: _Stages) -> _Stages | None:
    """The same where the last stage alone reads an input that is divided otherwise (a residual,
    by tokens): it stays so, and the sums that meet it are not made whole, but divided as it is:
    a reduce-scatter. None: there is no such input, or no use in that."""
    stages, tail = plain.stages, plain.stages[-1]
    earlier = {name for stage in stages[:-1] for name in stage.inputs}
    late = {name for name, placed, share in zip(formula.inputs, current, division["inputs"])
            if name in tail.inputs and name not in earlier and share == "same"
            and isinstance(placed, Shard)}
    if not late:
        return None
    known = _cut_layouts(formula, layouts, stages)
    wanted = [placed if name in late else want for name, placed, want in zip(
        formula.inputs, current, plain.wanted)]
    now: dict[str, Placement] = dict(zip(formula.inputs, wanted))
    cost = sum(_moved(p, w, _bytes_of(layout), ranks)
               for p, w, layout in zip(current, wanted, layouts))
    for cut in division["cuts"]:
        name = cut["name"]
        now[name] = Partial(cut["share"])
        if name in earlier or name not in tail.inputs:
            cost += _moved(now[name], Replicate(), _bytes_of(known[name]), ranks)
            now[name] = Replicate()
    last = restore(formula.text, tail.steps, formula.precision)
    choice = min(_candidates(last, tuple([known[name] for name in tail.inputs]),
                             [now[name] for name in tail.inputs], ranks), key=lambda c: c.cost)
    reduced = tuple([(name, want) for name, want in zip(tail.inputs, choice.inputs)
                     if isinstance(now[name], Partial) and isinstance(want, Shard)])
    if not reduced:
        return None
    return _Stages(plain.mesh_dim, tuple(wanted), reduced, stages, cost + choice.cost)


@functools.lru_cache(maxsize=_MOST_PLANS)
def _find_stages(text: str, steps: str, precision: str, layouts: tuple[Layout, ...],
                 placements: tuple[Placements, ...], ranks: tuple[int, ...]) -> _Stages | None:
    """None: to run in one stage moves no more."""
    formula = restore(text, steps, precision)
    chosen = _choose(formula, layouts, placements, ranks)
    best: _Stages | None = None
    divisions = _divisions(text, steps, precision, layouts)
    for j, count in enumerate(ranks):
        current = [placed[j] for placed in placements]
        for index, division in enumerate(divisions):
            if division["stages"] < 2 or not _fits(division, count) or not any([
                    isinstance(p, Shard) and p.dim == share
                    for p, share in zip(current, division["inputs"])]):
                continue
            plain = _plain_stages(formula, layouts, j, count, current, index, division)
            for way in (plain, _scattered(formula, layouts, count, current, division, plain)):
                if way is not None and way.cost < chosen[j].cost and (
                        best is None or way.cost < best.cost):
                    best = way
    return best


def _reduced(tensor: DTensor, at: dict[int, Placement]) -> DTensor:
    """With contributions made whole, or on some dims of the mesh placed as at says."""
    return tensor.redistribute(tensor.device_mesh, [
        at.get(j, Replicate()) if isinstance(p, Partial) else p
        for j, p in enumerate(tensor.placements)])


class _Reduce(torch.autograd.Function):
    """Contributions, reduced by DTensor.redistribute(). Its own backward takes, in 2.6 and 2.9,
    a gradient that is contributions itself for the whole: here it is reduced, too. Contributions
    that were divided have the whole gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, at: dict[int, Placement]) -> Any:
        ctx.at = at
        return _reduced(tensor.detach(), at)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        whole = [Replicate() if isinstance(p, Partial) or j in ctx.at else p
                 for j, p in enumerate(grad.placements)]
        return grad.redistribute(grad.device_mesh, whole), None


def _run_stages(inputs: Sequence[DTensor], formula: _core.Formula, found: _Stages) -> list[Tensor]:
    values: dict[str, Tensor] = {}
    for name, tensor, wanted in zip(formula.inputs, inputs, found.wanted):
        placements = list(tensor.placements)
        if placements[found.mesh_dim] != wanted:
            placements[found.mesh_dim] = wanted
            tensor = _redistribute(name, tensor, placements)
        values[name] = tensor
    results: list[Tensor] = []
    divided = dict(found.reduced)
    for stage in found.stages:
        given = [values[name] for name in stage.inputs]
        if stage.cuts and not any(differentiable for _, differentiable in stage.cuts):
            given = [tensor.detach() for tensor in given]
        results = run(given, formula.text, stage.steps, formula.precision)
        for (name, differentiable), result in zip(stage.cuts, results):
            at = {found.mesh_dim: divided[name]} if name in divided else {}
            reduced = _Reduce.apply(result, at)
            values[name] = reduced if differentiable else reduced.detach()
    return results


# Specs of inputs, with the operator's other arguments, that need no stages.
_one_stage: set[Any] = set()


def _run_in_stages(inputs: Sequence[Tensor], text: str, steps: str,
                   precision: str) -> list[Any] | None:
    """None: it is one call."""
    key = _key(inputs, text, steps, precision)
    if key in _one_stage or sums() == "one":
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


# ---- explain ------------------------------------------------------------------------


def _explain_call(given: dict[str, DTensor], text: str, steps: str,
                  precision: str) -> tuple[str, list[DTensor]]:
    """How one call runs, and tensors of its results' layouts and placements, of no value."""
    formula, inputs = restore(text, steps, precision), list(given.values())
    mesh = inputs[0].device_mesh
    layouts = _layouts(inputs, False)
    plan = _make_plan(text, steps, precision, layouts, tuple([t.placements for t in inputs]),
                      tuple(mesh.shape))
    lines, parts = [], []
    for (name, tensor), wanted in zip(given.items(), plan.wanted):
        target = [p if w is None and _is_sum(p) else w or Replicate()
                  for p, w in zip(tensor.placements, wanted)]
        note = " (each process its share)" if None in wanted else ""
        moved = f", made {tuple(target)}" if list(tensor.placements) != target else ""
        lines.append(f"  {name} {tuple(tensor.shape)} {tensor.placements}{moved}{note}")
        parts.append(_empty_part(tensor, target))
    made = []
    for (shape, dtype), placed in zip(infer(formula, inputs), plan.results):
        lines.append(f"  -> {shape} {placed}")
        like = inputs[0].to_local().new_empty(0)
        made.append(_empty(shape, dtype, like, mesh, placed))
    local = restore(text, plan.steps, precision)
    shown = local.explain(*[parts[i] for i in plan.order])
    return "\n".join(lines) + "\n" + shown, made


def _empty_part(tensor: DTensor, placements: Sequence[Placement]) -> Tensor:
    """Memory of the size of this process's part."""
    return _empty(tensor.shape, tensor.dtype, tensor.to_local(), tensor.device_mesh,
                  placements).to_local()


def _empty(shape: Sequence[int], dtype: torch.dtype, like: Tensor, mesh: Any,
           placements: Sequence[Placement]) -> DTensor:
    local, _ = compute_local_shape_and_global_offset(tuple(shape), mesh, list(placements))
    return DTensor.from_local(like.new_empty(tuple(local), dtype=dtype), mesh, list(placements),
                              run_check=False, shape=torch.Size(shape),
                              stride=_contiguous_strides(shape))


def _explain_parts(formula: _core.Formula, inputs: Sequence[Any]) -> str:
    """How a formula of DTensors is divided, what is moved, and what this process runs."""
    text, steps, precision = formula.text, formula.steps, formula.precision
    given = [tensor.detach() for tensor in _as_dtensors(formula, _operator._as_tensors(inputs))]
    mesh = given[0].device_mesh
    lines = f"on {mesh.size()} processes, {tuple(mesh.shape)}\n"
    found = _find_stages(text, steps, precision, _layouts(given, False),
                         tuple([tensor.placements for tensor in given]), tuple(mesh.shape))
    values = dict(zip(formula.inputs, given))
    if found is None:
        return lines + _explain_call(values, text, steps, precision)[0]
    for (name, tensor), wanted in zip(list(values.items()), found.wanted):
        placed = list(tensor.placements)
        if placed[found.mesh_dim] != wanted:
            placed[found.mesh_dim] = wanted
            lines += f"  {name} {tensor.placements}, made {tuple(placed)}\n"
            values[name] = _empty(tensor.shape, tensor.dtype, tensor.to_local(), mesh, placed)
    divided = dict(found.reduced)
    for number, stage in enumerate(found.stages):
        shown, made = _explain_call({name: values[name] for name in stage.inputs}, text,
                                    stage.steps, precision)
        lines += f"stage {number}\n{shown}"
        for (name, _), value in zip(stage.cuts, made):
            placed = [Replicate() if isinstance(p, Partial) else p for p in value.placements]
            placed[found.mesh_dim] = divided.get(name, placed[found.mesh_dim])
            lines += f"reduced: {name} {value.placements}, made {tuple(placed)}\n"
            values[name] = _empty(value.shape, value.dtype, value.to_local(), mesh, placed)
    return lines


torch.library.register_torch_dispatch("ogive::run", DTensor, _dispatch, lib=_operator.library)
_operator.run_in_stages = _run_in_stages
_operator.run_quick = _run_quick
_operator.explain_parts = _explain_parts
