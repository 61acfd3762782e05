"""A layer's way back in one pass over its weights, by our own kernel, or in two, whichever measured faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import ClassVar

from stages.plain import blocks, float32, int32
from stages.tile_gemm import How, TileGemm
from stages.tiles import CLUSTERS, MOST_SPLIT_BLOCKS, MOST_WARPS, STEP, WARP
from stages.workspace import Array, Setup

# weight_stream.cuh
OWN = 32
CHUNK = 32
MOST_ROWS = 2 * CHUNK  # of a block
STAGES = {1: 4, 2: 3}  # for so many chunks

Product = tuple[Array, Array, Array, How]  # two factors, the product, and what else is to be done
WayBack = Callable[[Product, Product], None]  # enqueues the gradient of a layer's inputs, and its update


class StreamedGemm(TileGemm):
    """The products of the rung below; a layer's way back as one where that measures faster."""

    streamed: ClassVar[tuple[str, str]]
    """A file, and its kernel."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._back = lru_cache(partial(setup.kernel, *self.streamed))
        self._most_shared = setup.device.block_shared_bytes
        self._with_clusters = bool(getattr(setup.device, "has_clusters", False))
        self._trials_back = setup.device.trials(f"{self.streamed[1]} or two kernels")
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
        """Blocks of a cluster and warps of a block, none of them without a step."""
        (rows, outputs), tiles = doutputs.shape, blocks(weights.shape[0], OWN)
        if rows > MOST_ROWS or outputs % STEP:
            return []
        return [
            (split, warps)
            for split in (CLUSTERS if self._with_clusters else (1,))
            for warps in sorted({1, 2, 4, 6, MOST_WARPS})
            if split * warps <= outputs // STEP
            and (split == 1 or tiles * split <= MOST_SPLIT_BLOCKS)
            and shared_bytes(rows, warps) <= self._most_shared
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
        kernel = self._back(split if split > 1 else None, shared_bytes(rows, warps))
        mask = passed.fusion.mask
        arrays = (inputs, doutputs, weights, how.fusion.bias, dinputs, mask)
        sizes = (rows, weights.shape[0], outputs, mask.shape[-1])
        kernel((1, blocks(sizes[1], OWN)), warps * WARP, *arrays, *map(int32, sizes), float32(-how.alpha))


def shared_bytes(rows: int, warps: int) -> int:
    """What a block of so many warps needs for so many rows: its inputs, and each warp's copies."""
    chunks = blocks(rows, CHUNK)
    own = chunks * CHUNK * OWN
    return 4 * (own + warps * STAGES[chunks] * (chunks * CHUNK * (STEP + 8) + OWN * STEP))
