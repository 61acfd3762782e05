"""Products of hidden layers through a ring of tiles that the copy engine moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np

from common.cuda.compile import Macros
from common.problem import Params, Problem
from stages.engine.misfit import require_shared_bytes
from stages.engine.parts import blocks, float32, int32
from stages.engine.workspace import Array, Setup
from stages.streamed.streamed_gemm import HELD, PITCH, Product, StreamedGemm
from stages.streamed.weight_panels import TILE, from_panels, to_panels
from stages.tiles.tile_gemm import ProductSpec, tile_source_hash
from stages.tiles.tile_kernels import CLUSTERS, FUSIONS, STEP, WARP

FILE = "streamed/ring.cu"
# ring.cuh, ring_back.cuh, ring_forward.cuh and ring_warpgroups.cuh
TEAM_WARPS, GROUP_WARPS = 8, 4
BACK_TEAMS = 2
FORWARD_PITCH = TILE + 16
ROWS_AT_ONCE, MOST_ROWS = 32, 64  # images of a batch; kernels are compiled for either
MOST_SHARED = 227 * 1024  # bytes of a block

IN_BFLOAT16 = (("IS_EXACT", "0"),)
IN_PLANES = (("IN_PLANES", "1"),)
BY_WARPGROUPS = (("BY_WARPGROUPS", "1"),)


def rows_for(batch: int) -> int:
    """The rows that kernels for a batch are compiled for."""
    return ROWS_AT_ONCE if batch <= ROWS_AT_ONCE else MOST_ROWS


def rows_macro(batch: int) -> Macros:
    """The macro that compiles ring.cu for a batch."""
    return () if batch <= ROWS_AT_ONCE else (("MOST_ROWS", str(MOST_ROWS)),)


def ring_bytes(rows: int, factor_pitch: int, weight_bytes: int = 4, besides: int = 0) -> int:
    """Shared memory of a block, in bytes: of as many slots as fit beside the given bytes, and of these.

    A slot has a tile and a factor's rows, which are `factor_pitch` floats apart.
    """
    slot = weight_bytes * TILE * TILE + 4 * rows * factor_pitch
    slots = (MOST_SHARED - besides) // (slot + 4 * 8)
    return blocks(slots * slot + 8 * (4 * slots + 1), 128) * 128 + besides


def forward_launch(macros: Macros, batch: int) -> tuple[int, int]:
    """Threads and bytes of shared memory of a block of `ring_forward`."""
    teams = 2 if IN_BFLOAT16[0] in macros else 1
    used = ring_bytes(rows_for(batch), FORWARD_PITCH, 2 if IN_PLANES[0] in macros else 4)
    return WARP * (teams * TEAM_WARPS + 1), used


def back_launch(macros: Macros, batch: int) -> tuple[int, int]:
    """The same of `ring_back`; beside its ring it keeps inputs as factors, by warpgroups also outputs' gradients."""
    rows, by_groups = rows_for(batch), BY_WARPGROUPS[0] in macros
    besides = (2 if IN_BFLOAT16[0] in macros else HELD) * rows * TILE
    if by_groups:
        besides += HELD * ROWS_AT_ONCE * TILE * BACK_TEAMS + 128
    threads = WARP * (BACK_TEAMS * (GROUP_WARPS if by_groups else TEAM_WARPS) + 2)
    return threads, ring_bytes(rows, PITCH, besides=besides)


def panels_of(units: int, batch: int) -> tuple[int, int, int]:
    """Shape of a batch's outputs in panels."""
    return blocks(units, TILE), rows_for(batch), FORWARD_PITCH


class RingGemm(StreamedGemm):
    """The rung below's products, but all those of hidden layers by ring kernels, with weights in their own order."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_90")
    macros: ClassVar[Macros] = ()  # of ring.cu

    def __init__(self, setup: Setup) -> None:
        problem, device = setup.problem, setup.device
        batch, macros = problem.batch_size, self.macros_on(device.capability)
        self._forward_threads, self._forward_bytes = forward_launch(macros, batch)
        self._back_threads, self._back_bytes = back_launch(macros, batch)
        require_shared_bytes(device, max(self._forward_bytes, self._back_bytes))
        super().__init__(setup)
        macros += rows_macro(batch)
        self._ring_forward = lru_cache(partial(setup.kernel, FILE, "ring_forward", macros=macros))
        self._ring_back = lru_cache(partial(setup.kernel, FILE, "ring_back", macros=macros))
        self._most_blocks = 2 * device.multiprocessors
        self._ring_trials = device.trials(
            f"{FILE} {macros} {tile_source_hash(FILE, __file__)}", are_cold=self._are_cold
        )
        self._ring_chosen: dict[tuple[str, int, int], int] = {}
        self._in_panels = {id(weights) for weights in setup.tensors.weights[:-1]}
        self._panels: dict[int, Array] = {}  # of outputs that are the next layer's inputs
        for output in setup.tensors.outputs[:-2]:
            panels = self._panels[id(output)] = device.empty(panels_of(output.shape[1], batch), np.float32)
            device.zero(panels)
        self._no_panels = device.empty(panels_of(0, batch), np.float32)
        self._zero, self._no_byte = device.zero, device.empty((1, 0), np.uint8)
        self._no_dinputs = device.empty((1,), np.float32)
        self._awaited: Product | None = None  # the gradient of a layer's inputs, until its update is asked for

    @classmethod
    def macros_on(cls, capability: int) -> Macros:  # noqa: ARG003
        """The macros of ring.cu on a GPU of this compute capability, such as 90."""
        return cls.macros

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Why a problem does not fit the tiles; empty if it fits."""
        wrong = [units for units in problem.hidden if units % TILE]
        if not problem.hidden:
            return "Needs at least one hidden layer."
        if problem.batch_size > MOST_ROWS:
            return f"Batch size {problem.batch_size:,} exceeds the limit of {MOST_ROWS}."
        if problem.inputs % STEP:
            return f"{problem.inputs:,} inputs are not a multiple of {STEP}."
        if wrong:
            return f"{wrong[0]:,} hidden units are not a multiple of {TILE}."
        return ""

    @classmethod
    def packed(cls, params: Params) -> Params:
        """Parameters with the weights of hidden layers in panels."""
        return replace(params, weights=(*map(to_panels, params.weights[:-1]), params.weights[-1]))

    @classmethod
    def unpacked(cls, params: Params) -> Params:
        """The inverse of `packed`."""
        return replace(params, weights=(*map(from_panels, params.weights[:-1]), params.weights[-1]))

    def _multiply(self, a: Array, b: Array, out: Array, spec: ProductSpec) -> None:
        awaited = self._awaited
        if awaited is not None and id(out) == id(awaited[1]):
            self._awaited = None
            self._update(awaited, (a, b, out, spec))
            return
        self.flush()
        if id(out) in self._in_panels:
            self._update(None, (a, b, out, spec))
        elif id(b) not in self._in_panels:
            super()._multiply(a, b, out, spec)
        elif spec.trans_b:
            self._awaited = (a, b, out, spec)
        else:
            forward, (fan_in, fan_out) = partial(self._forward_by, a, b, out, spec), b.shape
            forward(self._split("forward", fan_in, fan_out, lambda: forward))

    def flush(self) -> None:
        """Enqueue an awaited gradient of a layer's inputs, with an update by 0."""
        super().flush()
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            doutputs, weights, dinputs, _ = awaited
            unused, bias = self._empty(dinputs.shape, np.float32), self._empty(doutputs.shape[1:], np.float32)
            for array in (unused, bias):
                self._zero(array)
            self._back_by(awaited, unused, doutputs, weights, bias, 0.0, 1)

    def _update(self, back: Product | None, update: Product) -> None:
        inputs, doutputs, weights, spec = update
        assert spec.fusion is not None

        def run(weights: Array, bias: Array, split: int) -> None:
            self._back_by(back, inputs, doutputs, weights, bias, -spec.alpha, split)

        def on_copies() -> Callable[[int], None]:
            return partial(run, weights.copy(), spec.fusion.bias.copy())  # type: ignore[union-attr]

        fan_in, fan_out = weights.shape
        split = self._split("update" if back is None else "back", fan_out, fan_in, on_copies)
        run(weights, spec.fusion.bias, split)

    def _split(self, what: str, shared: int, own: int, trial: Callable[[], Callable[[int], None]]) -> int:
        """The fastest number of blocks to divide `shared` rows or columns, for `own` columns or rows in all."""
        key = what, shared, own
        split = self._ring_chosen.get(key)
        if split is None:
            tiles, pieces = blocks(own, TILE), blocks(shared, TILE)
            splits = [n for n in CLUSTERS if n == 1 or n <= min(pieces, self._most_blocks // tiles)]
            enqueue = trial()
            timed = [partial(enqueue, n) for n in splits]
            for call in timed:
                call()  # loads its kernel
            split = self._ring_chosen[key] = splits[self._ring_trials.fastest(str(key), timed)]
        return split

    def _forward_by(self, a: Array, b: Array, out: Array, spec: ProductSpec, split: int) -> None:
        fusion = spec.fusion
        assert fusion is not None
        rows, outputs = out.shape
        kernel = self._ring_forward(split if split > 1 else None, self._forward_bytes)
        mask = self._no_mask if fusion.mask is None else fusion.mask
        given, left = self._panels.get(id(a)), self._panels.get(id(out))
        sizes = (rows, a.shape[1], outputs, mask.shape[-1], FUSIONS[fusion.kind], given is not None, left is not None)
        inputs = (a, self._no_panels if given is None else given)
        written = (out, self._no_panels if left is None else left)
        arrays = (*inputs, b, *written, fusion.bias, mask)
        kernel((1, outputs // TILE), self._forward_threads, *arrays, *map(int32, sizes))

    def _back_by(
        self, back: Product | None, inputs: Array, doutputs: Array, weights: Array, bias: Array, rate: float, split: int
    ) -> None:
        """The blocks of a row are a cluster only where they have gradients to add up."""
        is_cluster = back is not None and split > 1
        kernel = self._ring_back(split if is_cluster else None, self._back_bytes)
        mask = self._no_byte if back is None else back[3].fusion.mask  # type: ignore[union-attr]
        dinputs = self._no_dinputs if back is None else back[2]
        sizes = (inputs.shape[0], *weights.shape, mask.shape[-1])
        grid = (1 if is_cluster else split, blocks(weights.shape[0], TILE))
        arrays = (inputs, doutputs, weights, bias, dinputs, mask)
        kernel(grid, self._back_threads, *arrays, *map(int32, sizes), float32(rate))
