"""Stationary epoch: a weight on the chip takes four bytes instead of six, so layers of 2,048 units stay there.

Why: grid-messages-fp16 has each weight twice, as a float32 in registers and as a float16 in shared memory, and stops at
1,024 units. Wider layers stream their weights in every step: deferred-epoch takes 29.5 us for 784-2048x3-10.

Change: launch. A weight is a bfloat16 in shared memory and the float32's other 16 bits in a register. Half of the warps
multiply, with units as the 64 rows of wgmma, so that batches of 32 are not padded, and exchange sums as streaming-epoch
does; each block computes the softmax of all images. The others hold the registers, and update a layer while its sums
travel.

Expect: an experiment without biases and totals took 22.1 us for 784-2048x3-10 on an H200. Of its 39,300 cycles updates
were 8,600, by the warps that then waited for sums: beside them, all but the first layer's hide, and uncover 3,600 of
waiting. One hop of logits instead of two saves 1,700; biases and totals cost 500. That is 34,500 cycles, 18 to 21 us.
784-1200x4-10 has two sums more, of 2,900 cycles, and half of the weights: 16 to 20 us.

Predict: on H200: 784-2048x3-10, batch 32: 18 to 21 us; 784-1200x4-10, batch 32: 16 to 20 us.

Found: 784-2048x3-10 keeps to its prediction, at three fifths of deferred-epoch's time. 784-1200x4-10 takes a fiftieth
more than was predicted, and three tenths of grid-bf16's time. At first they took a quarter and a sixth more: the
compiler had computed addresses before the loop over steps, too many for registers (docs/notebook/streamed.md).
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from common.problem import Problem
from stages.engine.recipe import Metrics, Precision, RunStep
from stages.engine.workspace import Setup
from stages.persistent import grid_messages_fp16, messages_plan, stationary_plan
from stages.persistent.epoch_by_messages import EpochByMessages, bfloat16_bits, require_warpgroups
from stages.persistent.grid_messages import shares_of
from stages.persistent.stationary_plan import StationaryPlan


class StationaryEpoch(EpochByMessages):
    """An epoch by one cooperative launch; MisfitError for a problem or a GPU that does not fit."""

    precision: ClassVar[Precision] = "bfloat16"
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("bfloat16"),)
    threads: ClassVar[int] = stationary_plan.THREADS
    gradient_scale: ClassVar[int] = messages_plan.GRADIENT_SCALE

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        plan = StationaryPlan(setup.problem)
        require_warpgroups(setup.device, plan.blocks)
        batches = [pixels for pixels, _ in setup.tensors.batches]
        images = shares_of(setup.device, batches, plan, bits_of=bfloat16_bits, axes=(2, 0, 3, 1))
        self.prepare(setup, "grid/stationary_epoch.cu", "stationary_epoch", plan, images)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        return stationary_plan.misfit(problem, steps)


STAGE = grid_messages_fp16.STAGE.climb(
    "stationary-epoch",
    "Stationary epoch",
    words="a bfloat16 and a remainder for each weight",
    closest="deferred-epoch",
    launch=StationaryEpoch,
)
