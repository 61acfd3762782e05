"""The recorded products run on tensor cores, with factors of 10 bits: TF32.

Why: Products in `compiled-graph` use float32's slower units.
Change: arithmetic: `torch.set_float32_matmul_precision("high")`.
Expect: 1.0 to 1.4 times as fast as `compiled-graph`; the larger the products, the more. Errors are some 1,000 times
eager's.
"""

from __future__ import annotations

from stages.torch import r6_compiled_graph
from stages.torch.training_step import Arithmetic

TF32 = Arithmetic("tf32", matmul="high")

RUNG = r6_compiled_graph.RUNG.climb("graph-tf32", "TF32 products", arithmetic=TF32)
