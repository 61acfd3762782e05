"""Products that stream a layer's weights through blocks, forward and backward, where they measure faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np

from common.cuda.epilogue import Fusion
from stages.engine.parts import blocks, float32, int32
from stages.engine.workspace import Array, Setup
from stages.tiles.tile_gemm import Candidate, ProductSpec, TileGemm, tile_source_hash
from stages.tiles.tile_kernels import CLUSTERS, FUSIONS, MOST_SPLIT_BLOCKS, STEP, WARP, TileProducts

# weight_stream.cuh, streamed_back.cuh and streamed_forward.cuh
OWN = 32
WIDTH = 64
PITCH, WIDER = WIDTH + 8, WIDTH + 16
DEPTH = 64
INPUTS_PITCH = DEPTH + 8
MOST_ROWS = 32  # images of a batch
BACK_PIECES = 3
PARTS = WIDTH // STEP  # of a piece, one a warp
HELD = 8  # bytes of an input, with all of its parts
FORWARD_PIECES = 4
PATCHES = 16  # groups of weights; some stay in L2
KEPT_SHARE = 0.4  # of L2 at most, for weights that stay; trials: docs/notebook/streamed.md
FORWARD_WARPS = (DEPTH // STEP) * (WIDTH // OWN)

Product = tuple[Array, Array, Array, ProductSpec]  # two factors, the output, the options
BackwardCandidate = Callable[[Product, Product], None]  # enqueues the gradient of a layer's inputs and its update


class StreamedGemm(TileGemm):
    """The rung below's products, or streamed ones where faster; a layer's backward pass in one kernel."""

    shares_backward_pass: ClassVar[bool] = True
    streamed: ClassVar[tuple[str, str, str]]
    """A file and its two kernels: forward, backward."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        file, forward, back = self.streamed
        self._forward = lru_cache(partial(setup.kernel, file, forward))
        self._back = lru_cache(partial(setup.kernel, file, back))
        self._empty = setup.device.empty
        self._no_mask = self._empty((1,), np.uint8)
        weights = sum(4 * layer.fan_in * layer.fan_out for layer in setup.problem.layers)
        self._l2_patches = min(PATCHES, int(PATCHES * KEPT_SHARE * setup.device.l2_bytes) // weights)
        self._shared_limit = setup.device.block_shared_bytes
        self._with_clusters = setup.device.has_clusters
        self._are_cold = weights > setup.device.l2_bytes  # when their turn comes, no weights of the layer are in L2
        self._streamed_trials = setup.device.trials(
            f"{file} {tile_source_hash(file, __file__)} kept {self._l2_patches} or {self._made}",
            are_cold=self._are_cold,
        )
        self._chosen_backward: dict[tuple[int, ...], BackwardCandidate] = {}
        self._withheld: Product | None = None

    def _fastest(
        self, tiles: TileProducts, a: Array, left: Array, b: Array, out: Array, spec: ProductSpec
    ) -> Candidate:
        """The rung below's product, or a streamed one."""
        below = super()._fastest(tiles, a, left, b, out, spec)
        own = [*self.forward_candidates(a, b, spec), *self.update_candidates(a, b, spec)]
        if not own:
            return below
        candidates, scratch, trial = [below, *((candidate, False) for candidate in own)], out.copy(), spec.for_trial()
        timed = [partial(enqueue, left if ours else a, b, scratch, *trial) for enqueue, ours in candidates]
        for call in timed[1:]:
            call()  # loads its kernels
        fastest: int = self._streamed_trials.fastest(f"{a.shape} {b.shape} {left is a} {spec.kind}", timed)
        return candidates[fastest]

    def forward_candidates(self, a: Array, b: Array, spec: ProductSpec) -> list[Callable[..., None]]:
        """Streamed candidates for inputs (B, I) @ weights (I, O) with a bias; none for other products."""
        (rows, inputs), outputs = a.shape, b.shape[-1]
        if spec[:4] != (False, False, 1.0, 0.0) or spec.kind not in ("bias", "relu_bias"):
            return []
        if rows > MOST_ROWS or inputs % 4 or outputs % 4 or self._shared_limit < FORWARD_BYTES:
            return []
        return [
            partial(self._stream_forward, split)
            for split in self._splits(blocks(outputs, WIDTH), blocks(inputs, DEPTH))
        ]

    def update_candidates(self, a: Array, b: Array, spec: ProductSpec) -> list[Callable[..., None]]:
        """Streamed candidates for an update alone, from inputs (B, I) and a gradient (B, O)."""
        if spec.kind != "bias_row" or spec.beta != 1.0 or not (cuts := self._backward_splits(b, a.shape[1])):
            return []
        unneeded, no_byte = self._empty((1,), np.float32), self._empty((1, 0), np.uint8)
        withheld = ProductSpec(False, True, 1.0, 0.0, Fusion("relu_backward", mask=no_byte))

        def update(cut: tuple[int, int], a: Array, b: Array, out: Array, *spec: Any) -> None:
            self._one_kernel(*cut, (b, out, unneeded, withheld), (a, b, out, ProductSpec(*spec)))

        return [partial(update, cut) for cut in cuts]

    def _splits(self, tiles: int, pieces: int) -> list[int]:
        """Candidate cluster sizes in blocks, each block with work; more than one only for few tiles."""
        most = MOST_SPLIT_BLOCKS // tiles if self._with_clusters else 1
        return [split for split in CLUSTERS if split == 1 or split <= min(pieces, most)]

    def _stream_forward(self, split: int, a: Array, b: Array, out: Array, *spec: Any) -> None:
        fusion: Fusion = spec[-1]
        rows, outputs = out.shape
        kernel = self._forward(split if split > 1 else None, FORWARD_BYTES)
        mask = self._no_mask if fusion.mask is None else fusion.mask
        sizes = (rows, a.shape[1], outputs, mask.shape[-1], FUSIONS[fusion.kind], self._l2_patches)
        kernel((1, blocks(outputs, WIDTH)), FORWARD_WARPS * WARP, a, b, out, fusion.bias, mask, *map(int32, sizes))

    def _multiply(self, a: Array, b: Array, out: Array, spec: ProductSpec) -> None:
        back = self._withheld
        if back and back[0] is b and back[1] is out and spec.kind == "bias_row" and spec.beta == 1.0:
            self._withheld = None
            self._run_backward(back, (a, b, out, spec))
            return
        self.flush()
        if spec.kind == "relu_backward" and self._backward_splits(a, b.shape[0]):
            self._withheld = (a, b, out, spec)
        else:
            super()._multiply(a, b, out, spec)

    def flush(self) -> None:
        """Enqueue the withheld gradient of a layer's inputs."""
        back, self._withheld = self._withheld, None
        if back is not None:
            super()._multiply(*back)

    def _run_backward(self, back: Product, update: Product) -> None:
        key = (*back[2].shape, update[2].shape[1])
        candidate = self._chosen_backward.get(key)
        if candidate is None:
            candidate = self._chosen_backward[key] = self._fastest_backward(back, update)
        candidate(back, update)

    def _fastest_backward(self, back: Product, update: Product) -> BackwardCandidate:
        """The fastest candidate, timed on copies of the output."""
        doutputs, weights, dinputs, back_spec = back
        scratch = weights.copy()
        trial = (doutputs, scratch, dinputs, back_spec), (update[0], doutputs, scratch, update[3].for_trial())
        candidates = self.backward_candidates(doutputs, weights)
        timed = [partial(candidate, *trial) for candidate in candidates]
        for call in timed:
            call()  # loads its kernels
        purpose = f"{dinputs.shape} {weights.shape} {back_spec[:4]} {update[3][:4]}"
        fastest: int = self._streamed_trials.fastest(purpose, timed)
        return candidates[fastest]

    def backward_candidates(self, doutputs: Array, weights: Array) -> list[BackwardCandidate]:
        """Candidates for a gradient (B, O) and weights (I, O); two separate kernels come first."""
        return [
            self._two_kernels,
            *(partial(self._one_kernel, *cut) for cut in self._backward_splits(doutputs, weights.shape[0])),
        ]

    def _backward_splits(self, doutputs: Array, inputs: int) -> list[tuple[int, int]]:
        """Candidate (blocks of a cluster, groups of a block); every block has work."""
        rows, outputs = doutputs.shape
        if rows > MOST_ROWS or outputs % STEP:
            return []
        return [
            (split, groups)
            for groups in (1, 2)
            if back_bytes(groups) <= self._shared_limit
            for split in self._splits(blocks(inputs, groups * OWN), blocks(outputs, WIDTH))
        ]

    def _two_kernels(self, back: Product, update: Product) -> None:
        super()._multiply(*back)
        super()._multiply(*update)

    def _one_kernel(self, split: int, groups: int, back: Product, update: Product) -> None:
        doutputs, weights, dinputs, passed_spec = back
        inputs, _, _, spec = update
        assert passed_spec.fusion is not None
        assert spec.fusion is not None
        rows, outputs = doutputs.shape
        kernel = self._back(split if split > 1 else None, back_bytes(groups))
        mask = passed_spec.fusion.mask
        arrays = (inputs, doutputs, weights, spec.fusion.bias, dinputs, mask)
        sizes = (rows, weights.shape[0], outputs, mask.shape[-1], groups, self._l2_patches)
        grid = (1, blocks(sizes[1], groups * OWN))
        kernel(grid, groups * PARTS * WARP, *arrays, *map(int32, sizes), float32(-spec.alpha))


def back_bytes(groups: int) -> int:
    """Shared memory of a block with `groups` groups of inputs, in bytes: inputs and copied pieces."""
    return HELD * MOST_ROWS * OWN * groups + 4 * BACK_PIECES * (MOST_ROWS * PITCH + groups * OWN * WIDER)


FORWARD_BYTES = 4 * FORWARD_PIECES * (MOST_ROWS * INPUTS_PITCH + DEPTH * PITCH)
"""Shared memory of a forward block."""
