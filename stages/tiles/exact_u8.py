"""Exact products: tensor cores at float32's precision, and images of one byte a pixel.

Why: float32 multiplies 128 pairs a cycle in a multiprocessor. Tensor cores are several times as fast, but round to 11
bits. A pixel has eight bits, yet 32 are read, twice a step.

Change: gemm. Every float32 is split into two tf32 parts, which keep 22 of its bits: three products instead of one.
They are added up outside of the tensor cores, which cut a long sum off. Images are bytes, 47 MB for MNIST, which fit
into L2. A pixel in 256ths is exact in tf32, so products of images take two. Preparation makes the bytes from the
float32 images; a batch's identity finds them.

Expect: as tf32 where latency is the bottleneck, softmax regression at 7.8 us and 784-256-10 at 13. 784-1024-10, batch
128, at 25 us, and 784-784x4-10, batch 64, at 55, where three products take their time. All of it is judged as
float32.

Predict: on H200: 784-10, batch 128: 7.8 us; 784-256-10, batch 128: 13 us; 784-1024-10, batch 128: 25 us; 784-784x4-10,
batch 64: 55 us.

Found: where latency is the bottleneck, three products and two roundings cost about what tensor cores save, so small
networks gain nothing beyond noise. Wide ones gain a sixth at most, far less than predicted. Fewer bytes of pixels do
not show, and float32's class needs sums outside of the tensor cores, which cost some of the gain.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.engine.workspace import Array, Setup
from stages.tiles import fused_bias
from stages.tiles.tile_gemm import TileGemm
from stages.tiles.tile_kernels import TileProducts


class ExactGemm(TileGemm):
    """Our tiles with two parts a factor, or cuBLASLt in float32; images as bytes."""

    precision: ClassVar[Precision] = "float32"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_split.cu", "tile_product_split")
    # high * high + high * low + low * high, without the last for pixels; or the library's float32
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("tf32", 3, image_products=2), Arithmetic("float32"))

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._of_images = TileProducts(setup, "tiles/tile_u8.cu", "tile_product_u8")
        self._bytes: dict[int, Array] = {}
        for images, _ in setup.tensors.batches:
            self._bytes[id(images)] = own = setup.device.empty(images.shape, np.uint8)
            own[...] = images * 256

    def own(self, a: Array) -> tuple[TileProducts, Array]:
        """A batch of images becomes bytes, with their kernel; other factors stay."""
        images = self._bytes.get(id(a))
        return (self._tiles, a) if images is None else (self._of_images, images)


STAGE = fused_bias.STAGE.climb(
    "exact-u8", "Exact tensor cores, byte images", words="float32 results from tensor cores", gemm=ExactGemm
)
