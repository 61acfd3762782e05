"""CPU fused head: one kernel computes softmax, gradient and totals, with exponentials that vectors compute.

Why: the softmax calls the C library for each of 1,280 exponentials, one at a time, and two calls pass over the same
5 KB.

Change: head, by the same part as `fused-head`. The exponential is a polynomial, so that one loop over all logits can
use vectors.

Expect: some 8 us less a step: 1,280 exponentials at 6 ns become 1,280 at 0.5 ns, and one call less.

Predict: on CPU: 784-10, batch 128: 8 us less than cpu-sparse-metrics.

Found: about half of the estimate is gained, which is within noise. Products are more than four fifths of a step, so
what the head saves hardly shows; why it saves less than estimated is not explained. Hidden layers show nothing of it.
"""

from __future__ import annotations

from stages.cpu import sparse_metrics
from stages.fusion.fused_head import FusedHead

STAGE = sparse_metrics.STAGE.climb(
    "cpu-fused-head", "Fused head", words="softmax, loss and gradient in one kernel", head=FusedHead
)
