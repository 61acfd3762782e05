"""Last layer: its products, the softmax and the whole way back are one kernel, in one cluster of blocks.

Why: for three hidden layers of 4,096 the last layer has 41,000 weights of 37 million, and takes 14 us of a step's 201:
a product that finds work for 16 blocks, the head, the gradient of the layer's inputs and the update, each behind the
one before it, and each fetches what that one left in memory.

Change: head. Sixteen multiprocessors share out the layer's inputs. Each reads its own once, with their weights, and has
them for both passes; what they tell each other is 1.3 KB of logits. In plain float32: it is 8 MFLOP. For networks with
hidden layers; what a multiprocessor holds bounds batch and width.

Expect: 784-4096x3-10, batch 32: one kernel of 4.5 us where four take 12.5 to 14, and 1.5 lie between them: 191 us a
step instead of 201; as much for any width that is streamed, and so less the wider a layer is.

Found: 194 us in place of 201, since the kernel takes 8.7 us, not 4.5. By marks in it, in a trial, 1.3 us go to loading,
1.4 forward, 2.0 to the cluster's two barriers and the softmax between them, 2.0 back, 1.4 to the update. A first
version, whose blocks all took every softmax, needed 13 us, and gained nothing (docs/notes.md).
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed import r1_streamed
from stages.streamed.last_layer_head import LastLayerHead


class ExactLastLayer(LastLayerHead):
    """Among exact products."""

    rung: ClassVar[str] = "last-layer"
    below: ClassVar[str] = "streamed"


STAGE = r1_streamed.STAGE.climb("last-layer", "Last layer in one kernel", head=ExactLastLayer)
