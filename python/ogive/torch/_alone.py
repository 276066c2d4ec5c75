# SPDX-License-Identifier: MIT
"""Formulas of DTensors that give the bits of one process: set_sums("one").

What a process has of a sum is a number of blocks, as one process adds them (plan.h: runs, chunks,
blocks of k). The sum is cut where it is made; each process sums its blocks one by one, all are
gathered by DTensor.redistribute(), and every process adds them in the plan's order. Where borders
between parts are not borders between blocks, or a part would be added in another order than the
whole, inputs are gathered instead.

Whether blocks allow it is read off plans for the whole inputs, and for one block of them, both
contiguous: off shapes and placements alone, so that every process decides the same.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from .. import _core
from ._operator import run
from ._orders import Layout, Sum, find_sums, part_sizes, products_of, with_part
from ._sharded import (Placements, _as_dtensors, _as_placement, _bytes_of, _contiguous_strides,
                       _cut_layouts, _fits, _layouts, _make_plan, _moved, _redistribute, _Stage,
                       _write_stages)
from ._shapes import infer
from ._text import make, restore

_AT_SUMS = 1 << 30  # OGIVE_AT_SUMS
_LANES, _CHUNK, _RUN = 512, 16384, 64  # plan.h
_BLOCK, _GROUP = 256, 4096
_ROWS, _COLUMNS, _BEHIND = 1, 2, 3  # ogive_order

Add = Callable[[Sequence[Tensor]], Tensor]


# ---- plan.h's orders, of blocks' sums ------------------------------------------------


def _add_sequence(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _add_tree(parts: Sequence[Tensor]) -> Tensor:
    while len(parts) > 1:
        pairs = [parts[i] + parts[i + 1] for i in range(0, len(parts) - 1, 2)]
        parts = pairs + list(parts[2 * len(pairs):])
    return parts[0]


def _add_rows(parts: Sequence[Tensor]) -> Tensor:
    """Sums of chunks: at most _CHUNK of them, a row of one chunk."""
    return _add_tree([_add_sequence(parts[lane::_LANES])
                      for lane in range(min(len(parts), _LANES))])


def _add_runs(parts: Sequence[Tensor], length: int) -> Tensor:
    """Sequences of so many, again and again."""
    while len(parts) > 1:
        parts = [_add_sequence(parts[i:i + length]) for i in range(0, len(parts), length)]
    return parts[0]


def _add_columns(parts: Sequence[Tensor]) -> Tensor:
    return _add_runs(parts, _RUN)


def _add_blocks(parts: Sequence[Tensor]) -> Tensor:
    """Sums of a product's blocks of k, in groups."""
    size = _GROUP // _BLOCK
    return _add_sequence([_add_sequence(parts[i:i + size]) for i in range(0, len(parts), size)])


def _powers(least: int, most: int) -> list[int]:
    """least times powers of two, falling."""
    found = [least]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found[::-1]


def _block_sizes(order: int, n: int) -> list[tuple[int, Add]]:
    """In elements of a sum of n, the largest first, each with how their sums are added."""
    if order == _COLUMNS:
        return [(size, _add_columns) for size in (_RUN ** 4, _RUN ** 3, _RUN ** 2, _RUN) if size < n]
    least, tree = (_CHUNK, _LANES) if order == _ROWS else (_RUN, _RUN)
    if n <= tree:  # each lane has one element
        return [(size, _add_tree) for size in _powers(2, n)]
    if n <= least:
        return []
    count = -(-n // least)
    if count <= _LANES:
        return [(size, _add_tree) for size in _powers(least, n)]
    return [(least, _add_rows)] if count <= _CHUNK else []


# ---- where blocks allow it -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """How a stage's sums over the divided index are added."""
    size: int  # of a block, along the index
    add: Add


def _check_product(formula: _core.Formula, layouts: Sequence[Layout], dims: Sequence[int | None],
                   extent: int, size: int) -> bool:
    """Whether products over the index are the stage's only sums over it: of a block they are
    shorter, and others as they are."""
    whole, block = (products_of(formula, with_part(layouts, dims, length))
                    for length in (extent, size))
    if -1 in whole or len(whole) != len(block):
        return False
    if find_sums(formula, layouts) != find_sums(formula, with_part(layouts, dims, size)):
        return False
    return any([k == extent and of_block == size for k, of_block in zip(whole, block)]) and all(
        [of_block == (size if k == extent else k) for k, of_block in zip(whole, block)])


def _check_sum(formula: _core.Formula, layouts: Sequence[Layout], dims: Sequence[int | None],
               extent: int, size: int) -> bool:
    """Whether one sum, whose slowest dim is the index, is the stage's only one over it."""
    of_whole = find_sums(formula, layouts)
    # A dim of 1 vanishes from the plan, the slowest or not, and a value that the plan keeps lies
    # close together whatever dim is shorter: of these nothing is known.
    if size == 1 and any(dims) or of_whole[0].lead < 0 and of_whole[0].order != _BEHIND:
        return False
    for length in {size, extent % size or size}:
        block = with_part(layouts, dims, length)
        if products_of(formula, layouts) != products_of(formula, block):
            return False
        of_block = find_sums(formula, block)
        if len(of_block) != 1 or of_whole[0].extents[0] * length % extent:
            return False
        slowest = of_whole[0].extents[0] * length // extent
        if of_block[0] != of_whole[0]._replace(extents=(slowest, *of_whole[0].extents[1:])):
            return False
    return True


def _find_blocks(formula: _core.Formula, layouts: Sequence[Layout], dims: Sequence[int | None],
                 extent: int, ranks: int, sums: int) -> _Blocks | None:
    """None: parts are not made of blocks, or the stage, which has so many sums over the index,
    is none of those that are known."""
    part = -(-extent // ranks)
    ways: list[tuple[int, Add]] = [(_GROUP, _add_sequence), (_BLOCK, _add_blocks)]
    for size, add in ways:
        if part % size == 0 and _check_product(formula, layouts, dims, extent, size):
            return _Blocks(size, add)
    found = find_sums(formula, layouts)
    if sums != 1 or len(found) != 1:
        return None
    n = math.prod(found[0].extents)
    inner = n // extent
    for elements, add in _block_sizes(found[0].order, n) if n % extent == 0 else ():
        size = elements // inner
        if elements % inner == 0 and part % size == 0 and _check_sum(formula, layouts, dims, extent,
                                                                     size):
            return _Blocks(size, add)
    return None


@dataclasses.dataclass(frozen=True)
class _Step:
    """A stage, and how its sums are added; None: it has none."""
    stage: _Stage
    dims: tuple[int | None, ...]  # of its inputs, along which they are parts
    blocks: _Blocks | None
    shapes: tuple[tuple[int, ...], ...]  # of its results


@dataclasses.dataclass(frozen=True)
class _Way:
    """One index is divided on one dim of the mesh; on others every process has everything."""
    mesh_dim: int
    extent: int
    wanted: tuple[Placements, ...]
    steps: tuple[_Step, ...]
    reduced: dict[str, str]  # cuts that are maxima or minima
    result: Any  # int | str, as a division has it
    cost: float


def _names_of(sums: Sequence[Sum], inputs: Sequence[str], known: Sequence[str]) -> set[Any]:
    """With the lead's name, if it is an input of the whole formula. That exponentials are summed
    does not matter: there is one chunk."""
    return {(each.order, each.extents, inputs[each.lead]
             if each.lead >= 0 and inputs[each.lead] in known else "") for each in sums}


def _is_one_chunk(each: Sum) -> bool:
    """Whether exponentials are summed by one maximum, as they are where they are cut, and squares
    by one mean."""
    return not each.exponentials or math.prod(each.extents) <= (
        _CHUNK if each.order == _ROWS else _RUN)


def _keeps_sums(formula: _core.Formula, layouts: Sequence[Layout],
                parts: Sequence[tuple[_core.Formula, Sequence[Layout]]]) -> bool:
    """Whether each part of a formula adds as the whole formula does."""
    known = formula.inputs
    whole = _names_of(find_sums(formula, layouts), known, known)
    return all([_names_of(find_sums(part, given), part.inputs, known) <= whole
                for part, given in parts])


def _make_steps(formula: _core.Formula, layouts: tuple[Layout, ...], index: int, ranks: int,
                division: dict[str, Any]) -> list[_Step] | None:
    """None: some stage would add in another order than the whole formula."""
    stages = _write_stages(formula, layouts, index + _AT_SUMS, division)
    known = _cut_layouts(formula, layouts, stages)
    made = [restore(formula.text, stage.steps, formula.precision) for stage in stages]
    given = [tuple([known[name] for name in stage.inputs]) for stage in stages]
    if not _keeps_sums(formula, layouts, list(zip(made, given))):
        return None
    along = {name: share if isinstance(share, int) else None
             for name, share in zip(formula.inputs, division["inputs"])}
    steps, extent = [], division["extent"]
    for number, stage in enumerate(stages):
        shares = [cut["share"] for cut in division["cuts"] if cut["stage"] == number]
        shares = shares or [division["results"][0]]
        dims = tuple([along.get(name) for name in stage.inputs])
        blocks = None
        if "sum" in shares:
            blocks = _find_blocks(made[number], given[number], dims, extent, ranks, len(shares))
            if blocks is None or any(share != "sum" for share in shares):
                return None
        else:
            whole = find_sums(made[number], given[number])
            if any([whole != find_sums(made[number], with_part(given[number], dims, size))
                    for size in part_sizes(extent, ranks)]):
                return None
        shapes = tuple([shape for shape, _ in made[number]._infer(*given[number])])
        steps.append(_Step(stage, dims, blocks, shapes))
    return steps


def _is_float32(formula: _core.Formula, layouts: Sequence[Layout]) -> bool:
    return all([layout[1] == "float32" for layout in layouts]) and not any(
        [name in formula.text or name in formula.steps for name in ("float16", "float64")])


def _way_cost(steps: Sequence[_Step], extent: int, ranks: int) -> float:
    """Bytes of sums that a process receives."""
    counts = [(-(-extent // step.blocks.size) if step.blocks else 0, step.shapes) for step in steps]
    return sum(4 * count * math.prod(shape) * (ranks - 1) / ranks
               for count, shapes in counts for shape in shapes)


@functools.lru_cache(maxsize=4096)
def _find_way(text: str, steps: str, precision: str, layouts: tuple[Layout, ...],
              placements: tuple[Placements, ...], ranks: tuple[int, ...]) -> _Way | None:
    """The way by blocks that moves the fewest bytes; None: there is none."""
    formula = restore(text, steps, precision)
    if not _is_float32(formula, layouts) or not all(
            [_is_one_chunk(each) for each in find_sums(formula, layouts)]):
        return None
    best: _Way | None = None
    for index, division in enumerate(formula._divisions_at_sums(*layouts)):
        shares = [*division["results"], *(cut["share"] for cut in division["cuts"])]
        for j, count in enumerate(ranks):
            if "sum" not in shares or not _fits(division, count) or not any([
                    placed[j] == _as_placement(share) and isinstance(share, int)
                    for placed, share in zip(placements, division["inputs"])]):
                continue
            made = _make_steps(formula, layouts, index, count, division)
            if made is None:
                continue
            wanted = tuple([tuple([_as_placement(share) if i == j else Replicate()
                                   for i in range(len(ranks))]) for share in division["inputs"]])
            cost = _way_cost(made, division["extent"], count) + sum(
                _moved(placed[i], want[i], _bytes_of(layout), ranks[i]) for placed, want, layout
                in zip(placements, wanted, layouts) for i in range(len(ranks)))
            if best is None or cost < best.cost:
                best = _Way(j, division["extent"], wanted, tuple(made), {
                    cut["name"]: cut["share"] for cut in division["cuts"]
                    if cut["share"] != "sum"}, division["results"][0], cost)
    return best


# ---- running -------------------------------------------------------------------------


def _gather(blocks: Tensor, mesh: Any, mesh_dim: int, count: int) -> tuple[Tensor, ...]:
    """All processes' blocks, of which there are count."""
    placed = [Shard(0) if i == mesh_dim else Replicate() for i in range(mesh.ndim)]
    shape = torch.Size([count, *blocks.shape[1:]])
    apart = DTensor.from_local(blocks, mesh, placed, run_check=False, shape=shape,
                               stride=_contiguous_strides(shape))
    whole: Tensor = apart.redistribute(mesh, [Replicate()] * mesh.ndim).to_local()
    return tuple(whole.unbind(0))


def _run_blocks(step: _Step, inputs: Sequence[Tensor], formula: _core.Formula, way: _Way,
                mesh: Any) -> list[Tensor]:
    """The sums of a stage, which every process then has."""
    assert step.blocks is not None
    size = step.blocks.size
    length = next(tensor.shape[dim] for tensor, dim in zip(inputs, step.dims) if dim is not None)
    found: list[list[Tensor]] = [[] for _ in step.shapes]
    for start in range(0, length, size):
        block = [tensor if dim is None else tensor.narrow(dim, start, min(size, length - start))
                 for tensor, dim in zip(inputs, step.dims)]
        for results, result in zip(found, run(block, formula.text, step.stage.steps,
                                              formula.precision)):
            results.append(result)
    count = -(-way.extent // size)
    return [step.blocks.add(_gather(
        torch.stack(results) if results else inputs[0].new_empty((0, *shape)), mesh, way.mesh_dim,
        count)) for results, shape in zip(found, step.shapes)]


def _run_way(given: Sequence[DTensor], formula: _core.Formula, way: _Way) -> DTensor:
    mesh = given[0].device_mesh
    values = {name: _redistribute(name, tensor, wanted).to_local().contiguous()
              for name, tensor, wanted in zip(formula.inputs, given, way.wanted)}

    def placed(share: int | str) -> list[Any]:
        return [_as_placement(share) if i == way.mesh_dim else Replicate()
                for i in range(mesh.ndim)]

    results: Sequence[Tensor] = ()
    for step in way.steps:
        inputs = [values[name] for name in step.stage.inputs]
        results = (_run_blocks(step, inputs, formula, way, mesh) if step.blocks else
                   run(inputs, formula.text, step.stage.steps, formula.precision))
        for (name, _), result in zip(step.stage.cuts, results):
            if name in way.reduced:
                result = DTensor.from_local(result, mesh, placed(way.reduced[name]),
                                            run_check=False).full_tensor()
            values[name] = result
    shape = torch.Size(infer(formula, given)[0][0])
    return DTensor.from_local(results[0], mesh, placed("same" if way.result == "sum" else way.result),
                              run_check=False, shape=shape, stride=_contiguous_strides(shape))


@functools.lru_cache(maxsize=4096)
def _find_results(text: str, steps: str, precision: str,
                  layouts: tuple[Layout, ...]) -> tuple[_core.Formula, ...] | None:
    """A formula of several results as one for each; None: they would add in other orders."""
    formula = restore(text, steps, precision)
    made = tuple([make(formula, [str(result)]) for result in range(formula.results)])
    known = dict(zip(formula.inputs, layouts))
    parts = [(part, [known[name] for name in part.inputs]) for part in made]
    return made if _keeps_sums(formula, layouts, parts) else None


def _run_one(given: Sequence[DTensor], text: str, steps: str, precision: str,
             gather: Callable[..., list[DTensor]]) -> list[DTensor]:
    """gather: runs the formula on parts and whole inputs."""
    formula = restore(text, steps, precision)
    layouts = _layouts(given, True)
    placements = tuple([tensor.placements for tensor in given])
    ranks = tuple(given[0].device_mesh.shape)
    plan = _make_plan(text, steps, precision, layouts, placements, ranks, True)
    if formula.results > 1 and plan.cost > 0:
        parts = _find_results(text, steps, precision, layouts)
        if parts is not None:
            known = dict(zip(formula.inputs, given))
            return [_run_one([known[name] for name in part.inputs], part.text, part.steps,
                             part.precision, gather)[0] for part in parts]
    way = None
    if formula.results == 1 and plan.cost > 0:
        way = _find_way(text, steps, precision, layouts, placements, ranks)
    if way is None or way.cost > plan.cost:
        return gather(given, text, steps, precision)
    return [_run_way(given, formula, way)]


def run_alone(inputs: Sequence[Tensor], text: str, steps: str, precision: str,
              gather: Callable[..., list[DTensor]]) -> list[DTensor]:
    formula = restore(text, steps, precision)
    given = [tensor.detach() for tensor in _as_dtensors(formula, inputs)]
    return _run_one(given, text, steps, precision, gather)
