"""Grid messages: blocks wait for tagged messages of a few others, not for barriers of all.

Why: persistent-grid has four barriers of all blocks a further layer. Each costs 0.9 us, and then every block reads
parts of sums from blocks all over the chip.

Change: launch. Units of a layer are divided into sixteen shares, those of the next into seven, and so in turn: a block
has the weights between two shares, and adds up with fifteen or six others only. What blocks exchange carries its
round's tag in its lowest bit: no barriers, flags or fences. An update hides in the wait for the gradients below it.

Expect: 22.5 us per step for 784-784x4-10 with batches of 64, where its parent takes 48. A form before took 30.2 in a
trial. Of that the softmax of four images a block, through barriers, the biases that every block knows, and thin sums
through L2 instead of inside clusters are 8 us by its samples.

Predict: on H200: 784-784x4-10, batch 64: 22.5 us.

Found: it halves a step of 784-784x4-10, within a tenth of the prediction; sums among blocks are now half of it
(docs/notebook/persistent-grid.md). 784-256-10 gains nothing, and 784-128x3-10 takes a third longer: its parent needs no
exchange there. Batches of 32 gained a seventh by half the rows in each sum, and by a softmax in every block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from common.cost import Arithmetic
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Array, Device, Setup
from stages.persistent import messages_plan, persistent_grid
from stages.persistent.epoch_by_messages import EpochByMessages
from stages.persistent.messages_plan import MessagesPlan


class MessagesEpoch(EpochByMessages):
    """An epoch by one cooperative launch; MisfitError for a problem or a GPU that does not fit."""

    plans: ClassVar[Any] = messages_plan
    halves: ClassVar[int] = messages_plan.EXACT
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", 3, image_products=2),)
    threads: ClassVar[int] = messages_plan.THREADS  # of a block
    gradient_scale: ClassVar[int] = messages_plan.GRADIENT_SCALE

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        plan = messages_plan.plan_for(problem, self.halves, device.multiprocessors)
        images = shares_of(device, [pixels for pixels, _ in tensors.batches], plan)
        self.prepare(setup, "grid/grid_messages.cu", "grid_messages", plan, images)


def float16_bits(pixels: Array) -> Array:
    """float32 pixels as bits of float16."""
    bits: Array = pixels.astype(np.float16).view(np.uint16)
    return bits


def shares_of(
    device: Device,
    batches: Sequence[Array],
    plan: MessagesPlan,
    bits_of: Callable[[Array], Array] = float16_bits,
    axes: tuple[int, ...] = (2, 0, 1, 3),
) -> Array:
    """The batches (B, I) as a kernel's images: (steps, shares, I / 8, B / 8, 8, 8) numbers of 16 bits, padded.

    `axes` order a share's (B / 8, 8, I / 8, 8).
    """
    shares, edges, rows, edge, _ = plan.images_shape
    images = device.empty((len(batches), *plan.images_shape), np.uint16)
    device.zero(images)
    share = plan.share(0)
    for own, pixels in zip(images, batches, strict=True):
        bits = bits_of(pixels)
        for index in range(shares):
            part = bits[:, index * share : (index + 1) * share]
            padded = device.empty((rows * edge, edges * edge), np.uint16)
            device.zero(padded)
            padded[: part.shape[0], : part.shape[1]] = part
            own[index] = padded.reshape(rows, edge, edges, edge).transpose(axes)
    return images


STAGE = persistent_grid.STAGE.climb(
    "grid-messages", "Grid messages", words="tagged messages instead of barriers", launch=MessagesEpoch
)
