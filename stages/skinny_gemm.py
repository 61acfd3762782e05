"""Skinny GEMM: our own kernel for products that leave a library's idle, wherever it measures faster.

Why: a GPU has 132 multiprocessors, and a library cuts a product into tiles of 64 or 128 outputs a side for them. Those
of 10 columns or 32 rows are one or two tiles: with softmax regression cuBLASLt takes 5 to 6 us for each of its two, one
kernel that splits k and one more that adds up the parts, where a node of a graph takes 0.9 to 1.4 us.

Change: gemm. Small tiles, and k split over the warps of a block and the blocks of a cluster, which add up what they have
in a fixed order before they leave, with bias, ReLU, its mask or the weight update on the way: one kernel for each
product. Every way to cut a product, and the library, are timed while preparing; the fastest is kept on disk.

Expect: about 2 us for each of the products of softmax regression, 9 us a step instead of 16. 784-256-10, batch 128:
3.5 us for the two large products, which are 50 MFLOP each, 2 for the others, 18 us instead of 34. 784-1024-10: those are
four times as large, and the library is good at that size: little less than it took. 784-128x3-10, batch 32: eleven
products of 1.6 us and five other kernels, 25 us. 784-784x4-10, batch 64: 70 MFLOP a product, 80 us. 784-4096x3-10,
batch 32: nothing, since reading the weights is the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from common.cuda.fusion import Fusion
from stages import fused_epilogue
from stages.recipe import Precision
from stages.tiles import TileProducts
from stages.workspace import Array, Setup

Key = tuple[tuple[int, ...], tuple[int, ...], bool, bool, bool, float, float, Fusion | None]
Way = tuple[Callable[..., None], bool]  # what enqueues a product, and whether it is ours


class SkinnyGemm:
    """Our tiles or cuBLASLt, whichever is faster for the shapes of a product."""

    precision: ClassVar[Precision] = "float32"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas")
    kernel: ClassVar[tuple[str, str]] = ("tile_f32.cu", "tile_product_f32")

    def __init__(self, setup: Setup) -> None:
        from common.cuda.cublas import Matmul  # here, since a machine without cuBLAS lists the rung too

        self._tiles = TileProducts(setup, *self.kernel, scale=gradient_scale(setup.problem.batch_size))
        self._scaled = self.precision == "float16"
        self._library = Matmul(setup.device, self.precision)
        self._trials = setup.device.trials(f"{self.kernel[1]} or cuBLASLt")
        self._chosen: dict[Key, Way] = {}

    def __call__(
        self,
        a: Array,
        b: Array,
        out: Array,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue out (m, n) = alpha * op(a) @ op(b) + beta * out."""
        self._multiply(a, b, out, trans_a, trans_b, alpha, beta, None)

    def fused(self, a: Array, b: Array, out: Array, fusion: Fusion, *, trans_b: bool = False) -> None:
        """Enqueue out (m, n) = fusion of a @ op(b), in one kernel."""
        self._multiply(a, b, out, False, trans_b, 1.0, 0.0, fusion)

    def _multiply(
        self,
        a: Array,
        b: Array,
        out: Array,
        trans_a: bool,
        trans_b: bool,
        alpha: float,
        beta: float,
        fusion: Fusion | None,
    ) -> None:
        tiles, left = self.own(a)
        how = (trans_a, trans_b, alpha, beta, fusion)
        key = (a.shape, b.shape, tiles is self._tiles, *how)
        way = self._chosen.get(key)
        if way is None:
            cuts = tiles.cuts(out, a.shape[0 if trans_a else 1])
            ways: list[Way] = [(partial(tiles, cut), True) for cut in cuts]
            # What the bits of its masks mean is cuBLASLt's own business, and gradients it does not scale.
            if (fusion is None or fusion.mask is None) and not (self._scaled and (trans_a or trans_b)):
                ways.append((self._library, False))
            scratch = out.copy()  # with beta, trying would spoil what the product itself is to add to
            candidates = [partial(call, left if ours else a, b, scratch, *how) for call, ours in ways]
            for candidate in candidates:
                candidate()  # what it does at first only, now
            purpose = f"{out.shape} {key[:-1]} {fusion.kind if fusion else ''}"
            way = self._chosen[key] = ways[self._trials.fastest(purpose, candidates)]
        call, ours = way
        call(left if ours else a, b, out, *how)

    def own(self, a: Array) -> tuple[TileProducts, Array]:
        """Our kernel for products with this left factor, and the factor as that kernel takes it."""
        return self._tiles, a


def gradient_scale(batch: int) -> float:
    """A power of two by which gradients, means over a batch, are far from the least that a float16 holds.

    No logit's gradient is more than 1 / batch, so that it becomes 256 at most, and those of hidden layers are sums of
    these by the weights: 65,504 is far away. What is lost, numbers below 6e-5, is 2e-7 of the largest.
    """
    return 256.0 * 2.0 ** (batch - 1).bit_length()


STAGE = fused_epilogue.STAGE.climb("skinny-gemm", "Skinny GEMM", gemm=SkinnyGemm)
