"""Resident images: what every rung of the ladder does, as one more of the ways to get a batch.

Why: however well a copy is hidden, it costs the host its calls in every step, and MNIST's 188 MB fit into any GPU.

Change: data. All images are copied to the device in float32 while preparing, and a batch is a view of them. It is
`sparse-metrics` again in every part, for comparison with the rungs below.

Expect: a copy, two records and two waits of the host's less: 8 to 10 us less a step where the host is the bound, and
the same as `sparse-metrics`: what these two differ by is noise. No byte is copied in an epoch without metrics.

Found: nothing to be seen of it in a trial: 47 and 57 us in its two runs, 45 and 47 in those of `sparse-metrics`, 44 and
48 where each batch is copied from pinned memory. Processes differ by more than these calls cost.
"""

from __future__ import annotations

from stages.data import r3_pinned_overlap
from stages.engine.parts import ResidentFloat32

STAGE = r3_pinned_overlap.STAGE.climb("resident-f32", "Keep the images on the GPU", data=ResidentFloat32)
