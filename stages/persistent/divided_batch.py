"""Divided batch: each block has some images and all weights, and exchanges gradients.

Why: persistent-grid divides the weights, of which softmax regression has 31 KB. With 900 images its blocks add up parts
of 900 rows of logits, and wait for all others at every barrier.

Change: launch. Every block keeps all weights as factors, takes sixteen images or a few times that, and their softmax
without any exchange. Parts of the gradients go to the owners of some weights, who send these to all: two ways through
L2 per step, as tagged messages.

Expect: 4.5 us per step for 784-10 with batches of 900: two ways through L2 take 1.5 us in a trial, products, softmax
and sums the rest.

Predict: on H200: 784-10, batch 900: 4.5 us.

Found: it takes a ninth of its parent's time, close to the prediction. Waits for the two exchanges are half of a step.
Fewer owners wait less: with 63 instead of 125 a step is a twelfth shorter (docs/notebook/persistent-grid.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Array, Device, Setup
from stages.persistent import batch_plan, messages_plan, persistent_grid
from stages.persistent.batch_plan import BatchPlan
from stages.persistent.epoch_by_messages import EpochByMessages
from stages.persistent.fragments import fragments


class DividedBatch(EpochByMessages):
    """An epoch by one cooperative launch; MisfitError for a problem or a GPU that does not fit."""

    plans: ClassVar[Any] = batch_plan
    halves: ClassVar[int] = messages_plan.EXACT
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", 2),)  # images are exact
    threads: ClassVar[int] = batch_plan.THREADS  # of a block
    gradient_scale: ClassVar[int] = messages_plan.GRADIENT_SCALE

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        plan = batch_plan.plan_for(problem, self.halves, device.multiprocessors)
        images = of_blocks(device, [pixels for pixels, _ in tensors.batches], plan)
        self.prepare(setup, "grid/divided_batch.cu", "divided_batch", plan, images)


def of_blocks(device: Device, batches: list[Array], plan: BatchPlan) -> Array:
    """The batches (B, I) as the kernel's images: float16 (steps, *plan.images_shape), a block's beside each other."""
    blocks, tiles, image_tiles, *matrix = plan.images_shape
    by_feature = fragments(device, batches, blocks * image_tiles, tiles)
    images = device.empty((len(batches), *plan.images_shape), by_feature.dtype)
    images[...] = by_feature.reshape(len(batches), tiles, blocks, image_tiles, *matrix).swapaxes(1, 2)
    return images


STAGE = persistent_grid.STAGE.climb(
    "divided-batch", "Divided batch", words="each block has some images and all weights", launch=DividedBatch
)
