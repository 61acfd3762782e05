"""Products run on tensor cores, with factors of 10 bits: TF32, without a graph.

Why: It is one line, which many a guide gives first.
Change: arithmetic: `torch.set_float32_matmul_precision("high")`.
Expect: No gain over `fused-optimizer` for small models, whose step the host bounds.
"""

from __future__ import annotations

from stages.torch import r4_fused_optimizer, r7_graph_tf32

RUNG = r4_fused_optimizer.RUNG.climb("tf32", "TF32 products", place="gpu", arithmetic=r7_graph_tf32.TF32)
