"""How persistent-grid divides a network among blocks: which layers are cut into tiles, how large, and where all lies.

Counts are of float32 numbers unless said. The arithmetic of `_tile_cycles` is a rough one, made to rank tiles.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.problem import Problem
from stages.workspace import MOST_ELEMENTS

THREADS, WARPS = 512, 16  # persistent_grid.cu
EDGE, TILE = 16, 8  # rows of a fragment of a product; its columns, and what is added up at once
TASK = 32  # outputs or inputs of what no block owns
MOST_K, MOST_N = 512, 256  # inputs and outputs of a tile
CHUNK = 64  # rows of a batch in shared memory where not all of them fit
STEP = 1 << 5  # outputs, at which rows of a tensor are cut

BARRIER_CYCLES = 1_900
L2_BYTES_PER_CYCLE = 40  # of one block's reads, when all blocks read
ALL_L2_BYTES_PER_CYCLE = 2_700
SHARES = (1.0, 0.85, 0.7, 0.5, 0.3)  # of shared memory, for a layer's tiles: tried until all has its place
PRODUCT_CYCLES = 16  # of one m16n8k8 with its split factors, for one of four tensor cores
TASK_CYCLES = 3_000  # where a block has a tile and something of what no block owns
STEP_CYCLES = 100  # of eight k, until their loads, splits and products have followed each other


@dataclass(frozen=True)
class Sizes:
    """`struct Plan` of persistent_grid, field by field."""

    layers: int
    wide: int
    steps: int
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
    pitch: int = 0

    @property
    def tiles(self) -> int:
        """How many tiles the weights are cut into."""
        return self.slices * self.columns


@dataclass(frozen=True)
class GridPlan:
    """A division: what the kernel is told, and what it needs."""

    sizes: Sizes
    layers: tuple[LayerPlan, ...]
    workspace: int
    shared_bytes: int

    @property
    def barriers(self) -> int:
        """Of all blocks, in a step."""
        return 4 * self.sizes.wide - 2

    @property
    def images_shape(self) -> tuple[int, int, int, int]:
        """(steps, slices, rows, tile_k): the images as the first layer's tiles take them."""
        first = self.layers[0]
        return self.sizes.steps, first.slices, self.sizes.rows, first.tile_k

    @property
    def numbers(self) -> NDArray[np.int32]:
        """The kernel's plan."""
        return np.array([*astuple(self.sizes), *itertools.chain(*map(astuple, self.layers))], np.int32)


def make_plan(
    problem: Problem, steps: int, weights: list[int], biases: list[int], blocks: int, shared_bytes: int
) -> GridPlan | None:
    """The division for so many blocks, each with so much shared memory; None where not even small tiles fit.

    `weights` and `biases` say where the layers' parameters begin.
    """
    layers = [
        LayerPlan(layer.fan_in, layer.fan_out, weight, bias)
        for layer, weight, bias in zip(problem.layers, weights, biases, strict=True)
    ]
    rows = _up(problem.batch_size, EDGE)
    space = shared_bytes // 4 - (len(Sizes.__annotations__) + len(layers) * len(LayerPlan.__annotations__) + 3) // 4 * 4
    begin = shared_bytes // 4 - space
    for (wide, held, kept), share in itertools.product(_ways(problem, rows, blocks), SHARES):
        chunk = rows if held else min(rows, CHUNK)
        tasks = sum(_tasks(layer, is_wide=index < wide) for index, layer in enumerate(layers))
        cut = [
            _cut(layer, rows, chunk, blocks, tasks, held, int(share * space), exact=index == 0)
            for index, layer in enumerate(layers[:wide])
        ]
        if any(layer is None for layer in cut):
            continue
        tiled = [layer for layer in cut if layer is not None] + layers[wide:]
        found = _place(problem, steps, rows, chunk, wide, held, kept, tiled, begin)
        numbers = max(math.prod(found.images_shape), found.workspace)
        if found.shared_bytes <= shared_bytes and numbers <= MOST_ELEMENTS:
            return found
    return None


def _ways(problem: Problem, rows: int, blocks: int) -> Iterator[tuple[int, bool, bool]]:
    """How many layers are wide, whether tiles are held and the tail's weights kept; the best that fits is the first."""
    last = len(problem.layers) - 1
    wides = []
    for wide in range(1, max(last, 1) + 1):
        cycles = sum(_tail_cycles(la.fan_in, la.fan_out, rows, blocks) for la in problem.layers[wide:])
        if wide == max(last, 1) or cycles < (last - wide) * (4 * BARRIER_CYCLES + 4_000):
            wides.append(wide)
    for held, kept in ((True, True), (True, False), (False, True), (False, False)):
        for wide in wides:
            yield wide, held, kept


def _tail_cycles(inputs: int, outputs: int, rows: int, blocks: int) -> float:
    """What a layer of the tail takes about in a step."""
    size = inputs * outputs
    busy = min(rows, blocks)
    return max(4 * size / L2_BYTES_PER_CYCLE, 4 * size * busy / ALL_L2_BYTES_PER_CYCLE) + -(-rows // blocks) * size / 16


def _tasks(layer: LayerPlan, *, is_wide: bool) -> int:
    across = -(-layer.outputs // TASK)
    return across * (1 + (0 if is_wide else -(-layer.inputs // TASK)))


@functools.lru_cache(maxsize=1024)
def _cut(
    layer: LayerPlan, rows: int, chunk: int, blocks: int, tasks: int, held: bool, space: int, *, exact: bool
) -> LayerPlan | None:
    """The layer in the tiles that take least time; None where none fits."""
    best: tuple[float, LayerPlan] | None = None
    for tile_k in range(TILE, min(_up(layer.inputs, TILE), MOST_K) + 1, TILE):
        for tile_n in range(TILE, min(_up(layer.outputs, TILE), MOST_N) + 1, TILE):
            slices, columns = -(-layer.inputs // tile_k), -(-layer.outputs // tile_n)
            if held and slices * columns > blocks:
                continue
            tile = replace(layer, tile_k=tile_k, tile_n=tile_n, slices=slices, columns=columns, pitch=tile_n + 4)
            images = 2 if held and exact else 1
            taken = tile_k * tile.pitch + chunk * (images * pitch_of(tile_k) + pitch_of(tile_n))
            if taken > space:
                break
            cycles = _tile_cycles(tile, rows, blocks, exact) + (TASK_CYCLES if tile.tiles + tasks > blocks else 0)
            if best is None or cycles < best[0]:
                best = cycles, tile
    return best[1] if best else None


def _tile_cycles(layer: LayerPlan, rows: int, blocks: int, exact: bool) -> float:
    """What the layer's products take about in a step."""
    rounds = -(-layer.tiles // blocks)
    products = 2 if exact else 3

    def product(m: int, n: int, k: int) -> float:
        down, across = -(-m // EDGE), n // TILE
        beside = 4 if down * across >= 4 * WARPS else 2 if down * across >= 2 * WARPS else 1
        rounds = -(-down * -(-across // beside) // WARPS)
        return rounds * (k // TILE) * max(4 * beside * products * PRODUCT_CYCLES, STEP_CYCLES)

    forward = product(rows, layer.tile_n, layer.tile_k)
    backward = 0.0 if exact else product(rows, layer.tile_k, layer.tile_n)
    update = product(layer.tile_k, layer.tile_n, rows)
    reading = 4 * rows * (layer.tile_n + (0 if exact else layer.tile_k)) / L2_BYTES_PER_CYCLE
    parts = rows * (layer.slices * layer.outputs + (0 if exact else layer.columns * layer.inputs))
    return rounds * (forward + backward + update + reading) + 8 * parts / ALL_L2_BYTES_PER_CYCLE + 40 * layer.slices


def _place(
    problem: Problem,
    steps: int,
    rows: int,
    chunk: int,
    wide: int,
    held: bool,
    kept: bool,
    layers: list[LayerPlan],
    begin: int,
) -> GridPlan:
    """Everything gets its place, in shared memory from `begin` on."""
    placed, space = [], 0
    for index, layer in enumerate(layers):
        above = layers[index + 1 : index + 2]
        stride = max([_up(layer.outputs, STEP), layer.columns * layer.tile_n, *(la.slices * la.tile_k for la in above)])
        placed.append(replace(layer, output=space, doutput=space + rows * stride, stride=stride))
        space += 2 * rows * stride
    partials = space
    parts = [
        rows * layer.slices * layer.columns * max(layer.tile_n, layer.tile_k if index else 0)
        for index, layer in enumerate(placed[:wide])
    ]

    at = begin
    if held:
        for index, layer in enumerate(placed[:wide]):
            placed[index] = replace(layer, weight_at=at)
            at += layer.tile_k * layer.pitch
    images_at = at
    at += 2 * rows * pitch_of(placed[0].tile_k) if held else 0
    inputs_at = at
    hidden = placed[1:wide] if held else placed[:wide]
    doutputs_at = inputs_at + max(chunk * max([pitch_of(TASK), *(pitch_of(la.tile_k) for la in hidden)]), THREADS)
    weights_at = doutputs_at + chunk * max([pitch_of(TASK), *(pitch_of(la.tile_n) for la in placed[:wide])])
    end = weights_at + (0 if held else max(la.tile_k * la.pitch for la in placed[:wide]))

    vectors = sum(layer.inputs for layer in placed[wide:]) + problem.classes
    vectors_at, scratch_at = inputs_at, inputs_at + _up(2 * vectors, 4)
    at = scratch_at + THREADS
    for index, layer in enumerate(placed):
        if index >= wide and kept:
            placed[index] = replace(layer, weight_at=at, pitch=layer.outputs)
            at += _up(layer.inputs * layer.outputs, 4)
    sizes = Sizes(
        len(placed), wide, steps, problem.batch_size, rows, chunk, int(held), partials,
        images_at, inputs_at, doutputs_at, weights_at, vectors_at, scratch_at,
    )  # fmt: skip
    return GridPlan(sizes, tuple(placed), partials + max(parts), 4 * max(end, at))


def pitch_of(cols: int) -> int:
    """Numbers between the rows of a tile in shared memory, as the kernel has it."""
    return _up(cols, EDGE) + TILE


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
