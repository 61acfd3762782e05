"""Divided batch with a hidden layer, float16: blocks share out images and units, and exchange outputs and gradients.

Why: divided-batch-fp16 takes no hidden layer. With hundreds of images the rungs for large batches take four kernels a
step, whose starts and chains are most of 10 us.

Change: launch. One launch for an epoch. The blocks form a table of 64 images by 16 units or a few times that. Each
multiplies its images by its units' weights, receives the outputs of all units for its images, and computes logits and
softmax by itself. Parts of gradients go to owners among the blocks with the same units, as in its parent.

Expect: 784-256-10 takes 6.95 us with 512 images and 8.76 with 1,024 in a trial without biases, totals and the last
layer's update, where `large-batch-early-fp16` takes 10.6 and 13.7. These add some messages beside others; a product of
outputs and classes by all warps saves 0.3 us. So 7.2 us, and 9.2.

Predict: on H200: 784-256-10, batch 512: 7.2 us; 784-256-10, batch 1024: 9.2 us.

Found: it misses by 2 and 7%, and takes 0.7 of the time of the fastest rung before. A fixed chain and products are each
a third of the step, and with 1,024 images products take twice as long. Wide layers cost more than expected, since each
block receives all outputs, and at 200 images `cluster-fp16` is as fast (docs/notebook/persistent-grid.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Metrics, Precision, RunStep
from stages.engine.workspace import Array, Device, Setup
from stages.persistent import divided_batch_fp16, hidden_batch_plan, messages_plan
from stages.persistent.epoch_by_messages import EpochByMessages
from stages.persistent.fragments import fragments
from stages.persistent.hidden_batch_plan import HiddenBatchPlan


class Float16Hidden(EpochByMessages):
    """An epoch by one cooperative launch, in float16; MisfitError for a problem or a GPU that does not fit."""

    precision: ClassVar[Precision] = "float16"
    plans: ClassVar[Any] = hidden_batch_plan
    halves: ClassVar[int] = messages_plan.ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)
    threads: ClassVar[int] = hidden_batch_plan.THREADS  # of a block
    gradient_scale: ClassVar[int] = messages_plan.GRADIENT_SCALE

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        plan = hidden_batch_plan.plan_for(problem, self.halves, device.multiprocessors)
        images = of_shares(device, [pixels for pixels, _ in tensors.batches], plan)
        self.prepare(setup, "grid/divided_hidden.cu", "divided_hidden", plan, images)


def of_shares(device: Device, batches: list[Array], plan: HiddenBatchPlan) -> Array:
    """The batches (B, I) as the kernel's images: float16 (steps, *plan.images_shape), a share's beside each other."""
    shares, tiles, _, image_tiles, *matrix = plan.images_shape
    by_feature = fragments(device, batches, shares * image_tiles, tiles)
    images = device.empty((len(batches), *plan.images_shape), by_feature.dtype)
    by_share = by_feature.reshape(len(batches), tiles, shares, image_tiles, 2, *matrix)
    images[...] = by_share.transpose(0, 2, 1, 5, 3, 4, 6, 7)
    return images


STAGE = divided_batch_fp16.STAGE.climb(
    "divided-hidden-fp16",
    "Divided batch with a hidden layer, float16",
    words="blocks share out images and hidden units",
    closest="large-batch-early-fp16",
    launch=Float16Hidden,
)
