"""Planes, dependent launches: each kernel starts early, and its first weights are on their way.

Why: between two kernels of ring-planes memory idles: the first tile of each takes a microsecond, the sums over blocks
at its end another, and the last layer's nine microseconds occupy 16 of 132 multiprocessors.

Change: launch. As in dependent-launch, each kernel is a programmatic dependent of the one before. A ring fills its
slots with weights before it waits: they were updated by a kernel that is complete, since each ring lets the next kernel
start only after its own wait. The first layer forward waits first, as the kernel before updates its weights.

Expect: 2 us less for each of six kernels, and 5 for the last layer: 12 to 17 us less than ring-planes, of 167.5 on an
H100. In batches of 64, 80 to 96 us for 784-2048x4-10 on an H200, where rungs without a ring take 186.

Predict: on H100: 784-4096x3-10, batch 32: 10 to 18 us less than ring-planes.

Found: 784-4096x3-10 gains less than predicted, on an H200 nothing beyond noise. Inferred: a ring takes all shared
memory, so the next one's blocks start only where others have ended. 784-128x3-10 gains a sixth, since starts of kernels
are much of its step, but `last-layer-bf16` stays faster there.
"""

from __future__ import annotations

from stages.streamed import ring_planes
from stages.tiles.dependent_launch import DependentEpoch

STAGE = ring_planes.STAGE.climb(
    "planes-dependent",
    "Planes, dependent launches",
    words="each kernel starts before the last one ends",
    launch=DependentEpoch,
)
