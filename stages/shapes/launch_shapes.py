"""Launch shapes of the matrix product `gemm_shaped`: the threads of a block, and the outputs of a thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from stages.engine.parts import GEMM_TILE, blocks
from stages.engine.workspace import KERNELS

Pair = tuple[int, int]
Launch = Callable[..., None]  # takes the kernel's arguments

SOURCE, KERNEL = KERNELS / "shapes/gemm.cu", "gemm_shaped"
BLOCKS = (
    (4, 8), (8, 4), (8, 8), (16, 2), (16, 4), (16, 8), (16, 16), (32, 1), (32, 4), (32, 8), (32, 32), (64, 4), (128, 1),
)  # fmt: skip
TILES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (4, 4))


class Product(NamedTuple):
    """A product out (m, n) = op(a) @ op(b), summed over k; a flag of 1 transposes its matrix."""

    m: int
    n: int
    k: int
    trans_a: int
    trans_b: int


class Shape(msgspec.Struct, frozen=True):
    """A launch shape, columns before rows as CUDA has them."""

    block: Pair
    tile: Pair = (1, 1)

    def grid(self, product: Product) -> Pair:
        """Blocks that cover the outputs of a product."""
        return blocks(product.n, self.block[0] * self.tile[0]), blocks(product.m, self.block[1] * self.tile[1])

    @property
    def macros(self) -> tuple[tuple[str, str], ...]:
        """The tile, for the compiler; none where a thread has one output."""
        columns, rows = map(str, self.tile)
        return () if self.tile == (1, 1) else (("TILE_COLS", columns), ("TILE_ROWS", rows))


FIXED = Shape((GEMM_TILE, GEMM_TILE))  # that of gemm_naive
SHAPES = tuple(dict.fromkeys((FIXED, *itertools.starmap(Shape, itertools.product(BLOCKS, TILES)))))


def load(device: Any, shape: Shape, product: Product) -> Launch:
    """The kernel in this shape, ready for its arguments; raises what the compiler raises."""
    return partial(device.kernel(SOURCE, KERNEL, macros=shape.macros), shape.grid(product), shape.block)
