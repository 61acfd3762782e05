"""Allocate once: memory is allocated during preparation, as in every rung of the ladder.

Why: a pool finds in every step what it found in the step before. The tensors of a step are known beforehand.

Change: memory. All tensors keep theirs from preparation to the end. Every part equals `sparse-metrics`, for
comparison with the rungs above.

Expect: 1 to 2 us per step less than from the pool where the host is the bottleneck, else the same. Differences from
`sparse-metrics` are noise. No call to any allocator in any epoch.

Predict: on H200: 784-10, batch 128: 1 to 2 us less than alloc-pool.

Found: it does the same work as `sparse-metrics`, so their difference shows the noise of the host: a few per cent in the
study `allocators`, up to a third in an earlier recording. Against the pool no gain exceeds it, at any width. Once
cudaMalloc has left the step, how memory is found hardly matters.
"""

from __future__ import annotations

from stages.engine.parts import AllocatedOnce
from stages.memory import alloc_pool

STAGE = alloc_pool.STAGE.climb("alloc-arena", "Allocate once", memory=AllocatedOnce)
