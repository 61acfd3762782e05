"""Last layer: one kernel on a cluster of blocks does the last layer, softmax and all their gradients.

Why: with three hidden layers of 4,096 the last layer has 41,000 weights of 37 million, and takes 14 us of a step's
201: a product that occupies 16 blocks, the head, the gradient of the layer's inputs, and the update. Each waits for
the previous kernel and fetches its results from memory.

Change: head. Sixteen multiprocessors divide the layer's inputs. Each reads its inputs and their weights once, for
both passes; they exchange 1.3 KB of logits. Products are plain float32: 8 MFLOP. For networks with hidden layers; a
multiprocessor's memory limits batch and width.

Expect: 784-4096x3-10, batch 32: one kernel of 4.5 us where four take 12.5 to 14, with 1.5 between them: 191 us per step
instead of 201. The same gain at any streamed width, so relatively less in wider layers.

Predict: on H200: 784-4096x3-10, batch 32: 191 us.

Found: the kernel takes twice the expected time, since loading, both passes and two barriers follow each other on one
cluster (docs/notebook/last-layer.md). So 784-4096x3-10 gains less than expected, within noise, and 784-128x3-10 most,
an eighth. In batches of 128 the cluster has four times as many rows, and gains little while 116 multiprocessors idle.
"""

from __future__ import annotations

from stages.streamed import streamed
from stages.streamed.last_layer_head import LastLayerHead

STAGE = streamed.STAGE.climb(
    "last-layer", "Last layer in one kernel", words="last layer and softmax in one kernel", head=LastLayerHead
)
