"""Resident images: all images stay on the GPU as float32, as in every rung of the ladder.

Why: even a hidden copy costs the host its calls in every step, and MNIST's 188 MB fit into any GPU.

Change: data. Preparation copies all images to the device as float32, and a batch is a view of them. Every part equals
`sparse-metrics`, for comparison with the rungs above.

Expect: the host makes one copy, two records and two waits less: 8 to 10 us less a step where the host is the
bottleneck. Differences from `sparse-metrics` are noise. No byte is copied in an epoch without metrics.

Predict: on H200: 784-10, batch 128: 8 to 10 us less than pinned-overlap.

Found: a step has no copy and fewer calls, yet no gain over hidden copies exceeds noise (study `data-path`): processes
differ by more than the calls cost. It does the same work as `sparse-metrics`, and two recordings had them apart by a
quarter or more, one either way.
"""

from __future__ import annotations

from stages.data import pinned_overlap
from stages.engine.parts import ResidentFloat32

STAGE = pinned_overlap.STAGE.climb("resident-f32", "Keep the images on the GPU", data=ResidentFloat32)
