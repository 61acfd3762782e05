"""All allocated once: what every rung of the ladder does, as the last of the ways to get memory.

Why: a pool finds out in every step what it found in the step before. The tensors of a step are known beforehand.

Change: memory. All tensors have theirs from the preparation to the end. It is `sparse-metrics` again in every part, for
comparison with the rungs below.

Expect: 1 to 2 us a step less than from the pool where the host is the bound, else the same, and the same as
`sparse-metrics`: what these two differ by is noise. No call to any allocator in any epoch.
"""

from __future__ import annotations

from stages.engine.parts import AllocatedOnce
from stages.memory import r3_alloc_pool

STAGE = r3_alloc_pool.STAGE.climb("alloc-arena", "Allocate once", memory=AllocatedOnce)
