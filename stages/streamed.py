"""Streamed: weights of wide layers are copied ahead, and on the way back they are read and written once.

Why: for three hidden layers of 4,096 a step is bound by memory, 147 MB of weights, of which no cache holds much. The
products forward and back take 22 us for 64 MB, which memory could deliver in 14: a warp asks for its next numbers when
it begins to multiply the last. On the way back the weights are read for the gradient of the layer's inputs, and at once
read again, to be updated and written, which takes the library 49 us.

Change: gemm. Products forward ask for weights three steps ahead, by asynchronous copies. The product of a gradient with
weights is held back until the next call, which asks for the update of the same weights: both become one kernel, which
keeps its weights in registers from the one product to the other. The rung below's kernels stay where they measure
faster, or where a size does not fit: outputs or inputs that are no multiple of 16, on the way back more than 64 rows.

Expect: for 784-4096x3-10, batch 32, 17 us for each of two products forward instead of 22 in bfloat16, 25 instead of 36
with exact factors; on the way back 40 us for a layer where two kernels take 71 and 97. In all 168 us a step instead of
240, and 190 instead of 325. For 784-784x4-10, batch 64, 5 us for a layer's way back instead of 10: 60 us instead of 74,
and 75 instead of 94. Nothing for networks of one hidden layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np

from common.cuda.fusion import Fusion
from stages import bf16, exact_u8
from stages.bf16 import BFloat16Gemm
from stages.exact_u8 import ExactGemm
from stages.plain import blocks, float32, int32
from stages.tile_gemm import How, TileGemm, Way
from stages.tiles import CLUSTERS, FUSIONS, MOST_SPLIT_BLOCKS, MOST_WARPS, STEP, WARP, TileProducts
from stages.workspace import Array, Setup

# weight_stream.cuh
OWN = 32
CHUNK = 32
MOST_ROWS = 2 * CHUNK  # of a block
STAGES = {1: 4, 2: 3}  # for so many chunks

Product = tuple[Array, Array, Array, How]  # two factors, the product, and what else is to be done
WayBack = Callable[[Product, Product], None]  # enqueues the gradient of a layer's inputs, and its update


class StreamedGemm(TileGemm):
    """The products of the rung below, or with their weights streamed where that measures faster."""

    streamed: ClassVar[tuple[str, str, str]]
    """A file, its kernel for the way forward, and the one for the way back."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        file, forward, back = self.streamed
        self._forward, self._back = (lru_cache(partial(setup.kernel, file, name)) for name in (forward, back))
        self._no_mask = setup.device.empty((1,), np.uint8)
        self._most_shared = setup.device.block_shared_bytes
        self._with_clusters = bool(getattr(setup.device, "has_clusters", False))
        self._trials = setup.device.trials(f"{self.kernel[1]}, {forward} or cuBLASLt")
        self._trials_back = setup.device.trials(f"{back} or two kernels")
        self._ways_back: dict[tuple[int, ...], WayBack] = {}
        self._held_back: Product | None = None

    def _multiply(self, a: Array, b: Array, out: Array, how: How) -> None:
        back, self._held_back = self._held_back, None
        if back is None and how.kind == "relu_backward" and self._cuts_back(a, b):
            self._held_back = (a, b, out, how)
        elif back is None:
            super()._multiply(a, b, out, how)
        elif back[0] is b and back[1] is out and how.kind == "bias_row" and how.beta == 1.0:
            self._go_back(back, (a, b, out, how))
        else:
            super()._multiply(*back)
            self._multiply(a, b, out, how)

    def _ways(self, tiles: TileProducts, a: Array, b: Array, out: Array, how: How) -> list[Way]:
        ways = super()._ways(tiles, a, b, out, how)
        (rows, inputs), outputs = a.shape, b.shape[1]
        if (
            how[:4] == (False, False, 1.0, 0.0)
            and how.kind in ("bias", "relu_bias")
            and not (inputs % STEP or outputs % 4)
        ):
            cuts = self._cuts(rows, outputs, inputs, 0)
            ways += [(partial(self._stream_forward, *cut), False) for cut in cuts]
        return ways

    def _stream_forward(
        self,
        split: int,
        warps: int,
        a: Array,
        b: Array,
        out: Array,
        trans_a: bool,
        trans_b: bool,
        alpha: float,
        beta: float,
        fusion: Fusion | None,
    ) -> None:
        assert fusion is not None
        assert (trans_a, trans_b, alpha, beta) == (False, False, 1.0, 0.0)
        (rows, inputs), outputs = a.shape, b.shape[1]
        kernel = self._forward(split if split > 1 else None, shared_bytes(rows, warps))
        mask = self._no_mask if fusion.mask is None else fusion.mask
        grid = (blocks(rows, MOST_ROWS), blocks(outputs, OWN))
        sizes = (rows, inputs, outputs, mask.shape[-1], FUSIONS[fusion.kind])
        kernel(grid, warps * WARP, a, b, fusion.bias, out, mask, *map(int32, sizes))

    def _go_back(self, back: Product, update: Product) -> None:
        key = (*back[2].shape, update[2].shape[1])
        way = self._ways_back.get(key)
        if way is None:
            way = self._ways_back[key] = self._fastest_way_back(back, update)
        way(back, update)

    def _fastest_way_back(self, back: Product, update: Product) -> WayBack:
        """What measures fastest, on copies of what it writes."""
        doutputs, weights, dinputs, how_back = back
        scratch = weights.copy()
        trial = (doutputs, scratch, dinputs, how_back), (update[0], doutputs, scratch, update[3].for_trial())
        ways = self.ways_back(doutputs, weights)
        candidates = [partial(way, *trial) for way in ways]
        for candidate in candidates:
            candidate()  # loads what it needs
        purpose = f"{dinputs.shape} {weights.shape} {how_back[:4]} {update[3][:4]}"
        fastest: int = self._trials_back.fastest(purpose, candidates)
        return ways[fastest]

    def ways_back(self, doutputs: Array, weights: Array) -> list[WayBack]:
        """All ways for a gradient (B, O) and weights (I, O), two kernels first."""
        return [self._two_kernels, *(partial(self._one_kernel, *cut) for cut in self._cuts_back(doutputs, weights))]

    def _cuts_back(self, doutputs: Array, weights: Array) -> list[tuple[int, int]]:
        (rows, outputs), inputs = doutputs.shape, weights.shape[0]
        return [] if rows > MOST_ROWS or outputs % STEP else self._cuts(rows, inputs, outputs, own_bytes(rows))

    def _cuts(self, rows: int, own: int, length: int, own_bytes: int) -> list[tuple[int, int]]:
        """Blocks of a cluster and warps of a block, none of them without a step."""
        groups, steps = blocks(rows, MOST_ROWS) * blocks(own, OWN), blocks(length, STEP)
        return [
            (split, warps)
            for split in (CLUSTERS if self._with_clusters else (1,))
            for warps in sorted({1, 2, 4, 6, MOST_WARPS})
            if split * warps <= steps
            and (split == 1 or groups * split <= MOST_SPLIT_BLOCKS)
            and own_bytes + shared_bytes(rows, warps) <= self._most_shared
        ]

    def _two_kernels(self, back: Product, update: Product) -> None:
        super()._multiply(*back)
        super()._multiply(*update)

    def _one_kernel(self, split: int, warps: int, back: Product, update: Product) -> None:
        doutputs, weights, dinputs, passed = back
        inputs, _, _, how = update
        assert passed.fusion is not None
        assert how.fusion is not None
        rows, outputs = doutputs.shape
        size = own_bytes(rows) + shared_bytes(rows, warps)
        kernel = self._back(split if split > 1 else None, size)
        mask = passed.fusion.mask
        arrays = (inputs, doutputs, weights, how.fusion.bias, dinputs, mask)
        sizes = (rows, weights.shape[0], outputs, mask.shape[-1])
        kernel((1, blocks(sizes[1], OWN)), warps * WARP, *arrays, *map(int32, sizes), float32(-how.alpha))


def shared_bytes(rows: int, warps: int) -> int:
    """What so many warps need for so many rows, besides what the kernel declares."""
    chunks = blocks(min(rows, MOST_ROWS), CHUNK)
    return 4 * warps * STAGES[chunks] * (chunks * CHUNK * (STEP + 8) + OWN * STEP)


def own_bytes(rows: int) -> int:
    """What a block needs on the way back besides, for its inputs."""
    return 4 * blocks(rows, CHUNK) * CHUNK * OWN


class ExactStreamed(StreamedGemm, ExactGemm):
    """In two tf32 parts of each factor."""

    streamed: ClassVar[tuple[str, str, str]] = ("streamed_split.cu", "streamed_forward_split", "streamed_back_split")


class BFloat16Streamed(StreamedGemm, BFloat16Gemm):
    """In bfloat16."""

    streamed: ClassVar[tuple[str, str, str]] = ("streamed_bf16.cu", "streamed_forward_bf16", "streamed_back_bf16")


EXACT = exact_u8.STAGE.climb("streamed", "Streamed weights", gemm=ExactStreamed)
BFLOAT16 = bf16.STAGE.climb("streamed-bf16", "Streamed weights, bfloat16", gemm=BFloat16Streamed)
