"""The division of a network's wide layers in pairs among the blocks of grid-pairs-bf16 (kernels/grid/grid_pairs.cu).

A block has some outputs of a layer with all their inputs. In a pair it also has the weights from these outputs to all
outputs of the layer above. Counts are of float32 numbers, as in grid_plan.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from common.problem import Problem
from stages.engine.workspace import MOST_ELEMENTS
from stages.persistent.grid_plan import (
    ALL_L2_BYTES_PER_CYCLE,
    ALL_PARTS,
    BARRIER_CYCLES,
    EDGE,
    L2_BYTES_PER_CYCLE,
    LINE,
    STEP,
    TASK,
    TASK_CYCLES,
    THREADS,
    TILE,
    GridPlan,
    LayerPlan,
    Sizes,
    floats_of,
    product_cycles,
    up,
)
from stages.persistent.messages_plan import MOST_SHARED_BYTES

MOST_BLOCKS = 132
CUTS = 2, 4, 8  # slices of the first layer's inputs, if it is alone
MOST_OUTPUTS = 512  # of a tile: biases that threads load at once
LOAD_CYCLES = 900  # until the first numbers arrive from L2
SUM_CYCLES = 1_500  # of a phase of sums, besides their bytes
NARROW = 64  # outputs of each layer where a warp takes a row through the tail
WARP_CYCLES = 10  # of its product, for each input forward and each output backward
ROW_CYCLES = 500  # of a row's layer or softmax in the tail, besides its weights

Group = tuple[int, ...]  # a layer, or a pair of neighbours


class PairsPlan(GridPlan):
    """A division in groups of layers: alone, or two of which the upper one is summed over blocks."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """The wide layers, by groups."""
        lower = [index for index, layer in enumerate(self.layers[: self.sizes.wide]) if layer.kept_at < 0]
        return tuple(tuple(range(a, b)) for a, b in itertools.pairwise([*lower, self.sizes.wide]))

    @property
    def barriers(self) -> int:
        """Grid barriers of a step."""
        summed = sum(len(group) == 2 or self.layers[group[0]].slices > 1 for group in self.groups[:-1])
        return 1 + len(self.groups) + summed + 2 * len(self.groups[1:])

    def product_cycles(self, blocks: int) -> float:
        """Approximate cycles of all phases of a step, without barriers."""
        return _cycles(self, blocks)


@functools.lru_cache(maxsize=256)
def _plan(problem: Problem, steps: int, blocks: int, shared_bytes: int, parts: int) -> PairsPlan | None:
    rows, fitting = up(problem.batch_size, EDGE), list[PairsPlan]()
    whole = [LayerPlan(layer.fan_in, layer.fan_out, 0, 0) for layer in problem.layers]
    for groups in _groupings(len(whole)):
        wide = groups[-1][-1] + 1
        for tiles in itertools.product(*(_tiles(whole, group, blocks) for group in groups)):
            layers = [*itertools.chain(*tiles), *whole[wide:]]
            least = floats_of(rows, layers[0].tile_k) + sum(
                floats_of(a.tile_k, a.tile_n, ALL_PARTS) for a in layers[:wide]
            )
            if 4 * least > shared_bytes:
                continue
            for buffers in (2, 1):
                plan = _place(problem, steps, rows, buffers, groups, layers, parts, blocks)
                numbers = max(math.prod(plan.images_shape), plan.workspace)
                if plan.shared_bytes <= shared_bytes and numbers <= MOST_ELEMENTS:
                    fitting.append(plan)
                    break
    return min(fitting, key=lambda plan: _cycles(plan, blocks) + BARRIER_CYCLES * plan.barriers, default=None)


def make_plan(
    problem: Problem,
    steps: int,
    weights: Sequence[int],
    biases: Sequence[int],
    blocks: int,
    shared_bytes: int,
    parts: int = 1,
    chunks: tuple[int, ...] = (),  # noqa: ARG001
) -> PairsPlan | None:
    """The fastest division among `blocks` blocks with `shared_bytes` each; None if none fits.

    The other arguments are those of `grid_plan.make_plan`.
    """
    plan = _plan(problem, steps, blocks, shared_bytes, parts)
    if plan is None:
        return None
    placed = zip(plan.layers, weights, biases, strict=True)
    return replace(plan, layers=tuple(replace(layer, weight=weight, bias=bias) for layer, weight, bias in placed))


def misfit(problem: Problem, steps: int, parts: int) -> str:
    """Why a problem fits no GPU, as a sentence; empty if it fits some."""
    if not problem.hidden:
        return "Needs at least one hidden layer."
    if _plan(problem, steps, MOST_BLOCKS, MOST_SHARED_BYTES, parts):
        return ""
    layers = ",".join(map(str, problem.hidden))
    return f"Hidden layers {layers} at batch size {problem.batch_size:,} do not fit {MOST_BLOCKS} multiprocessors."


def _groupings(layers: int) -> Iterator[tuple[Group, ...]]:
    """Groups of the first layers, of which the last is a pair; the other layers are the tail."""
    for sizes in itertools.chain(*(itertools.product((1, 2), repeat=count) for count in range(1, layers + 1))):
        ends = list(itertools.accumulate(sizes))
        if sizes[-1] == 2 and ends[-1] <= layers:
            yield tuple(tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True))


def _tiles(layers: list[LayerPlan], group: Group, blocks: int) -> Iterator[tuple[LayerPlan, ...]]:
    """The group's layers with the fewest outputs a block, and with up to twice as many."""
    lower, edge = layers[group[0]], EDGE if len(group) == 2 or group[0] else TILE
    least = up(-(-lower.outputs // blocks), edge)
    for outputs in range(least, min(2 * least, up(lower.outputs, edge), MOST_OUTPUTS) + 1, edge):
        inputs, columns = up(lower.inputs, EDGE), -(-lower.outputs // outputs)
        if columns > blocks:
            continue
        tiled = replace(lower, tile_k=inputs, tile_n=outputs, slices=1, columns=columns)
        above = (replace(layers[at], tile_k=outputs, slices=columns, columns=1) for at in group[1:])
        yield (tiled, *(replace(each, tile_n=up(each.outputs, EDGE)) for each in above))
        for slices in CUTS if group == (0,) else ():
            tile_k = up(-(-lower.inputs // slices), EDGE)
            if (cut := replace(tiled, tile_k=tile_k, slices=-(-lower.inputs // tile_k))).tiles <= blocks:
                yield (cut,)


def _cycles(plan: PairsPlan, blocks: int) -> float:
    """Approximate cycles of all phases of a step, without barriers."""
    rows, parts, total = plan.sizes.rows, plan.parts, 0.0

    def read(numbers: int) -> float:
        return 2 * parts * numbers / L2_BYTES_PER_CYCLE + LOAD_CYCLES

    def summed(numbers: int) -> float:  # written and read by all blocks
        return 2 * 4 * numbers / ALL_L2_BYTES_PER_CYCLE

    for group in plan.groups:
        lower, *upper = (plan.layers[at] for at in group)
        is_first, is_last = group[0] == 0, group[-1] == plan.sizes.wide - 1
        of_inputs = 1 if is_first else parts
        total += product_cycles(rows, lower.tile_n, lower.tile_k, of_inputs, parts)
        total += read(rows * (upper[0] if upper else lower).tile_n)
        update = product_cycles(lower.tile_k, lower.tile_n, rows, of_inputs, parts)
        if lower.slices > 1:
            total += summed(rows * lower.tile_n * lower.tiles) + SUM_CYCLES
        for layer in upper:
            total += product_cycles(rows, layer.tile_n, layer.tile_k, parts, parts)
            total += product_cycles(rows, layer.tile_k, layer.tile_n, parts, parts)
            total += summed(rows * layer.tile_n * layer.slices) + (0.0 if is_last else SUM_CYCLES)
            update += product_cycles(layer.tile_k, layer.tile_n, rows, parts, parts)
        if is_first:
            total += update + (2 - plan.sizes.buffers) * read(rows * lower.tile_k)
        else:
            total += read(rows * lower.tile_k) + product_cycles(rows, lower.tile_k, lower.tile_n, parts, parts)
            total += summed(rows * lower.tile_k * lower.columns) + SUM_CYCLES + max(0.0, update - BARRIER_CYCLES)
    last, tail, each = plan.layers[plan.sizes.wide - 1], plan.layers[plan.sizes.wide :], -(-rows // blocks)
    weights = sum(layer.inputs * layer.outputs for layer in tail)
    sums = 4 * each * last.slices * last.tile_n * last.columns / L2_BYTES_PER_CYCLE + SUM_CYCLES
    total += max(sums, read(2 * weights))
    if max(layer.outputs for layer in (last, *tail)) <= NARROW:  # rows at once
        total += ROW_CYCLES + WARP_CYCLES * sum(layer.inputs + layer.outputs for layer in tail)
    else:
        total += each * (weights / 16 + ROW_CYCLES * (1 + 2 * len(tail)))
    tasks = _tasks(tail)
    return total + (TASK_CYCLES * -(-tasks // blocks) if plan.sizes.helpers == blocks else 0.0)


def _tasks(tail: Sequence[LayerPlan]) -> int:
    return sum(-(-layer.outputs // TASK) * -(-layer.inputs // TASK) for layer in tail)


def _place(
    problem: Problem,
    steps: int,
    rows: int,
    buffers: int,
    groups: tuple[Group, ...],
    layers: list[LayerPlan],
    parts: int,
    blocks: int,
) -> PairsPlan:
    """The plan with all offsets."""
    wide, space, placed = groups[-1][-1] + 1, 0, list[LayerPlan]()
    for layer, above in zip(layers, [*layers[1:], layers[-1]], strict=True):
        stride = max(up(layer.outputs, STEP), layer.columns * layer.tile_n, above.slices * above.tile_k)
        size = rows * stride // (2 if parts == 1 else 1)  # of Passed, in kernels/grid/tile_product.cuh
        placed.append(replace(layer, output=space, doutput=space + size, stride=stride))
        space += 2 * size
    sums = [
        rows * la.slices * la.columns * max(la.tile_n, la.tile_k if at else 0) for at, la in enumerate(placed[:wide])
    ]

    at = 0
    lower, upper = [group[0] for group in groups], [group[1] for group in groups if len(group) == 2]
    for index, layer in enumerate(placed[:wide]):
        placed[index] = layer = replace(layer, weight_at=at)
        at += floats_of(layer.tile_k, layer.tile_n, ALL_PARTS)
        if index in upper:
            placed[index] = replace(layer, kept_at=at)
            at += floats_of(rows, layer.tile_k, parts)
        elif layer.slices == 1:
            placed[index] = replace(layer, bias_at=at)
            at = up(at + layer.tile_n, LINE)
    dinputs_at = at
    at += max(floats_of(rows, placed[index].tile_k, parts) for index in upper)
    images_at = at
    at += buffers * floats_of(rows, placed[0].tile_k)
    inputs_at = at
    taken = [placed[index].tile_k for index in lower[1:]]
    doutputs_at = at + max(floats_of(rows, cols, parts) for cols in (TASK, *taken))
    given = [placed[group[-1]].tile_n for group in groups]
    end = doutputs_at + max(floats_of(rows, cols, parts) for cols in (TASK, *given))

    each, vectors = -(-problem.batch_size // blocks), sum(layer.inputs for layer in placed[wide:]) + problem.classes
    scratch_at = inputs_at + up(each * 2 * vectors, 4)
    stash_at = scratch_at + THREADS
    at = stash_at + each * placed[wide - 1].columns * placed[wide - 1].tile_n
    for index, layer in enumerate(placed[wide:], wide):
        at = up(at, LINE)
        placed[index] = replace(layer, weight_at=at)
        at += up(layer.inputs * layer.outputs, 4)
    idle = blocks - placed[wide - 1].tiles  # while the last group is updated
    sizes = Sizes(
        wide, problem.batch_size, rows, rows, 1, space, images_at, inputs_at, doutputs_at, end, inputs_at, scratch_at,
        idle or blocks, buffers, blocks, dinputs_at, stash_at,
    )  # fmt: skip
    return PairsPlan(steps, sizes, tuple(placed), space + max(sums), 4 * max(end, at), parts)
