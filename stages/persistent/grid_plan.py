"""The division of a network among the blocks of persistent-grid: tiles of layers, and the place of everything.

Counts are of float32 numbers unless said; a number's part in a tile is half as large (kernels/tile_product.cuh). The
cycles are rough estimates that rank tiles.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

from common.problem import Problem
from stages.engine.workspace import MOST_ELEMENTS

THREADS, WARPS = 512, 16  # persistent_grid.cu
EDGE, TILE = 16, 8  # a fragment's rows, also its k; its columns
ALL_PARTS = 3  # bfloat16 summands of a float32
RUN = 16  # 16-bit numbers; a tile's row is an odd number of runs
TASK = 32  # outputs or inputs of a task: a tile of weights that no block owns
MOST_K, MOST_N = 512, 256  # limits of a tile's inputs and outputs
CHUNK = 64  # rows of a batch in shared memory if the whole batch does not fit
STEP = 1 << 5  # outputs; tensors' rows are padded to a multiple
LINE = 32  # alignment of copies to shared memory, where 16 bytes further each needs two writes; and of networks

BARRIER_CYCLES = 1_900
L2_BYTES_PER_CYCLE = 40  # one block's reads, when all blocks read
ALL_L2_BYTES_PER_CYCLE = 2_700
SHARES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.42, 0.36, 0.3)  # of shared memory for a layer's tiles, tried in turn
PRODUCT_CYCLES = 6.5  # of an instruction on one of four tensor cores
TASK_CYCLES = 2_000  # of a task
STEP_CYCLES = 100  # of sixteen k: loads and dependent products


@dataclass(frozen=True)
class Sizes:
    """`struct Plan` of persistent_grid, field by field."""

    wide: int
    batch: int
    rows: int
    chunk: int
    held: int
    partials: int
    images_at: int
    inputs_at: int
    doutputs_at: int
    weights_at: int
    vectors_at: int
    scratch_at: int
    helpers: int
    buffers: int = 2
    blocks: int = 0
    dinputs_at: int = 0
    stash_at: int = 0


@dataclass(frozen=True)
class LayerPlan:
    """`struct Layer` of persistent_grid, field by field."""

    inputs: int
    outputs: int
    weight: int
    bias: int
    tile_k: int = 0
    tile_n: int = 0
    slices: int = 0
    columns: int = 0
    output: int = 0
    doutput: int = 0
    stride: int = 0
    weight_at: int = -1
    bias_at: int = -1
    kept_at: int = -1

    @property
    def tiles(self) -> int:
        """Number of tiles of the weights."""
        return self.slices * self.columns


@dataclass(frozen=True)
class GridPlan:
    """A division: the kernel's parameters and its memory."""

    steps: int
    sizes: Sizes
    layers: tuple[LayerPlan, ...]
    workspace: int
    shared_bytes: int
    parts: int

    @property
    def barriers(self) -> int:
        """Grid barriers of a step."""
        return 4 * self.sizes.wide - 2

    def product_cycles(self, blocks: int) -> float:
        """Approximate cycles of the wide layers' products in a step, in `blocks` blocks."""
        return sum(
            _tile_cycles(layer, self.sizes.rows, blocks, self.parts, is_first=index == 0)
            for index, layer in enumerate(self.layers[: self.sizes.wide])
        )

    @property
    def images_shape(self) -> tuple[int, int, int, int]:
        """(steps, slices, rows, tile_k): the images in the order of the first layer's tiles."""
        first = self.layers[0]
        return self.steps, first.slices, self.sizes.rows, first.tile_k

    @property
    def macros(self) -> tuple[tuple[str, str], ...]:
        """The kernel's macros."""
        layers = itertools.chain(*map(astuple, self.layers))
        plan, of_layers = (",".join(map(str, numbers)) for numbers in (astuple(self.sizes), layers))
        return ("PARTS", str(self.parts)), ("PLAN", plan), ("LAYERS", of_layers)


def make_plan(
    problem: Problem,
    steps: int,
    weights: list[int],
    biases: list[int],
    blocks: int,
    shared_bytes: int,
    parts: int = ALL_PARTS,
    chunks: tuple[int, ...] = (),
) -> GridPlan | None:
    """The division among `blocks` blocks with `shared_bytes` each; None if not even small tiles fit.

    `weights` and `biases` are the begins of the layers' parameters, `parts` the bfloat16 parts of a factor, `chunks`
    the rows at once of a batch that does not fit beside the tiles of a single wide layer, tried in turn.
    """
    layers = [
        LayerPlan(layer.fan_in, layer.fan_out, weight, bias)
        for layer, weight, bias in zip(problem.layers, weights, biases, strict=True)
    ]
    rows = up(problem.batch_size, EDGE)
    ways = _ways(problem, rows, blocks, chunks)
    for (wide, held, kept, chunk), of_others, of_first in itertools.product(ways, SHARES, SHARES):
        tasks = sum(-(-layer.outputs // TASK) * -(-layer.inputs // TASK) for layer in layers[wide:])
        cut = [
            _cut(layer, rows, chunk, blocks, tasks, held, int(share * shared_bytes / 4), parts, is_first=index == 0)
            for index, (layer, share) in enumerate(zip(layers[:wide], [of_first, *[of_others] * wide], strict=False))
        ]
        if any(layer is None for layer in cut):
            continue
        tiled = [layer for layer in cut if layer is not None] + layers[wide:]
        helpers = _helpers(tiled[0], tasks, blocks, _tile_cycles(tiled[0], rows, blocks, parts, is_first=True))[1]
        plan = _place(problem, steps, rows, chunk, wide, held, kept, tiled, parts, helpers)
        numbers = max(math.prod(plan.images_shape), plan.workspace)
        if plan.shared_bytes <= shared_bytes and numbers <= MOST_ELEMENTS:
            return plan
    return None


def _ways(problem: Problem, rows: int, blocks: int, chunks: tuple[int, ...]) -> Iterator[tuple[int, bool, bool, int]]:
    """(wide layers, tiles held in shared memory, the small layers' weights kept there, rows at once), best first."""
    last = len(problem.layers) - 1
    wides = []
    for wide in range(1, max(last, 1) + 1):
        cycles = sum(_tail_cycles(la.fan_in, la.fan_out, rows, blocks) for la in problem.layers[wide:])
        if wide == max(last, 1) or cycles < (last - wide) * (4 * BARRIER_CYCLES + 4_000):
            wides.append(wide)
    for held, kept in ((True, True), (True, False), (False, True), (False, False)):
        for wide in wides:
            yield wide, held, kept, rows if held else min(rows, CHUNK)
        if held and wides[0] == 1:
            yield from ((1, held, kept, chunk) for chunk in chunks if chunk < rows)


def _tail_cycles(inputs: int, outputs: int, rows: int, blocks: int) -> float:
    """Approximate cycles of a small last layer in a step."""
    size = inputs * outputs
    busy = min(rows, blocks)
    return max(4 * size / L2_BYTES_PER_CYCLE, 4 * size * busy / ALL_L2_BYTES_PER_CYCLE) + -(-rows // blocks) * size / 16


def _helpers(first: LayerPlan, tasks: int, blocks: int, cycles: float) -> tuple[float, int]:
    """Cycles that tasks add to the first layer's, and the blocks that do them: those without a tile, or all."""
    idle = blocks - first.tiles
    by_all = TASK_CYCLES * -(-tasks // blocks), blocks
    return min(by_all, (max(0.0, TASK_CYCLES * -(-tasks // idle) - cycles), idle)) if idle > 0 else by_all


@functools.lru_cache(maxsize=1024)
def _cut(
    layer: LayerPlan,
    rows: int,
    chunk: int,
    blocks: int,
    tasks: int,
    held: bool,
    space: int,
    parts: int,
    *,
    is_first: bool,
) -> LayerPlan | None:
    """The layer cut into the fastest tiles; None if none fit."""
    best: tuple[float, LayerPlan] | None = None
    outputs = TILE if is_first else EDGE  # granularity: other layers' outputs are also summed over in the backward pass
    for tile_k in range(EDGE, min(up(layer.inputs, EDGE), MOST_K) + 1, EDGE):
        for tile_n in range(outputs, min(up(layer.outputs, outputs), MOST_N) + 1, outputs):
            slices, columns = -(-layer.inputs // tile_k), -(-layer.outputs // tile_n)
            if held and slices * columns > blocks:
                continue
            tile = replace(layer, tile_k=tile_k, tile_n=tile_n, slices=slices, columns=columns)
            images = 2 * floats_of(rows, tile_k) if held else floats_of(chunk, tile_k)
            inputs = images if is_first else floats_of(chunk, tile_k, parts)
            taken = floats_of(tile_k, tile_n, ALL_PARTS if held else parts) + inputs + floats_of(chunk, tile_n, parts)
            if taken > space:
                break
            cycles = _tile_cycles(tile, rows, blocks, parts, is_first=is_first)
            cycles += _helpers(tile, tasks, blocks, cycles)[0] if is_first else 0.0
            if best is None or cycles < best[0]:
                best = cycles, tile
    return best[1] if best else None


def _tile_cycles(layer: LayerPlan, rows: int, blocks: int, parts: int, *, is_first: bool) -> float:
    """Approximate cycles of the layer's products in a step."""
    rounds = -(-layer.tiles // blocks)
    of_inputs = 1 if is_first else parts  # a pixel is exact in one part

    forward = product_cycles(rows, layer.tile_n, layer.tile_k, of_inputs, parts)
    backward = 0.0 if is_first else product_cycles(rows, layer.tile_k, layer.tile_n, parts, parts)
    update = product_cycles(layer.tile_k, layer.tile_n, rows, of_inputs, parts)
    reading = 4 * rows * (layer.tile_n + (0 if is_first else layer.tile_k)) / L2_BYTES_PER_CYCLE
    sums = rows * (layer.slices * layer.outputs + (0 if is_first else layer.columns * layer.inputs))
    return (
        rounds * (forward + backward + update + reading) + 8 * sums / ALL_L2_BYTES_PER_CYCLE + 40 * up(layer.slices, 16)
    )


def product_cycles(m: int, n: int, k: int, of_left: int, parts: int) -> float:
    """Approximate cycles of a block's product (m, n) over k, whose left factor has `of_left` parts."""
    down, across = -(-m // EDGE), n // TILE
    beside = 4 if down * across > 2 * WARPS else 2 if down * across > WARPS else 1
    rounds = -(-down * -(-across // beside) // WARPS)
    products = sum(left + right < parts for left in range(of_left) for right in range(parts))
    loads = WARPS * (4 * of_left + 2 * parts * beside)  # 128 bytes of shared memory a cycle
    return rounds * (k // EDGE) * max(4 * beside * products * PRODUCT_CYCLES, loads, STEP_CYCLES)


def _place(
    problem: Problem,
    steps: int,
    rows: int,
    chunk: int,
    wide: int,
    held: bool,
    kept: bool,
    layers: list[LayerPlan],
    parts: int,
    helpers: int,
) -> GridPlan:
    """The plan with all offsets."""
    placed, space = [], 0
    strides = [
        max(up(layer.outputs, STEP), layer.columns * layer.tile_n, above.slices * above.tile_k)
        for layer, above in zip(layers, [*layers[1:], layers[-1]], strict=True)
    ]
    for index, layer in enumerate(layers):
        stride = max(strides[:wide]) if index < wide else strides[index]  # equal layers get equal strides
        size = rows * stride // (2 if parts == 1 else 1)  # of Passed, in kernels/tile_product.cuh
        placed.append(replace(layer, output=space, doutput=space + size, stride=stride))
        space += 2 * size
    partials = space
    sums = [
        rows * layer.slices * layer.columns * max(layer.tile_n, layer.tile_k if index else 0)
        for index, layer in enumerate(placed[:wide])
    ]

    at = 0
    if held:
        for index, layer in enumerate(placed[:wide]):
            placed[index] = replace(layer, weight_at=at)
            at += floats_of(layer.tile_k, layer.tile_n, ALL_PARTS)
    images_at = at
    at += 2 * floats_of(rows, placed[0].tile_k) if held else 0
    inputs_at = at
    inputs = [floats_of(chunk, TASK, parts), THREADS, *(floats_of(chunk, la.tile_k, parts) for la in placed[1:wide])]
    doutputs_at = inputs_at + max([*inputs, 0 if held else floats_of(chunk, placed[0].tile_k)])
    weights_at = doutputs_at + max(
        floats_of(chunk, cols, parts) for cols in (TASK, *(la.tile_n for la in placed[:wide]))
    )
    end = weights_at + (0 if held else max(floats_of(la.tile_k, la.tile_n, parts) for la in placed[:wide]))

    vectors = sum(layer.inputs for layer in placed[wide:]) + problem.classes
    vectors_at, scratch_at = inputs_at, inputs_at + up(2 * vectors, 4)
    at = scratch_at + THREADS
    for index, layer in enumerate(placed):
        if index >= wide and kept:
            at = up(at, LINE)
            placed[index] = replace(layer, weight_at=at)
            at += up(layer.inputs * layer.outputs, 4)
    sizes = Sizes(
        wide, problem.batch_size, rows, chunk, int(held), partials,
        images_at, inputs_at, doutputs_at, weights_at, vectors_at, scratch_at, helpers,
    )  # fmt: skip
    return GridPlan(steps, sizes, tuple(placed), partials + max(sums), 4 * max(end, at), parts)


def floats_of(rows: int, cols: int, parts: int = 1) -> int:
    """Float32 numbers of shared memory for a tile of `parts` 16-bit parts, with the kernel's row padding."""
    return parts * rows * (-(-cols // RUN) | 1) * RUN // 2


def up(count: int, multiple: int) -> int:
    """The least multiple that is at least `count`."""
    return -(-count // multiple) * multiple
