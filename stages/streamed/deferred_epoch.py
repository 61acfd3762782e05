"""Deferred epoch: hidden layers are updated every second or fourth step, for all steps since at once.

Why: streaming-epoch moves ten bytes a weight and step: two read forward, four read and four stored backward. With 4,096
units and more the step is these bytes.

Change: launch. x W(t + 1) = x W(t) - rate (x A^T) D, where A and D are inputs and gradients of a layer in the step
before. So a step that does not update keeps A and D in memory, and leaves weights as they are; those after it add both
small products to those with old weights, forward and backward, until one makes all pending updates at once. It is the
same descent, and an epoch ends with an update. Biases and the last layer are updated in each step. Of ten bytes seven
are left if every second step updates, and five and a half if every fourth does. What is kept stays in L2; its inputs
come through the ring. Every fourth step updates where weights are more than 100 MB in batches of up to 32, else every
second: below that, an experiment gained nothing by four.

Expect: an experiment without products took 112, 79.6 and 68.7 us for 784-4096x3-10 on an H200, with an update every
step, every second and every fourth; with 8,192 units 394, 270 and 219; 784-2048x4-10 in batches of 64 took 54.6 and
46.6. A step has further sums that streams do not hide, and six slots of the ring instead of eight: 78 to 88 us for
784-4096x3-10, where every second step took 91; 140 to 170 for two layers of 8,192, where streaming-epoch took 207; 48
to 55 for 784-2048x4-10, where it took 56.

Predict: on H200: 784-4096x3-10, batch 32: 78 to 88 us; 784-8192x2-10, batch 32: 140 to 170 us; 784-2048x4-10,
batch 64: 48 to 55 us; 784-2048x3-10, batch 32: 27 to 30 us.

Found: with an update every second step 784-4096x3-10 gains a seventh, the least that was expected, and 784-2048x3-10 a
twentieth. With 4,096 units streams alone take 65 us, and a step without sums over blocks 72: so these sums take the
other 20. The shorter ring costs little: with four slots a step takes at most 3 % more.
"""

from __future__ import annotations

from common.problem import Problem
from stages.streamed import streaming_epoch
from stages.streamed.epoch_plan import EpochPlan


class DeferredEpoch(streaming_epoch.StreamingEpoch):
    """An epoch whose hidden layers change every few steps; MisfitError for a problem or a GPU that does not fit."""

    @classmethod
    def period(cls, problem: Problem) -> int:
        """Four if the weights are far more than L2 holds, and batches small; else two."""
        return 4 if EpochPlan(problem).outgrows_l2 and problem.batch_size <= 32 else 2


STAGE = streaming_epoch.STAGE.climb(
    "deferred-epoch", "Deferred epoch", words="several steps' updates of hidden layers at once", launch=DeferredEpoch
)
