"""Large batch: activations, images and weights as float16 halves in memory; few kernels a step.

Why: with batches of thousands the rungs above multiply float32 numbers in memory on the GPU's slowest unit, or round
them on their way into tensor cores, which reads four bytes for two. Activations travel to memory and back between
kernels: a batch of 8,192 has 8 MB of them for 256 units, and four kernels read or write them.

Change: launch. Numbers of a product are float16 halves in memory: two for float32's class, and one for a pixel, which
is exact. cuBLASLt multiplies images by the halves of the weights, side by side as one matrix. One kernel adds bias and
ReLU and goes through the last layer, softmax and back, sixteen images at a time, on tensor cores. cuBLASLt multiplies
its gradient by the images, in as many parts of the batch as measured fastest. A last kernel adds up these parts and the
head's small gradients, updates all parameters and writes the halves of the weights. With several hidden layers the one
kernel takes images through all of them and back, with their weights in shared memory, and cuBLASLt multiplies all their
weight gradients at once, a fifth kernel on a branch of the graph beside the first layer's gradient.

Expect: 784-256-10 in batches of 8,192: 13 us for the first product, 8 for the head, 15 for the weight gradient, 3 for
the update, 39 us instead of 260. 20 us at 2,048 and 13.5 at 512, where each kernel takes 2 to 4 us. 784-128x3-10 at
8,192 on an H100: 8 us, 12 for the layers, 8 and 5 for the weight gradients and 4, so 37 us.

Predict: on H200: 784-256-10, batch 8192: 39 us; 784-256-10, batch 2048: 20 us; 784-256-10, batch 512: 13.5 us.

Found: from 512 images on a step of 784-256-10 is three to six times as fast as `cuda-graph` (study `batch-size`).
Estimates are met up to 2,048 images; at 8,192 the head is slower than expected, and with three hidden layers the kernel
for all of them by far (docs/notebook/large-batch.md). At 512 latency binds: a quarter of the images takes nearly as
long.
"""

from __future__ import annotations

from stages.classic import r6_cuda_graph
from stages.large_batch.halves_epoch import HalvesEpoch

STAGE = r6_cuda_graph.STAGE.climb(
    "large-batch",
    "Large batch, halves",
    words="float16 halves in memory, few kernels a step",
    group="beyond",
    launch=HalvesEpoch,
)
