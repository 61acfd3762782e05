"""Streaming epoch: one kernel for a whole epoch, whose ring of weights never stops between layers.

Why: each layer of planes-dependent is a kernel, and some 5 us of each are neither copies nor products: the first tiles
come late, and at its end sums meet. In batches of 64 that is half of a step of 784-2048x4-10.

Change: launch. One cooperative launch an epoch. Blocks form a table; each streams its tiles of all layers, in the order
of the steps, and goes on fetching while others add up. Sums travel as in grid-messages, as float16 with tags. A
warpgroup takes a tile (wgmma); backward another updates it, while the first goes on with the next and with sums. The
first layer's tile, once updated, is multiplied by the next step's images while it is still in shared memory. The last
layer stays in registers. Messages outlast weights in L2.

Expect: the streams and exchanges alone take 112 us for 784-4096x3-10, 394 with 8,192 units, 50 to 55 for 784-2048x4-10
in batches of 64, by an experiment on an H200. With a head of 3 to 4 us and products before each sum: 114 to 122, 390 to
410, 60 to 66, and 38 to 43 us for 784-2048x3-10.

Predict: on H200: 784-4096x3-10, batch 32: 114 to 122 us; 784-2048x4-10, batch 64: 60 to 66 us; 784-2048x3-10, batch 32:
38 to 43 us; 784-8192x3-10, batch 32: 390 to 410 us.

Found: 784-2048x4-10 and 784-2048x3-10 take little more than half of their parent's time, and 784-4096x3-10 a sixth
less: there the streams alone take seven eighths of a step (docs/notebook/streamed.md). At first messages had left L2
when they were needed: weights that leave first gained a sixth for 784-2048x4-10. Three layers of 8,192 leave shared
memory for two tiles, and four are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from common.cost import Arithmetic, Weights
from common.problem import Problem
from stages.engine.recipe import Metrics, Precision, RunStep
from stages.engine.workspace import Array, Device, Setup
from stages.persistent.epoch_by_messages import EpochByMessages, bfloat16_bits, require_warpgroups
from stages.streamed import epoch_plan, planes_dependent
from stages.streamed.epoch_plan import EpochPlan
from stages.streamed.weight_panels import row_at


class StreamingEpoch(EpochByMessages):
    """An epoch by one cooperative launch; MisfitError for a problem or a GPU that does not fit."""

    precision: ClassVar[Precision] = "bfloat16"
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("bfloat16"),)
    weights: ClassVar[Weights | None] = "planes"
    threads: ClassVar[int] = epoch_plan.THREADS
    gradient_scale: ClassVar[int] = epoch_plan.GRADIENT_SCALE
    deferred: ClassVar[bool] = False  # whether only every second step updates hidden layers

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        plan = EpochPlan(problem, deferred=self.deferred)
        require_warpgroups(device, plan.blocks)
        images = shares_of(device, [pixels for pixels, _ in tensors.batches], plan)
        self.prepare(setup, "streamed/streaming_epoch.cu", "streaming_epoch", plan, images)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        return epoch_plan.misfit(problem, steps, cls.deferred)


def shares_of(device: Device, batches: Sequence[Array], plan: EpochPlan) -> Array:
    """The batches (B, I) as the kernel's images: (steps, shares, I / 8, B / 8, 8, 8) bits of bfloat16, padded."""
    shares, edges, rows, edge, _ = plan.images_shape
    images = device.empty((len(batches), *plan.images_shape), np.uint16)
    place = np.arange(shares * edges * edge)
    order = row_at(place)  # its rows of weights stand in this order within sixteen
    for own, pixels in zip(images, batches, strict=True):
        padded = device.empty((rows * edge, len(place)), np.uint16)
        device.zero(padded)
        padded[: len(pixels), : pixels.shape[1]] = bfloat16_bits(pixels)
        own[...] = padded[:, order].reshape(rows, edge, shares, edges, edge).transpose(2, 3, 0, 4, 1)
    return images


STAGE = planes_dependent.STAGE.climb(
    "streaming-epoch", "Streaming epoch", words="one ring through all layers of an epoch", launch=StreamingEpoch
)
