"""Large batch, wide layers: the library multiplies float16 activations of any widths, and applies ReLU both ways.

Why: large-batch-fp16 takes several hidden layers of at most 256 units, since one kernel keeps their weights on the
chip. Wider layers in batches of hundreds are left to rungs that move float32 activations: 744-1263-424-1991-6 in
batches of 538 takes 143 us per step, and jax-scan-bf16 163.

Change: launch. Images, outputs, gradients and weights are float16 in memory, padded to multiples of eight, so that
tensor cores read them as they lie. A product cuts off at 0 and leaves a mask, the next one back reads it. A column of
ones behind each matrix has the biases as its weights: their gradients come with the others. Weight gradients are
multiplied on a branch of the graph. One kernel has the softmax, and one updates all parameters.

Expect: a chain of two products for each layer, of 3 to 5 us each where latency binds, and 6 us for softmax and update:
744-1263-424-1991-6 at 538 images 48 us, 68-51-991-22 at 4,321 38 us instead of 120, 95-179-885-154-12 at 681 42 us
instead of 63, 119-18-19-360-343-18 at 2,019 52 us instead of 91. With one hidden layer large-batch-fp16 is faster.

Predict: on H200: 744-1263-424-1991-6, batch 538: 48 us; 68-51-991-22, batch 4321: 38 us.

Found: estimates are missed by a tenth to two thirds, most where layers are wide or images many: memory binds there, not
latency. It is still 1.1 to 3.9 times as fast as the rungs before on nine networks with batches of 254 to 6,145
(docs/notebook/large-batch.md). At 128 images grid-bf16 is faster.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from common.cost import Arithmetic, Weights
from common.cuda.epilogue import Fusion, mask_shape
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import cuda_graph
from stages.engine.parts import blocks, float32, int32
from stages.engine.recipe import Metrics, Precision, RunStep
from stages.engine.workspace import MOST_ELEMENTS, Array, Setup
from stages.large_batch import large_batch_fp16
from stages.large_batch.layout import Macros, up
from stages.tiles.tile_gemm import gradient_scale

# padded_layers.cu
MULTIPLE, ALIGNMENT = 8, 128  # numbers: of a matrix's rows and columns; of its begin
THREADS, ROWS = 256, 8  # of a block; of the softmax
BESIDE = 0  # the branch of the weight gradients


def shapes(problem: Problem) -> list[tuple[int, int]]:
    """Rows and columns of each layer's padded weights: a row more of biases, and a column more that makes ones."""
    *hidden, last = problem.layers
    sizes = [*((la.fan_in + 1, la.fan_out + 1) for la in hidden), (last.fan_in + 1, last.fan_out)]
    return [(up(rows, MULTIPLE), up(columns, MULTIPLE)) for rows, columns in sizes]


def macros(problem: Problem, weights: list[int], biases: list[int]) -> Macros:
    """Those of padded_layers.cu; `weights` and `biases` are the begins of the layers' parameters."""
    layers = zip(problem.layers, weights, biases, strict=True)
    numbers = itertools.chain.from_iterable((la.fan_in, la.fan_out, *begins) for la, *begins in layers)
    return ("FACTOR_HALVES", "1"), ("LAYERS", ",".join(map(str, numbers)))


class WideEpoch(cuda_graph.EpochByItself):
    """An epoch on padded float16 matrices, as a graph: three products a layer, and two kernels."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    regime: ClassVar[Regime] = "graph"
    precision: ClassVar[Precision | None] = "float16"
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)
    weights: ClassVar[Weights | None] = "gradients"

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, self._tensors, self._device = setup.problem, setup.tensors, setup.device
        self._problem, batch = problem, problem.batch_size
        parameters, sizes = setup.tensors.parameters, shapes(problem)
        self._halves, self._weights = self._matrices(sizes, np.float16)
        self._gradients, self._by_layer = self._matrices(sizes, np.float32)
        for layer, weights in zip(problem.layers[:-1], self._weights, strict=False):
            weights[layer.fan_in, layer.fan_out] = 1
        widths = [columns for _, columns in sizes]
        self._outputs = [self._zeros((batch, width), np.float16) for width in widths[:-1]]
        self._douts = [self._zeros((batch, width), np.float16) for width in widths]
        self._logits = self._zeros((batch, widths[-1]), np.float32)
        masks = [self._zeros(mask_shape(batch, width), np.uint8) for width in widths[:-1]]
        self._forward = [Fusion("relu", mask=mask) for mask in masks]
        self._back = [Fusion("relu_backward", mask=mask) for mask in masks]
        self._scale = gradient_scale(batch)
        self._block_totals = self._zeros((blocks(batch, ROWS), 2), np.float64)
        compiled = macros(problem, parameters.weight_begins, parameters.bias_begins)
        kernel = partial(setup.kernel, "large_batch/padded_layers.cu", macros=compiled)
        self._softmax, self._update = kernel("padded_softmax"), kernel("update_padded")
        self._update_blocks = blocks(sum((la.fan_in + 1) * la.fan_out for la in problem.layers), THREADS)
        self._batches = [(self._images(pixels, sizes[0][0]), labels) for pixels, labels in setup.tensors.batches]
        self._product = self.product(setup)
        self._step(*self._batches[0], with_totals=True)  # chooses the library's algorithms
        self._replay = {due: setup.device.capture(lambda due=due: self._epoch(due)) for due in (False, True)}

    def _zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        array = self._device.empty(shape, dtype)
        array[...] = 0
        return array

    def _matrices(self, sizes: list[tuple[int, int]], dtype: DTypeLike) -> tuple[Array, list[Array]]:
        """Padded matrices in one array, and each of them."""
        begins = [0, *itertools.accumulate(up(math.prod(size), ALIGNMENT) for size in sizes)]
        flat = self._zeros((begins[-1],), dtype)
        views = zip(begins, sizes, strict=False)
        return flat, [flat[begin : begin + math.prod(size)].reshape(size) for begin, size in views]

    def _images(self, pixels: Array, width: int) -> Array:
        """The images (B, I) of a batch, ones behind them."""
        images = self._zeros((len(pixels), width), np.float16)
        images[:, : pixels.shape[1]] = pixels
        images[:, pixels.shape[1]] = 1
        return images

    def product(self, setup: Setup) -> Any:
        """The library's product."""
        from common.cuda.cublas import Matmul  # imported late: a machine without cuBLAS still lists the rung

        return Matmul(setup.device)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem does not fit; empty if it fits."""
        if not problem.hidden:
            return "Needs at least one hidden layer."
        if steps * problem.batch_size * shapes(problem)[0][0] > MOST_ELEMENTS:
            return f"{steps:,} steps of {problem.batch_size:,} images exceed the limit of {MOST_ELEMENTS:,} numbers."
        return ""

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._replay[with_metrics]()

    def _epoch(self, with_totals: bool) -> None:
        """Round the weights, which may be new, then train on every batch."""
        self._update_by(rate=0.0, with_totals=False)
        for batch in self._batches:
            self._step(*batch, with_totals)

    def _step(self, images: Array, labels: Array, with_totals: bool) -> None:
        inputs, batch = [images, *self._outputs], self._problem.batch_size
        for layer, fusion in enumerate(self._forward):
            self._product(inputs[layer], self._weights[layer], inputs[layer + 1], False, False, 1.0, 0.0, fusion)
        self._product(inputs[-1], self._weights[-1], self._logits, False, False, 1.0, 0.0)
        totals = self._block_totals, int32(batch), float32(self._scale / batch), int32(with_totals)
        self._softmax(blocks(batch, ROWS), THREADS, self._logits, labels, self._douts[-1], *totals)
        for layer in reversed(range(len(inputs))):
            dout = self._douts[layer]
            with self._device.beside(BESIDE):
                self._product(inputs[layer], dout, self._by_layer[layer], True, False, 1.0, 0.0)
            if layer:
                fusion, below = self._back[layer - 1], self._douts[layer - 1]
                self._product(dout, self._weights[layer], below, False, True, 1.0, 0.0, fusion)
        self._device.join()
        self._update_by(self._problem.learning_rate / self._scale, with_totals)

    def _update_by(self, rate: float, with_totals: bool) -> None:
        arrays = self._gradients, self._tensors.parameters.flat, self._halves, self._block_totals, self._tensors.totals
        sizes = int32(len(self._block_totals)), float32(rate), int32(with_totals)
        self._update(self._update_blocks, THREADS, *arrays, *sizes)


STAGE = large_batch_fp16.STAGE.climb(
    "large-batch-wide",
    "Large batch, wide layers",
    words="the library multiplies float16 of any widths",
    launch=WideEpoch,
)
