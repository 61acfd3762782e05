"""The recorded step computes products in bfloat16: autocast.

Why: Products in `compiled-graph` use float32's slower units, and activations take four bytes each.
Change: arithmetic: `torch.autocast` in bfloat16.
Expect: 0.85 to 1.7 times as fast as `compiled-graph`: conversions cost kernels, which only larger products repay.
"""

from __future__ import annotations

from stages.torch import r6_compiled_graph
from stages.torch.training_step import Arithmetic

BF16 = Arithmetic("bfloat16", autocast=True)

RUNG = r6_compiled_graph.RUNG.climb("graph-bf16", "bfloat16 autocast", arithmetic=BF16)
