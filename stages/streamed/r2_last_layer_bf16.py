"""Last layer, bfloat16: as in last-layer, one kernel does the last layer, softmax and gradients.

Why: as for last-layer. The same time can be saved in a shorter step: 12.6 us in four kernels, and 1.5 between them.

Change: head. As in last-layer, on top of streamed-bf16. The last layer's products stay float32.

Expect: 784-4096x3-10, batch 32: 151 us a step instead of 161.

Predict: on H200: 784-4096x3-10, batch 32: 151 us.

Found: recorded on an H200: {784-4096x3-10} us instead of {streamed-bf16 784-4096x3-10} for 784-4096x3-10, since the
kernel takes 8.7 us and not 4.5. {784-128x3-10} instead of {streamed-bf16 784-128x3-10} for 784-128x3-10 in batches of
32, {784-784x4-10} instead of {streamed-bf16 784-784x4-10} for 784-784x4-10, no gain for 784-1024-10.
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed import r1_streamed_bf16
from stages.streamed.last_layer_head import LastLayerHead


class BFloat16LastLayer(LastLayerHead):
    """The last layer below products in bfloat16."""

    below: ClassVar[str] = "streamed-bf16"


STAGE = r1_streamed_bf16.STAGE.climb(
    "last-layer-bf16",
    "Last layer in one kernel, bfloat16",
    words="last layer and softmax in one kernel",
    head=BFloat16LastLayer,
)
