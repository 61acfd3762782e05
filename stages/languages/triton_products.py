"""Products by our Triton kernel, in the place of our CUDA tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.cuda.epilogue import Fusion
from stages.engine.parts import blocks, float32
from stages.engine.workspace import Array, Setup
from stages.languages.triton_launch import Config, Launch, load

FUSIONS = {None: 0, "bias": 1, "relu_bias": 2, "relu_backward": 3}  # triton_kernels.py
MOST_PROGRAMS = 1056  # eight a multiprocessor of the largest GPUs: no reason to split further
MOST_SHARES = 16  # of k, whose sums the last program adds up
# Rows, columns, depth and warps.
NARROW = ((8, 16, 32, 4), (8, 16, 64, 4), (16, 16, 16, 4), (16, 16, 32, 4), (16, 16, 64, 4))
WIDE = (
    (16, 16, 16, 4), (16, 32, 16, 4), (32, 32, 32, 4), (32, 64, 32, 4), (64, 32, 32, 4), (64, 64, 32, 8),
)  # fmt: skip


def configs(m: int, n: int, k: int) -> list[Config]:
    """The configurations to try for an (m, n) product over k: no empty share of k, splits only of few tiles."""
    found = []
    for height, width, depth, warps in NARROW if n <= 16 else WIDE:
        tiles, steps = blocks(m, height) * blocks(n, width), min(blocks(k, depth), MOST_SHARES)
        if depth > max(2 * k, 16):  # mostly padding
            continue
        for split in sorted({share for share in (1, 2, 4, 8, steps) if share <= steps}):
            if split == 1 or tiles * split <= MOST_PROGRAMS:
                sizes = {"BLOCK_M": height, "BLOCK_N": width, "BLOCK_K": depth, "SPLIT_K": split}
                found.append(Config(tuple(sizes.items()), warps, 3))
    return found


class TritonProducts:
    """One Triton kernel for every product; called as `stages.tiles.tile_kernels.TileProducts`."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._no_bias = setup.device.empty((1,), np.float32)
        self._no_mask = setup.device.empty((1,), np.uint8)
        self._launches: dict[Any, Launch] = {}
        self._scratch: dict[tuple[int, int], tuple[Array, Array]] = {}  # parts and arrivals, by their sizes

    def cuts(self, out: Array, k: int) -> list[Config]:
        """The configurations to try for a product out (m, n) over k."""
        m, n = out.shape
        return configs(m, n, k)

    def __call__(
        self,
        config: Config,
        a: Array,
        b: Array,
        out: Array,
        trans_a: bool,
        trans_b: bool,
        alpha: float,
        beta: float,
        fusion: Fusion | None = None,
    ) -> None:
        """Enqueue out (m, n) = fusion of alpha * op(a) @ op(b) + beta * out; one factor at most is transposed."""
        m, n = out.shape
        bias = fusion.bias if fusion and fusion.bias is not None else self._no_bias
        mask = fusion.mask if fusion and fusion.mask is not None else self._no_mask
        constants = {
            "M": m,
            "N": n,
            "K": a.shape[0 if trans_a else 1],
            "TRANS_A": int(trans_a),
            "TRANS_B": int(trans_b),
            "ADDS": int(beta != 0),
            "FUSION": FUSIONS[fusion.kind if fusion else None],
            "MASK_BYTES": mask.shape[-1],
        }
        key = config, *constants.values()
        if key not in self._launches:
            self._launches[key] = load(self._setup, "triton_product", config, **constants)
        grid = blocks(m, config["BLOCK_M"]), blocks(n, config["BLOCK_N"]), config["SPLIT_K"]
        scratch = self._scratch_of(grid[0] * grid[1], grid[2] * config["BLOCK_M"] * config["BLOCK_N"])
        self._launches[key](grid, a, b, out, bias, mask, *scratch, float32(alpha), float32(beta))

    def _scratch_of(self, tiles: int, numbers: int) -> tuple[Array, Array]:
        """Memory for the parts of so many numbers a tile, and zeros to count arrivals; kernels run one by one."""
        if (tiles, numbers) not in self._scratch:
            device = self._setup.device
            arrived = device.empty((tiles,), np.int32)
            device.zero(arrived)
            self._scratch[tiles, numbers] = device.empty((tiles * numbers,), np.float32), arrived
        return self._scratch[tiles, numbers]
