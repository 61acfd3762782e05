"""Fused epilogue: cuBLASLt adds the bias and takes the ReLU, or its gradient, before it writes a product.

Why: bias and ReLU are a kernel each that reads and writes a layer's outputs once more, and so is ReLU's gradient. The
outputs fit in the cache, so that what counts is from one node of the graph to the next: once for softmax regression,
three times more for each hidden layer.

Change: epilogue. The product adds the bias from registers; in hidden layers it also cuts off at 0, and leaves a bit for
each output, which the product of the backward pass takes for its mask. Bias gradients stay with the update.

Expect: add_bias gone, 1.2 us on an H200: 13.5 us instead of 14.7 for softmax regression. Four kernels less with a
hidden layer of 256, 28.5 us instead of 33.5, and ten less with three of 128, 12 us. The cost would be a product for
which cuBLASLt has fewer algorithms once it has an epilogue: 10 columns need one that splits k, where the epilogue moves
to the kernel that adds up the parts.

Found: 0.5 us less for softmax regression (16.2) and 2.1 with a hidden layer of 256 (34.2). The kernel that adds up a
split product takes 0.5 us longer with bias and ReLU in it, and for ReLU's gradient cuBLASLt launches a kernel of its
own (globalKernel, 1.5 us): that one is not fused at all, only no longer ours.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from common.cuda.epilogue import Fusion, mask_shape
from stages.engine.parts import SeparateEpilogue
from stages.engine.recipe import FusingGemm
from stages.engine.workspace import Array, Setup
from stages.fusion import r2_fused_update


class FusedEpilogue(SeparateEpilogue):
    """Bias and ReLU inside the products.

    A NaN is 0 to the library's ReLU; parameters that are NaN stay so, by which a broken run is seen.
    """

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas")

    def __init__(self, setup: Setup, gemm: FusingGemm) -> None:
        super().__init__(setup, gemm)
        tensors, empty = setup.tensors, setup.device.empty
        *hidden, last = tensors.biases
        masks = [empty(mask_shape(*output.shape), np.uint8) for output in tensors.outputs[:-1]]
        self._product = gemm.fused
        self._on_the_way_forward = [
            *(Fusion("relu_bias", bias, mask) for bias, mask in zip(hidden, masks, strict=True)),
            Fusion("bias", last),
        ]
        self._on_the_way_back = [Fusion("relu_backward", mask=mask) for mask in masks]

    def forward(self, layer: int, inputs: Array) -> None:
        """outputs[layer] (B, O) = ReLU(inputs @ weight + bias); the logits keep their sign."""
        tensors = self._tensors
        self._product(inputs, tensors.weights[layer], tensors.outputs[layer], self._on_the_way_forward[layer])

    def backward(self, layer: int) -> None:
        """doutputs[layer - 1] (B, I) = doutputs[layer] @ weight.T, cut off where ReLU was."""
        tensors, doutput = self._tensors, self._tensors.doutputs[layer]
        if doutput.shape[1] == 1:  # cuBLASLt has no ReLU gradient for products with k = 1
            super().backward(layer)
            return
        fusion = self._on_the_way_back[layer - 1]
        self._product(doutput, tensors.weights[layer], tensors.doutputs[layer - 1], fusion, trans_b=True)


STAGE = r2_fused_update.STAGE.climb("fused-epilogue", "Fused epilogue", epilogue=FusedEpilogue)
