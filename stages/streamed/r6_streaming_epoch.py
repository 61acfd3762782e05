"""Streaming epoch: one kernel for a whole epoch, whose ring of weights never stops between layers.

Why: each layer of planes-dependent is a kernel, and some 5 us of each are neither copies nor products: the first tiles
come late, and at its end sums meet. In batches of 64 that is half of a step of 784-2048x4-10.

Change: launch. One cooperative launch an epoch. Blocks form a table; each streams its tiles of all layers, in the order
of the steps, and goes on fetching while others add up. Sums travel as in grid-messages, as float16 with tags. A
warpgroup takes a tile (wgmma): backward both products and the update. The first layer's tile, once updated, is
multiplied by the next step's images while it is still in shared memory. The last layer stays in registers.

Expect: the streams and exchanges alone take 112 us for 784-4096x3-10, 394 with 8,192 units, 50 to 55 for 784-2048x4-10
in batches of 64, by an experiment on an H200. With a head of 3 to 4 us and products before each sum: 114 to 122, 390 to
410, 60 to 66, and 38 to 43 us for 784-2048x3-10.

Predict: on H200: 784-4096x3-10, batch 32: 114 to 122 us; 784-2048x4-10, batch 64: 60 to 66 us; 784-2048x3-10, batch 32:
38 to 43 us; 784-8192x3-10, batch 32: 390 to 410 us.

Found: 784-2048x4-10 takes a third less than its parent, and a tenth more than expected; 784-2048x3-10 takes two fifths
less, and less than expected. By marks half of a step are waits for parts and sums, and the ring is seldom empty
(docs/notebook/streamed.md). Three layers of 4,096 did not end: on the GPU some block waits for ever, and on a CPU none
does, so wider layers are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from common.cost import Arithmetic, Exchanges, Weights
from common.errors import MisfitError
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import r6_cuda_graph
from stages.engine.misfit import closest_rung, require_shared_bytes, with_closest
from stages.engine.parts import float32, int32
from stages.engine.recipe import Metrics, Precision, RunStep
from stages.engine.workspace import Array, Device, Setup
from stages.streamed import epoch_plan, r5_planes_dependent
from stages.streamed.epoch_plan import EpochPlan
from stages.streamed.weight_panels import row_at


class StreamingEpoch(r6_cuda_graph.EpochByItself):
    """An epoch by one cooperative launch; MisfitError for a problem or a GPU that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    regime: ClassVar[Regime] = "one kernel"
    precision: ClassVar[Precision] = "bfloat16"
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("bfloat16"),)
    weights: ClassVar[Weights | None] = "planes"
    closest: ClassVar[str] = r5_planes_dependent.STAGE.name

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        if reason := self.misfit(problem, len(tensors.batches)):
            raise MisfitError(reason)
        plan = EpochPlan(problem)
        if device.capability != 90:
            raise MisfitError(with_closest("Needs the warpgroup products of an sm_90 GPU.", self.closest))
        if device.multiprocessors < plan.blocks:
            few = f"Needs {plan.blocks} multiprocessors; this GPU has {device.multiprocessors}."
            raise MisfitError(with_closest(few, self.closest))
        with closest_rung(self.closest):
            require_shared_bytes(device, plan.shared_bytes)
        macros = plan.macros(tensors.parameters.weight_begins, tensors.parameters.bias_begins)
        how: dict[str, Any] = {"cooperative": True, "shared_bytes": plan.shared_bytes, "macros": macros}
        self._train = setup.kernel("streamed/streaming_epoch.cu", "streaming_epoch", **how)
        steps = len(tensors.batches)
        labels = device.empty((steps, problem.batch_size), np.int32)
        for own, (_, others) in zip(labels, tensors.batches, strict=True):
            own[...] = others
        images = shares_of(device, [pixels for pixels, _ in tensors.batches], plan)
        self._blocks, self._zero = plan.blocks, device.zero
        self._mail = device.empty((4 * plan.mail_units,), np.uint32)
        self._args = (images, labels, tensors.parameters.flat, self._mail, tensors.totals)
        rate = problem.learning_rate / problem.batch_size / epoch_plan.GRADIENT_SCALE
        self._numbers = (int32(steps), float32(rate))

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit, and the closest rung; empty if it fits."""
        return with_closest(epoch_plan.misfit(problem, steps), cls.closest)

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:  # noqa: ARG003
        """None by a barrier of the grid or in a cluster: messages of a few blocks go through L2."""
        return Exchanges()

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._zero(self._mail)
        self._train(self._blocks, epoch_plan.THREADS, *self._args, *self._numbers, int32(with_metrics))


def shares_of(device: Device, batches: Sequence[Array], plan: EpochPlan) -> Array:
    """The batches (B, I) as the kernel's images: (steps, shares, I / 8, B / 8, 8, 8) bits of bfloat16, padded."""
    shares, edges, rows, edge, _ = plan.images_shape
    images = device.empty((len(batches), *plan.images_shape), np.uint16)
    place = np.arange(shares * edges * edge)
    order = row_at(place)  # its rows of weights stand in this order within sixteen
    for own, pixels in zip(images, batches, strict=True):
        bits = pixels.view(np.uint32)
        padded = device.empty((rows * edge, len(place)), np.uint16)
        device.zero(padded)
        padded[: len(bits), : bits.shape[1]] = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        own[...] = padded[:, order].reshape(rows, edge, shares, edges, edge).transpose(2, 3, 0, 4, 1)
    return images


STAGE = r5_planes_dependent.STAGE.climb(
    "streaming-epoch", "Streaming epoch", words="one ring through all layers of an epoch", launch=StreamingEpoch
)
