"""The plain parts: one kernel for each operation of the step, launched one by one.

The rungs above `naive` replace these parts, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from common.data.dataset import Split
from common.problem import Problem
from common.trainer import EpochMetrics
from stages.engine.recipe import Data, Epilogue, Gemm, Head, Launch, Memory, Metrics, RunStep, Update
from stages.engine.workspace import Array, Device, ParameterMemory, Setup

# NumPy scalars give a launch the types of its arguments. They are cached: making them costs time in every launch.
int32, float32 = cache(np.int32), cache(np.float32)

Totals = NDArray[np.float64]

THREADS = 256  # a block of the one-dimensional kernels, and TOTALS_THREADS of softmax.cu
GEMM_TILE = 16  # a block of gemm_naive has a side of 16 threads
BIAS_COLS, BIAS_ROWS = 32, 8  # layer.cu


def blocks(threads: int, per_block: int = THREADS) -> int:
    """The number of blocks that hold this many threads."""
    return -(-threads // per_block)


class AllocatedOnce(Memory):
    """Every tensor keeps its memory from the preparation to the end."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An uninitialised tensor of the device."""
        return self._device.empty(shape, dtype)

    def zero(self, array: Array) -> None:
        """Enqueue zeros."""
        self._device.zero(array)

    def around(self, step: RunStep) -> RunStep:
        """The step itself."""
        return step


def resident_batches(
    device: Device, problem: Problem, train: Split, *, as_bytes: bool = False
) -> list[tuple[Array, Array]]:
    """Every full batch on the device: images (B, I), float32 or bytes of 256ths, and labels (B,) int32."""
    batch = problem.batch_size
    used = train.first(problem.steps(len(train.images)) * batch)
    images = device.upload(used.images if as_bytes else used.pixels())
    labels = device.upload(used.labels.astype(np.int32))
    # The views are made here: slicing an array costs the host more than launching a kernel.
    return [(images[at : at + batch], labels[at : at + batch]) for at in range(0, len(used.images), batch)]


class ResidentFloat32(Data):
    """All images and labels on the device, in the types that the step reads."""

    def __init__(self, device: Device, problem: Problem, train: Split) -> None:
        self._batches = resident_batches(device, problem, train)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return iter(self._batches)


class NaiveGemm(Gemm):
    """One thread computes one output."""

    def __init__(self, setup: Setup) -> None:
        self._gemm_naive = setup.kernel("plain/gemm.cu", "gemm_naive")

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
        m, n = out.shape
        k = a.shape[0] if trans_a else a.shape[1]
        sizes = (int32(m), int32(n), int32(k), int32(trans_a), int32(trans_b))
        grid = (blocks(n, GEMM_TILE), blocks(m, GEMM_TILE))
        self._gemm_naive(grid, (GEMM_TILE, GEMM_TILE), a, b, out, *sizes, float32(alpha), float32(beta))


class SeparateEpilogue(Epilogue):
    """Bias and ReLU in separate kernels."""

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        self._gemm = gemm
        self._tensors = setup.tensors
        self._last = len(setup.problem.layers) - 1
        self._add_bias = setup.kernel("plain/layer.cu", "add_bias")
        self._relu = setup.kernel("plain/layer.cu", "relu")
        self._relu_backward = setup.kernel("plain/layer.cu", "relu_backward")

    def forward(self, layer: int, inputs: Array) -> None:
        """outputs[layer] (B, O) = ReLU(inputs @ weight + bias); the logits keep their sign."""
        output = self._tensors.outputs[layer]
        rows, cols = output.shape
        self._gemm(inputs, self._tensors.weights[layer], output)
        elementwise = (blocks(output.size), THREADS)
        self._add_bias(*elementwise, output, self._tensors.biases[layer], int32(rows), int32(cols))
        if layer < self._last:
            self._relu(*elementwise, output, int32(output.size))

    def backward(self, layer: int) -> None:
        """doutputs[layer - 1] (B, I) = doutputs[layer] @ weight.T, zero where the ReLU was."""
        doutput, output = self._tensors.doutputs[layer - 1], self._tensors.outputs[layer - 1]
        self._gemm(self._tensors.doutputs[layer], self._tensors.weights[layer], doutput, trans_b=True)
        self._relu_backward(blocks(doutput.size), THREADS, doutput, output, int32(doutput.size))


class SeparateHead(Head):
    """Softmax, gradient and totals in three kernels."""

    def __init__(self, setup: Setup) -> None:
        self._tensors = setup.tensors
        rows, classes = setup.tensors.logits.shape
        self._rows, self._classes = int32(rows), int32(classes)
        self.probs = setup.tensors.memory.empty((rows, classes), np.float32)
        self._softmax = setup.kernel("plain/softmax.cu", "softmax")
        self._softmax_xent_backward = setup.kernel("plain/softmax.cu", "softmax_xent_backward")
        self._softmax_xent_totals = setup.kernel("plain/softmax.cu", "softmax_xent_totals")

    def __call__(self, labels: Array, with_totals: bool) -> None:
        """Logits (B, C) to dlogits (B, C); with totals, adds to the epoch's totals."""
        logits, dlogits = self._tensors.logits, self._tensors.dlogits
        sizes = (self._rows, self._classes)
        self.softmax()
        self._softmax_xent_backward(blocks(logits.size), THREADS, self.probs, labels, dlogits, *sizes)
        if with_totals:
            self._softmax_xent_totals(1, THREADS, logits, labels, self._tensors.totals, *sizes)

    def softmax(self) -> None:
        """Logits (B, C) to probs (B, C)."""
        logits = self._tensors.logits
        self._softmax(blocks(logits.shape[0]), THREADS, logits, self.probs, self._rows, self._classes)


class SeparateUpdate(Update):
    """All gradients first, in memory of their own, then SGD in one pass over all parameters."""

    stores_gradients: ClassVar[bool] = True

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        self._gemm = gemm
        self._doutputs = setup.tensors.doutputs
        self._parameters = setup.tensors.parameters.flat
        self._gradients = ParameterMemory(setup.tensors.memory.empty, setup.problem, setup.device.keeps_columns)
        setup.tensors.memory.zero(self._gradients.flat)
        self._learning_rate = float32(setup.problem.learning_rate)
        self._bias_gradient = setup.kernel("plain/layer.cu", "bias_gradient")
        self._sgd_update = setup.kernel("plain/sgd.cu", "sgd_update")

    def __call__(self, layer: int, inputs: Array) -> None:
        """Enqueue the gradients of one layer from its inputs (B, I) and doutputs[layer] (B, O)."""
        doutput, dbias = self._doutputs[layer], self._gradients.biases[layer]
        rows, cols = doutput.shape
        self._gemm(inputs, doutput, self._gradients.weights[layer], trans_a=True)
        grid, block = blocks(cols, BIAS_COLS), (BIAS_COLS, BIAS_ROWS)
        self._bias_gradient(grid, block, doutput, dbias, int32(rows), int32(cols))

    def finish(self) -> None:
        """Enqueue the update of every parameter."""
        size = self._parameters.size
        grid = blocks(size)
        self._sgd_update(grid, THREADS, self._parameters, self._gradients.flat, self._learning_rate, int32(size))


class EpochTotals(Metrics):
    """Loss and accuracy, summed on the device during an epoch and read by the host at its end."""

    def __init__(self, setup: Setup) -> None:
        self._device = setup.device
        self._totals = setup.tensors.totals
        self._images = len(setup.tensors.batches) * setup.problem.batch_size

    def begin_epoch(self) -> None:
        """Enqueue zeros for the totals."""
        self._device.zero(self._totals)

    def end_step(self) -> None:
        """Nothing; the host launches the next step."""

    def end_epoch(self) -> EpochMetrics:
        """Wait for the epoch; return the means over its images."""
        loss, correct = self.read() / self._images
        return EpochMetrics(float(loss), float(correct))

    def read(self) -> Totals:
        """The totals so far, (2,) float64; waits for the work enqueued before."""
        totals: Totals = self._device.download(self._totals)
        return totals


class OneByOne(Launch):
    """The host launches every kernel of every step."""

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        self._batches = setup.tensors.batches
        self._step = step
        self._metrics = metrics

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        for images, labels in self._batches:
            self._step(images, labels, with_metrics)
            if with_metrics:
                self._metrics.end_step()
