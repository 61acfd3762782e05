"""Sizes and places of a large batch's tensors: float16 halves, padded to the tiles of the kernels."""

from __future__ import annotations

from dataclasses import dataclass

from common.problem import Problem
from stages.engine.workspace import ParameterMemory

# halves.cuh
EDGE, WARP = 16, 32
WEIGHT_SCALE, OUTPUT_SCALE = 64.0, 16.0
EXACT, ROUNDED = 2, 1  # float16 summands of a number
# hidden_head.cu and hidden_layers.cu
CLASSES, GROUP, PAD = 16, 32, 8
HEAD_WARPS, MOST_UNITS = 8, 512
MOST_TILES, MOST_WARPS, MOST_UNITS_OF_SEVERAL = 4, 16, 256
# update_all.cu, images_product.cu and update_by_products.cu
UPDATE_THREADS, EARLY_WARPS = 256, 8
TILES = (16, 16), (32, 16), (32, 32), (64, 32)
PART, FEW = 32, 128  # of update_by_products: inputs and units of a block; images

# Most parts of a batch, of whose weight gradients update_all makes sums. Further layers have few tiles and need more.
MOST_SPLITS, MOST_FURTHER_SPLITS = 4, 32

Macros = tuple[tuple[str, str], ...]


def up(number: int, multiple: int) -> int:
    """The number, rounded up to a multiple."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Layout:
    """A network with hidden layers; B batch, I inputs, U units of the widest hidden layer, C classes.

    The hidden layers behind the first are the further ones.
    """

    problem: Problem
    halves: int = EXACT
    multiprocessors: int = 1
    block_shared_bytes: int = 227 << 10

    @property
    def features(self) -> int:
        """I, padded."""
        return up(self.problem.inputs, EDGE)

    @property
    def further(self) -> int:
        """Number of further layers."""
        return len(self.problem.hidden) - 1

    @property
    def width(self) -> int:
        """U, padded."""
        return max(up(max(self.problem.hidden), GROUP), 2 * GROUP if self.further else 0)

    @property
    def wide(self) -> int:
        """All halves of U numbers, padded."""
        return self.halves * self.width

    @property
    def rows(self) -> int:
        """B."""
        return self.problem.batch_size

    @property
    def most_bytes(self) -> int:
        """The most shared memory of a block."""
        return self.head_bytes

    @property
    def head(self) -> str:
        """The kernel from the first layer's sums to their gradient."""
        return "hidden_layers" if self.further else "hidden_head"

    @property
    def head_rows(self) -> int:
        """Images of a tile of the head: 32 take less time each, if there are enough for all multiprocessors."""
        is_large = self.problem.batch_size >= 2 * EDGE * self.multiprocessors
        return 2 * EDGE if self.further and is_large else EDGE

    @property
    def head_blocks(self) -> int:
        """Blocks of the head, at most one a multiprocessor, with the fewest tiles each; each has a share."""
        tiles = -(-self.problem.batch_size // self.head_rows)
        return -(-tiles // -(-tiles // self.multiprocessors))

    @property
    def head_tiles(self) -> int:
        """Tiles that a block of hidden_layers takes at once, if there is room for them."""
        tiles, slices = -(-self.problem.batch_size // self.head_rows), self.width // GROUP
        most = min(MOST_TILES, -(-tiles // self.head_blocks), MOST_WARPS // slices)
        return max(count for count in range(1, most + 1) if count == 1 or self._has_room(count))

    @property
    def head_warps(self) -> int:
        """Warps of a block of the head."""
        return self.head_tiles * self.width // GROUP if self.further else HEAD_WARPS

    @property
    def head_bytes(self) -> int:
        """Shared memory of a block of the head."""
        if self.further:
            return self._layers_bytes(self.head_tiles)
        class_stride, stride = CLASSES + PAD, self.width + PAD
        shares = min(self.width // GROUP, HEAD_WARPS)
        return EDGE * (8 + 4 + shares * class_stride * 4 + self.halves * 2 * (stride + class_stride))

    def _has_room(self, tiles: int) -> bool:
        return self._layers_bytes(tiles) <= self.block_shared_bytes

    def _layers_bytes(self, tiles: int) -> int:
        """Size of Memory in hidden_layers.cu."""
        layers = self.further + 2
        row, class_row = 2 * self.halves * (self.width + PAD), 2 * self.halves * (CLASSES + PAD)
        tile = self.head_rows * (row + class_row) + 4 * (2 * layers - 1) * self.width + self.head_rows // EDGE * (8 + 4)
        barriers = up(8 * self.further, 16)
        return tiles * up(tile, 16) + 4 * layers * self.width + self.width * (class_row + self.further * row) + barriers

    @property
    def share(self) -> int:
        """Numbers of a share: the gradients of the last layer's parameters and of the hidden biases."""
        hidden = self.problem.hidden
        return (hidden[-1] + 1) * self.problem.classes + sum(hidden)

    @property
    def update_blocks(self) -> int:
        """Blocks of update_all."""
        weights = sum(layer.fan_in * layer.fan_out for layer in self.problem.layers[:-1])
        return -(-self.share // WARP) - (-weights // UPDATE_THREADS)

    def splits(self, most: int) -> list[int]:
        """Numbers of equal parts of a batch, each with a weight gradient of its own."""
        splits, batch = [1], self.problem.batch_size
        while 2 * splits[-1] <= most and batch % (2 * splits[-1] * EDGE) == 0:
            splits.append(2 * splits[-1])
        return splits

    @property
    def gradient_scale(self) -> float:
        """A power of two that moves gradients, means over a batch, away from float16's smallest numbers."""
        return 256.0 * 2.0 ** (self.problem.batch_size - 1).bit_length()

    def update_macros(self, parameters: ParameterMemory) -> Macros:
        """Macros of update_all."""
        begins = zip(self.problem.layers, parameters.weight_begins, parameters.bias_begins, strict=True)
        numbers = [(layer.fan_in, layer.fan_out, weights, bias) for layer, weights, bias in begins]
        return (
            ("FACTOR_HALVES", str(self.halves)),
            ("LAYERS", ",".join(str(number) for layer in numbers for number in layer)),
        )

    def head_macros(self, parameters: ParameterMemory) -> Macros:
        """Macros of the head."""
        halves, layers = self.update_macros(parameters)
        units = "UNITS", str(self.width)
        if not self.further:
            return halves, units
        return halves, layers, units, ("ROWS", str(self.head_rows)), ("TILES", str(self.head_tiles))


@dataclass(frozen=True)
class EarlyLayout(Layout):
    """The same for kernels that start early: matrices in chunks of 16 by 16 numbers."""

    @property
    def rows(self) -> int:
        """B, padded."""
        return up(self.problem.batch_size, EDGE)

    @property
    def most_bytes(self) -> int:
        """The most shared memory of a block of the three kernels."""
        return max(self.head_bytes, self.product_bytes, self.part_bytes)

    def head_macros(self, parameters: ParameterMemory) -> Macros:
        """Macros of the head."""
        return (*super().head_macros(parameters), ("EARLY", "1"))

    @property
    def product_tile(self) -> tuple[int, int]:
        """Images and units of a block of images_product: the smallest for at most two blocks a multiprocessor."""
        few = (tile for tile in TILES if -(-self.rows // tile[0]) * (self.width // tile[1]) <= 2 * self.multiprocessors)
        return next(few, TILES[-1])

    @property
    def product_blocks(self) -> tuple[int, int]:
        """Blocks of images_product."""
        rows, columns = self.product_tile
        return -(-self.rows // rows), self.width // columns

    @property
    def product_bytes(self) -> int:
        """Shared memory of a block of images_product."""
        rows, columns = self.product_tile
        return max(2 * self.features * (rows + self.halves * columns), 4 * EARLY_WARPS * rows * columns)

    @property
    def product_macros(self) -> Macros:
        """Macros of images_product."""
        rows, columns = self.product_tile
        return ("FACTOR_HALVES", str(self.halves)), ("ROWS", str(rows)), ("COLUMNS", str(columns))

    @property
    def part_blocks(self) -> int:
        """Blocks of update_by_products, PART inputs by PART units each."""
        return (-(-self.features // PART) + self.further * (self.width // PART)) * (self.width // PART)

    @property
    def part_bytes(self) -> int:
        """Shared memory of a block of update_by_products."""
        lefts = self.halves if self.further else 1
        return max(2 * self.rows * PART * (lefts + self.halves), 4 * EARLY_WARPS * PART**2)

    @property
    def update_blocks(self) -> int:
        """Blocks of update_by_products: part_blocks and, beside them, some for the shares, in two rounds at most."""
        at_once = self.multiprocessors * min(2, self.block_shared_bytes // self.part_bytes)
        groups, free = -(-self.share // WARP), at_once - self.part_blocks % at_once
        in_two = -(-groups // 2) if self.problem.batch_size > FEW else 0  # they outlast products of few images
        return self.part_blocks + (groups if groups <= free else in_two)

    def part_macros(self, parameters: ParameterMemory) -> Macros:
        """Macros of update_by_products."""
        return (*self.update_macros(parameters), ("UNITS", str(self.width)))
