"""Resident images: all images stay on the GPU as float32, as in every rung of the ladder.

Why: even a hidden copy costs the host its calls in every step, and MNIST's 188 MB fit into any GPU.

Change: data. Preparation copies all images to the device as float32, and a batch is a view of them. Every part equals
`sparse-metrics`, for comparison with the rungs above.

Expect: the host makes one copy, two records and two waits less: 8 to 10 us less a step where the host is the
bottleneck. Differences from `sparse-metrics` are noise. No byte is copied in an epoch without metrics.

Predict: on H200: 784-10, batch 128: 8 to 10 us less than pinned-overlap.

Found: no difference in a trial of softmax regression: 47 and 57 us in two runs, 45 and 47 for `sparse-metrics`, 44
and 48 with pinned copies; processes differ by more than these calls cost. Recorded on an H200 (study `data-path`):
121 us for 784-256-10 with batches of 128 (`sparse-metrics` 114), 787 and 783 for 784-4096-10 with batches of 2,048, but
119 and 158 for 784-256-10 with batches of 2,048. That difference is noise, too: an earlier recording had 169 and 118.
"""

from __future__ import annotations

from stages.data import r3_pinned_overlap
from stages.engine.parts import ResidentFloat32

STAGE = r3_pinned_overlap.STAGE.climb("resident-f32", "Keep the images on the GPU", data=ResidentFloat32)
