"""Deferred epoch: hidden layers are updated every second step, for both steps at once.

Why: streaming-epoch moves ten bytes a weight and step: two read forward, four read and four stored backward. With 4,096
units and more the step is these bytes.

Change: launch. x W(t + 1) = x W(t) - rate (x A^T) D, where A and D are inputs and gradients of a layer in the step
before. So every even step keeps A and D in memory, and leaves weights as they are; every odd step adds both small
products to those with old weights, forward and backward, and then makes both steps' updates at once. It is the same
descent, and an epoch ends with an update. Biases and the last layer are updated in each step. Seven bytes a weight and
step are left.

Expect: an experiment without products took 79.6 us for 784-4096x3-10 on an H200, where 112 were those of every step.
What is kept takes two of eight slots of the ring; corrections and waits for what is kept take some 3 us: 84 to 93 us
instead of 110.7, and 29 to 33 for 784-2048x3-10 instead of 33.7. Batches of 64 leave too few slots for 784-2048x4-10.

Predict: on H200: 784-4096x3-10, batch 32: 84 to 93 us; 784-2048x3-10, batch 32: 29 to 33 us.

Found: 784-4096x3-10 gains a seventh, the least that was expected, and 784-2048x3-10 a twentieth. With 4,096 units
streams alone take 65 us, and a step without sums over blocks 72: so these sums take the other 20. The shorter ring
costs little: with four slots a step takes at most 3% more.
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed import streaming_epoch


class DeferredEpoch(streaming_epoch.StreamingEpoch):
    """An epoch whose hidden layers change every second step; MisfitError for a problem or a GPU that does not fit."""

    deferred: ClassVar[bool] = True


STAGE = streaming_epoch.STAGE.climb(
    "deferred-epoch", "Deferred epoch", words="two steps' updates of hidden layers at once", launch=DeferredEpoch
)
