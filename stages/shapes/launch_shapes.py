"""Launch shapes of the plain kernels: the threads of a block, and how many outputs each thread takes.

A kernel that is launched in a shape of its own choice says here which there are, and what launching or compiling it in
one of them takes. Sizes are those of the operation, as the parts of stages/engine/parts.py give them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from stages.engine.parts import BIAS_COLS, BIAS_ROWS, THREADS, blocks
from stages.engine.recipe import Shapes
from stages.engine.workspace import KERNELS

Sizes = tuple[int, ...]
Pair = tuple[int, int]
Words = tuple[str, str]
Macros = tuple[tuple[str, str], ...]
Launch = Callable[..., None]  # takes the kernel's arguments

MOST_THREADS = 1024  # of a block, on every GPU
BLOCK_THREADS = (32, 64, 128, 256, 512, 1024)
GEMM_TILE = 16
GEMM_BLOCKS = (
    (4, 8), (8, 4), (8, 8), (16, 2), (16, 4), (16, 8), (16, 16), (32, 1), (32, 4), (32, 8), (32, 32), (64, 4), (128, 1),
)  # fmt: skip
GEMM_TILES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (4, 4))


class Shape(msgspec.Struct, frozen=True):
    """How a kernel is launched: threads of a block, and outputs of a thread, both columns first as CUDA has them."""

    block: Pair
    tile: Pair = (1, 1)


@dataclass(frozen=True)
class Tunable:
    """A kernel and the shapes that it can be launched in."""

    file: str
    shapes: tuple[Shape, ...]  # the first is the one that it is launched in unless another was measured to be faster
    grid: Callable[[Shape, Sizes], Pair]
    macros: Callable[[Shape], Macros]  # none for the first shape
    axes: Words = ("threads of a block", "outputs of a thread")  # of a heat map, down and across
    place: Callable[[Shape], Words] = lambda shape: (str(shape.block[0]), str(shape.tile[0]))

    @property
    def fixed(self) -> Shape:
        """The shape without any measurement."""
        return self.shapes[0]

    def load(self, device: Any, kernel: str, shape: Shape, sizes: Sizes) -> Launch:
        """The kernel of this name as an operation of these sizes launches it; raises what the compiler raises."""
        code = device.kernel(KERNELS / self.file, kernel, macros=self.macros(shape))
        return partial(code, self.grid(shape, sizes), shape.block)


def _product() -> Tunable:
    """Sizes (m, n, k, trans_a, trans_b); a thread has a tile of outputs."""
    fixed = Shape((GEMM_TILE, GEMM_TILE))
    return Tunable(
        "plain/gemm.cu",
        _with_first(fixed, itertools.starmap(Shape, itertools.product(GEMM_BLOCKS, GEMM_TILES))),
        lambda shape, sizes: (
            blocks(sizes[1], shape.block[0] * shape.tile[0]),
            blocks(sizes[0], shape.block[1] * shape.tile[1]),
        ),
        lambda shape: _macros(shape.tile, (1, 1), ("TILE_COLS", "TILE_ROWS")),
        ("block, columns x rows", "outputs of a thread, columns x rows"),
        lambda shape: (f"{shape.block[0]} x {shape.block[1]}", f"{shape.tile[0]} x {shape.tile[1]}"),
    )


def _elementwise(file: str) -> Tunable:
    """Sizes whose product is the number of elements."""
    shapes = (Shape((threads, 1), (tile, 1)) for threads, tile in itertools.product(BLOCK_THREADS, (1, 2, 4, 8)))
    return Tunable(
        file,
        _with_first(Shape((THREADS, 1)), shapes),
        lambda shape, sizes: (blocks(math.prod(sizes), shape.block[0] * shape.tile[0]), 1),
        lambda shape: _macros(shape.tile[:1], (1,), ("ELEMENTS",)),
    )


def _rowwise(file: str) -> Tunable:
    """Sizes (rows, columns); a thread has a row."""
    return Tunable(
        file,
        _with_first(Shape((THREADS, 1)), (Shape((threads, 1)) for threads in BLOCK_THREADS)),
        lambda shape, sizes: (blocks(sizes[0], shape.block[0]), 1),
        lambda _: (),
        ("threads of a block", "rows of a thread"),
    )


def _one_block(file: str, macro: str) -> Tunable:
    """Sizes (rows, columns), of which one block takes all; it is compiled for its threads."""
    return Tunable(
        file,
        _with_first(Shape((THREADS, 1)), (Shape((threads, 1)) for threads in BLOCK_THREADS)),
        lambda *_: (1, 1),
        lambda shape: _macros(shape.block[:1], (THREADS,), (macro,)),
        ("threads of the block", ""),
        lambda shape: (str(shape.block[0]), "1 block"),
    )


def _column_sums(file: str) -> Tunable:
    """Sizes (rows, columns); several threads share a column, and the block is compiled in."""
    fixed = (BIAS_COLS, BIAS_ROWS)
    pairs = itertools.product((8, 16, 32, 64), (4, 8, 16, 32))
    return Tunable(
        file,
        _with_first(Shape(fixed), (Shape(pair) for pair in pairs if math.prod(pair) <= MOST_THREADS)),
        lambda shape, sizes: (blocks(sizes[1], shape.block[0]), 1),
        lambda shape: _macros(shape.block, fixed, ("BIAS_COLS", "BIAS_ROWS")),
        ("columns of a block", "threads of a column"),
        lambda shape: (str(shape.block[0]), str(shape.block[1])),
    )


def _with_first(fixed: Shape, shapes: Any) -> tuple[Shape, ...]:
    return tuple(dict.fromkeys((fixed, *shapes)))


def _macros(values: Sizes, fixed: Sizes, names: tuple[str, ...]) -> Macros:
    return () if values == fixed else tuple(zip(names, map(str, values), strict=True))


PLAIN: dict[str, Tunable] = {
    "gemm_naive": _product(),
    "add_bias": _elementwise("plain/layer.cu"),
    "relu": _elementwise("plain/layer.cu"),
    "relu_backward": _elementwise("plain/layer.cu"),
    "bias_gradient": _column_sums("plain/layer.cu"),
    "softmax": _rowwise("plain/softmax.cu"),
    "softmax_xent_backward": _elementwise("plain/softmax.cu"),
    "softmax_xent_totals": _one_block("plain/softmax.cu", "TOTALS_THREADS"),
    "sgd_update": _elementwise("plain/sgd.cu"),
}


class FixedShapes(Shapes):
    """Every kernel in the shape that its author wrote down, whatever the sizes."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._launches: dict[tuple[str, Sizes], Launch] = {}

    def __call__(self, kernel: str, *sizes: int) -> Launch:
        """What launches this kernel for an operation of these sizes."""
        launch = self._launches.get((kernel, sizes))
        if launch is None:
            shape = self.shape(kernel, sizes)
            launch = self._launches[kernel, sizes] = PLAIN[kernel].load(self._device, kernel, shape, sizes)
        return launch

    def shape(self, kernel: str, sizes: Sizes) -> Shape:  # noqa: ARG002
        """The shape in which it is launched."""
        return PLAIN[kernel].fixed
