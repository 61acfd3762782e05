"""CPU wide tiles: products of wide layers by hand-written kernels, which pack nothing.

Why: BLAS copies both factors of each product into tiles before it multiplies: 1.2 MB a step in 784-256-10. Each core
packs all weights again for its half of the images. In the update of a bias, one sum waits for the other.

Change: launch. The cores' products of layers with more than sixteen columns are tiles of explicit vectors. Weights lie
by unit, so that a forward tile sums two images by six units along contiguous pixels. A tile of the update keeps six
units by two vectors of pixels in registers, and adds them to the weights. The same tiles sum the gradient of a bias.

Expect: two products of 51 MFLOP a step in 784-256-10. BLAS computes each in some 690 us on one core, tiles in 570, of
which two cores need half: 600 us instead of 1,150. With 784-128x3 in batches of 32 likewise, 1.3 x.

Predict: on CPU with 2 cores: 784-256-10, batch 128: 1.4 x of cpu-cores; 784-128x3-10, batch 32: 1.3 x of cpu-cores.

Found: it gains far more than predicted: about twice the speed of `cpu-cores`, or more. By the profile of 784-256-10
most of the gain is products, and a quarter of it time in which one core waited for the other. Tiles also exceed the
rate that NumPy's own product reached beside them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from common.problem import Problem
from stages.cpu import cores
from stages.cpu.cores import CoresEpoch
from stages.cpu.products import FEW_COLUMNS, Product, TileGemm, strides
from stages.engine.workspace import Array, Setup

ONE = np.ones(1, np.float32)


class WideTileGemm(TileGemm):
    """Tiles for every product of a training step on the CPU, whose weights lie by unit."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._inner = setup.device.kernel("", "inner_product")
        self._outer = setup.device.kernel("", "outer_product")

    def _tile(self, product: Product) -> tuple[Any, Any]:
        """A kernel with its arguments; none is left to BLAS."""
        kernel, arguments = super()._tile(product)
        if kernel is not None:
            return kernel, arguments
        a, b, out, trans_a, trans_b, alpha, beta = product
        if trans_a:  # weights (I, O), stored (O, I), += alpha * inputs (B, I).T @ doutput (B, O)
            left, right, target = b.T, a, out.T
        elif trans_b:  # out (B, I) = doutput (B, O) @ weights (I, O).T
            left, right, target = a, b.T, out
        else:  # out (B, O) = inputs (B, I) @ weights (I, O)
            sizes = (*out.shape, a.shape[1])
            return self._inner, (a, strides(a)[0], b, strides(b)[1], out, strides(out)[0], *sizes)
        placed = (left, *strides(left), right, strides(right)[0], target, strides(target)[0])
        return self._outer, (*placed, *target.shape, left.shape[1], float(alpha), int(beta != 0))

    def update_bias(self, bias: Array, doutput: Array, rate: float) -> None:
        """Bias (O,) -= rate * doutput (B, O) summed over the batch: a product with ones."""
        rows, columns = doutput.shape
        placed = (ONE, 0, 0, doutput, strides(doutput)[0], bias, columns)
        self._outer.run(*placed, 1, columns, rows, -float(rate), 1)


class WideEpoch(CoresEpoch):
    """An epoch on all cores by tiles alone."""

    gemm = WideTileGemm

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Why a problem does not fit; empty if it does."""
        if all(layer.fan_out <= FEW_COLUMNS for layer in problem.layers):
            return f"Needs a layer of more than {FEW_COLUMNS} units."
        return ""


STAGE = cores.STAGE.climb(
    "cpu-wide-tiles", "Tiles for wide layers", words="hand-written products for wide layers too", launch=WideEpoch
)
