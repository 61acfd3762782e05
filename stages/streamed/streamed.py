"""Streamed: wide layers' weights are copied ahead, and read and written once in the backward pass.

Why: with three hidden layers of 4,096 memory is the bottleneck: 147 MB of weights, of which caches hold little. The
backward pass reads them for the gradient of the layer's inputs, then reads them again to update and write them: 192
MB for a layer instead of 128. Warps ask for their next numbers only when they begin to multiply the last.

Change: gemm. The gemm withholds the product of a gradient with weights until the next call, which asks for the update
of the same weights. One kernel then does both and keeps the weights in registers in between. There, forward, and in
the first layer's update, asynchronous copies fetch the next weights, 256 bytes of a row at once. L2 keeps the same
share of the weights from pass to pass. Its parent's kernels stay where they measure faster, or where a size does
not fit, for example more than 32 rows.

Expect: for 784-4096x3-10, batch 32, 50 us for a layer's backward pass where two kernels take 97, and 28 forward
instead of 33: 205 us per step, where three earlier versions took 285, 234 and 250 (docs/notebook/streamed.md). After a
fourth took 218: 200, by L2's share, and by a first layer's update without the unused gradient of the images.

Predict: on H200: 784-4096x3-10, batch 32: 200 us.

Found: as predicted, after four versions that missed: weights that are read and written once, copies ahead and fewer
instructions make 784-4096x3-10 half as fast again. Copies do not bind it yet: all warps meet at every piece, which
`streamed-ring` avoids. The five narrower networks of the records gain nothing beyond noise (docs/notebook/streamed.md).
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed.streamed_gemm import StreamedGemm
from stages.tiles import exact_u8
from stages.tiles.exact_u8 import ExactGemm


class ExactStreamed(StreamedGemm, ExactGemm):
    """Streamed products with two tf32 parts a factor."""

    streamed: ClassVar[tuple[str, str, str]] = (
        "streamed/streamed_split.cu",
        "streamed_forward_split",
        "streamed_back_split",
    )


STAGE = exact_u8.STAGE.climb(
    "streamed", "Streamed weights", words="weights read once for gradient and update", gemm=ExactStreamed
)
