"""CPU tiles: products with ten columns by hand-written kernels.

Why: BLAS packs both factors before it multiplies, and its tiles are 12 or more columns wide. With ten columns the
packing costs as much as the product, and lanes stay empty.

Change: gemm. Weights lie by class, so that vectors run over pixels and ten classes fill five registers twice: no lane
is empty and nothing is packed. Wide layers still use BLAS. `skinny-gemm` is its cousin.

Expect: the images are read from memory once forward and once for the update, 401 KB each: 60 us instead of 100 for
784-10. Nothing for hidden layers but the last.

Predict: on CPU: 784-10, batch 128: 1.7 x of cpu-one-call.

Found: it gains a little more than predicted: without packing and with all lanes in use, products reach about twice the
rate. The images' way from memory is now the limit, as `cpu-bytes` shows. Hidden layers gain nothing beyond noise, since
only their last layer has ten columns.
"""

from __future__ import annotations

from stages.cpu import one_call
from stages.cpu.products import TileGemm

STAGE = one_call.STAGE.climb(
    "cpu-tiles", "Tiles for ten columns", words="hand-written products for ten columns", gemm=TileGemm
)
