"""CPU one call: an epoch is one call from Python, which replays the recorded kernels.

Why: Python spends about a microsecond and a half on each call of a kernel, and a step has five.

Change: launch, by the same part as `cuda-graph`. The epoch's calls are recorded once, as addresses of functions and of
their arguments. A compiled loop goes through the list.

Expect: five calls of 1.5 us: 7 us per step less for every network.

Predict: on CPU: 784-10 and 784-256-10, batch 128: 7 us less than cpu-fused-update.

Found: it gains more than predicted, since a call from Python costs more than was assumed, though the gain is within
noise. After it, products are nearly all of a step. The longer they are, the less it matters: in 784-256-10 it hardly
shows.
"""

from __future__ import annotations

from stages.classic.cuda_graph import GraphEpoch
from stages.cpu import fused_update

STAGE = fused_update.STAGE.climb(
    "cpu-one-call", "One call per epoch", words="one call from Python per epoch", launch=GraphEpoch
)
