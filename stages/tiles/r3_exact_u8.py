"""Exact products: tensor cores with the precision of float32, and images of one byte a pixel.

Why: float32 multiplies at 128 pairs a cycle in a multiprocessor; tensor cores are several times as fast, but know
eleven bits. And a pixel has eight bits, for which 32 are read, twice a step.

Change: gemm. Every float32 is split in two parts of tf32, which keep 22 bits of it together: three products in place of
one. Images are kept in bytes, 47 MB for MNIST, which fit into L2; a pixel is a 256th, exact in tf32, so that products
of images take two. They are made from the float32 images while preparing, and found again by which batch it is.

Expect: as tf32 where latency is the bound, softmax regression at 7.8 us and 784-256-10 at 13; 784-1024-10, batch 128,
at 25 us, and 784-784x4-10, batch 64, at 55, where three products take their time. All of it judged as float32.

Found: in the same trial 9.2, 24.7, 35.4, 36.0, 94 and 325 us. Against fused-bias that is 3 to 8 % less for wide
layers and 1 to 6 % more for the others: where latency is the bound, three products and two roundings cost what they
save in instructions, and fewer bytes of pixels do not show.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stages.engine.recipe import Precision
from stages.engine.workspace import Array, Setup
from stages.tiles import r2_fused_bias
from stages.tiles.tile_gemm import TileGemm
from stages.tiles.tile_kernels import TileProducts


class ExactGemm(TileGemm):
    """Tiles in two halves, or cuBLASLt in float32; batches of images from bytes."""

    precision: ClassVar[Precision] = "float32"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_split.cu", "tile_product_split")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._of_images = TileProducts(setup, "tiles/tile_u8.cu", "tile_product_u8")
        self._bytes: dict[int, Array] = {}
        for images, _ in setup.tensors.batches:
            self._bytes[id(images)] = own = setup.device.empty(images.shape, np.uint8)
            own[...] = images * 256

    def own(self, a: Array) -> tuple[TileProducts, Array]:
        """Images as bytes, and the kernel for those."""
        images = self._bytes.get(id(a))
        return (self._tiles, a) if images is None else (self._of_images, images)


STAGE = r2_fused_bias.STAGE.climb("exact-u8", "Exact tensor cores, byte images", gemm=ExactGemm)
