"""Last layer, bfloat16: as in last-layer, one kernel does the last layer, softmax and gradients.

Why: as for last-layer. The same time can be saved in a shorter step: 12.6 us in four kernels, and 1.5 between them.

Change: head. As in last-layer, on top of streamed-bf16. The last layer's products stay float32.

Expect: 784-4096x3-10, batch 32: 151 us per step instead of 161.

Predict: on H200: 784-4096x3-10, batch 32: 151 us.

Found: as in `last-layer`, the kernel takes twice the expected time, so 784-4096x3-10 gains nothing beyond noise.
784-128x3-10 gains about a tenth. In batches of 128 there is no gain: the kernel multiplies in float32, and on one
cluster, what the rungs below multiply in bfloat16.
"""

from __future__ import annotations

from stages.streamed import streamed_bf16
from stages.streamed.last_layer_head import LastLayerHead

STAGE = streamed_bf16.STAGE.climb(
    "last-layer-bf16",
    "Last layer in one kernel, bfloat16",
    words="last layer and softmax in one kernel",
    head=LastLayerHead,
)
