"""CPU BLAS: the matrix products come from the BLAS library.

Why: products are nearly all of the step, and a loop that adds one number at a time uses one of sixteen lanes of one
of two units. BLAS keeps tiles of the product in registers, in an order that vectors can compute.

Change: gemm. Products by SciPy's BLAS on one thread, as `cublas` takes NVIDIA's.

Expect: ten times or more for softmax regression, though ten columns are few for a library that is tuned for hundreds:
150 us instead of 2,000.

Predict: on CPU: 784-10, batch 128: 10 to 14 x of cpu-loops.

Found: it is about nine times as fast, a little less than predicted. With ten columns BLAS reaches less than a third of
the rate of a square product on a core: it packs both factors, and its tiles are wider. So products stay three quarters
of a step.
"""

from __future__ import annotations

from stages.cpu import loops
from stages.cpu.products import BlasGemm

STAGE = loops.STAGE.climb("cpu-blas", "BLAS", words="BLAS matrix products", gemm=BlasGemm)
