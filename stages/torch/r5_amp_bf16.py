"""Products are computed in bfloat16: autocast, without a graph.

Why: It is two lines, which many a guide gives first.
Change: arithmetic: `torch.autocast` in bfloat16.
Expect: 0.7 to 0.9 times as fast as `fused-optimizer` for small models: the host launches more kernels.
"""

from __future__ import annotations

from stages.torch import r4_fused_optimizer, r7_graph_bf16

RUNG = r4_fused_optimizer.RUNG.climb("amp-bf16", "bfloat16 autocast", arithmetic=r7_graph_bf16.BF16)
