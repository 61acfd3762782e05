"""Our tile kernels for matrix products, and the ways to cut a product for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from common.cuda.epilogue import Fusion
from stages.engine.parts import blocks, float32, int32
from stages.engine.workspace import Array, Setup

# output_tiles.cuh
WARP = 32
STEP = 16
MOST_WARPS = 8  # a block, at most
SHAPES = ((16, 16), (32, 32))  # rows and columns of a tile
FUSIONS = {None: 0, "bias": 1, "relu_bias": 2, "relu_backward": 3, "bias_row": 4}

CLUSTERS = (1, 2, 3, 4, 5, 6, 7, 8)  # blocks
MOST_SPLIT_BLOCKS = 1056  # eight a multiprocessor of the largest GPUs: no reason to split further


@dataclass(frozen=True)
class TileConfig:
    """A cut: index of a tile's shape, warps of a block, blocks of a cluster; warps and blocks share k."""

    shape: int
    warps: int
    blocks: int


def cuts(m: int, n: int, k: int, with_clusters: bool) -> list[TileConfig]:
    """Candidate cuts of an (m, n) product over k: no idle warp, clusters only for few tiles."""
    steps = blocks(k, STEP)
    candidates = []
    for (shape, (height, width)), split in itertools.product(enumerate(SHAPES), CLUSTERS):
        tiles = blocks(m, height) * blocks(n, width)
        if split > 1 and (not with_clusters or tiles * split > MOST_SPLIT_BLOCKS):
            continue
        own = blocks(steps, split)  # steps of k a block
        for warps in sorted({1, 2, 4, MOST_WARPS, min(own, MOST_WARPS), min(blocks(own, 2), MOST_WARPS)}):
            if warps * split <= steps:
                candidates.append(TileConfig(shape, warps, split))
    return candidates


class TileProducts:
    """One kernel of stages/kernels/tiles; `scale` multiplies gradients on their way in."""

    def __init__(self, setup: Setup, file: str, kernel: str, scale: float = 1.0) -> None:
        self._load = partial(setup.kernel, file, kernel)
        self._kernels: dict[int, Callable[..., None]] = {}
        self._with_clusters = setup.device.has_clusters
        self._scale = scale
        self._no_bias = setup.device.empty((1,), np.float32)
        self._no_mask = setup.device.empty((1,), np.uint8)

    def cuts(self, out: Array, k: int) -> list[TileConfig]:
        """Candidate cuts of a product out (m, n) over k."""
        m, n = out.shape
        return cuts(m, n, k, self._with_clusters)

    def __call__(
        self,
        cut: TileConfig,
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
        if trans_a and trans_b:
            raise ValueError("both factors transposed: tile kernels support one at most")
        m, n = out.shape
        kind = fusion.kind if fusion else None
        bias = fusion.bias if fusion and fusion.bias is not None else self._no_bias
        mask = fusion.mask if fusion and fusion.mask is not None else self._no_mask
        height, width = SHAPES[cut.shape]
        tiles = blocks(m + (kind == "bias_row"), height), blocks(n, width)
        sizes = (m, n, a.shape[0] if trans_a else a.shape[1], mask.shape[-1])
        how = (1 if trans_a else 2 if trans_b else 0, cut.shape, FUSIONS[kind])
        scale = self._scale if trans_a or trans_b else 1.0
        scales = (float32(alpha / scale), float32(beta), float32(scale))
        kernel = self._kernel(cut.blocks)
        kernel(tiles, cut.warps * WARP, a, b, out, bias, mask, *map(int32, sizes + how), *scales)

    def _kernel(self, split: int) -> Callable[..., None]:
        if split not in self._kernels:
            self._kernels[split] = self._load(cluster=split if split > 1 else None)
        return self._kernels[split]
