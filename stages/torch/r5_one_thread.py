"""PyTorch computes in one thread, on a CPU.

Why: Operations of a small model are shorter than the time that threads take to meet.
Change: threads: one instead of one a core.
Expect: 0.8 to 1.5 times as fast as `fused-optimizer` on two cores: the smaller the model, the more it gains.
"""

from __future__ import annotations

from stages.torch import r4_fused_optimizer

RUNG = r4_fused_optimizer.RUNG.climb("one-thread", "one thread of the CPU", place="cpu", threads=1)
