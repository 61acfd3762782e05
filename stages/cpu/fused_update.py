"""CPU fused update: the product of the weight gradient subtracts it from the weights at once.

Why: the gradient goes to memory and comes back to be subtracted; nothing else needs it.

Change: update, by the same part as `fused-update`: BLAS's alpha and beta.

Expect: 31 KB less to write and to read, all in L1 or L2: 3 us of 784-10. With a hidden layer of 256, 0.8 MB pass
through L2 twice: 40 us.

Predict: on CPU: 784-10, batch 128: 3 us less than cpu-fused-head; 784-256-10, batch 128: 40 us less than
cpu-fused-head.

Found: no recorded network gains beyond noise, not even 784-256-10, where most was expected. The product that also reads
the old weights takes about as long as product and update had taken together. The gradient's bytes stay in the caches,
where they are cheap.
"""

from __future__ import annotations

from stages.cpu import fused_head
from stages.fusion.fused_update import FusedUpdate

STAGE = fused_head.STAGE.climb(
    "cpu-fused-update", "Fused update", words="weight update inside its product", update=FusedUpdate
)
