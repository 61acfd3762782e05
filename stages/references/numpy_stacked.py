"""NumPy stacked: several networks on the CPU, in products over stacks.

Why: a loop over networks calls NumPy for each. All of them see the same images, so their first layers are one product
with their columns side by side.

Change: none; it is a reference, not a rung. The first layer's weights lie side by side, the other layers are stacks
that `np.matmul` multiplies one by one. Float32, buffers allocated once, the fastest number of threads, as `numpy`.

Expect: seven softmax regressions take two to three times as long as one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.blas import blas_description
from common.data.dataset import Split
from common.problem import Float32Array, Params, Problem
from common.trainer import EpochMetrics
from stages.engine.stage import Stage
from stages.references.numpy_cpu import use_fastest_threads

Labels = NDArray[np.intp]
Float64Array = NDArray[np.float64]


class StackedTrainer:
    """SGD in float32 on the host, with K networks in one more axis: (K, B, O) is a layer's output."""

    device: Literal["cpu", "gpu"] = "cpu"
    cuda_stream: int | None = None

    def __init__(self, problem: Problem, train: Split) -> None:
        batch, steps, count = problem.batch_size, problem.steps(len(train.images)), problem.networks
        images, labels = train.pixels(), train.labels.astype(np.intp)
        rows = [slice(step * batch, (step + 1) * batch) for step in range(steps)]
        self._problem = problem
        self._batches = [(images[r], labels[r]) for r in rows]
        self._rows = np.arange(batch)
        # Images (B, I) by all networks' columns (I, K * O) are one product, whose output is (B, K, O) in memory.
        first = problem.layers[0]
        self._columns = np.empty((first.fan_in, count * first.fan_out), np.float32)
        self._dcolumns = np.empty_like(self._columns)
        self._side_by_side, self._dside_by_side = np.empty((2, batch, count * first.fan_out), np.float32)
        self._weights = [self._apart(self._columns)]
        self._outputs, self._doutputs = [self._apart(self._side_by_side)], [self._apart(self._dside_by_side)]
        for layer in problem.layers[1:]:
            self._weights.append(np.empty((count, layer.fan_in, layer.fan_out), np.float32))
            self._outputs.append(np.empty((count, batch, layer.fan_out), np.float32))
            self._doutputs.append(np.empty_like(self._outputs[-1]))
        self._dweights = [np.empty_like(weight) for weight in self._weights[1:]]
        self._biases = [np.empty((count, layer.fan_out), np.float32) for layer in problem.layers]
        self._rates = np.array(problem.rates, np.float32)[:, None, None]
        self._last: EpochMetrics | None = None
        self.detail = f"CPU, {blas_description()}"

    def _apart(self, side_by_side: Float32Array) -> Float32Array:
        """The networks' own parts (K, R, O) of columns (R, K * O), as views."""
        return side_by_side.reshape(len(side_by_side), self._problem.networks, -1).transpose(1, 0, 2)

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        for targets, sources in ((self._weights, params.weights), (self._biases, params.biases)):
            for target, source in zip(targets, sources, strict=True):
                target[:] = source

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        due, count = self._problem.metrics_due(epoch), self._problem.networks
        losses, correct = np.zeros(count), np.zeros(count, np.intp)
        for images, labels in self._batches:
            self._forward(images)
            if due:
                self._add_totals(labels, losses, correct)
            self._head(labels)
            self._backward(images)
        seen = len(self._batches) * self._problem.batch_size
        of_each = [EpochMetrics(loss / seen, right / seen) for loss, right in zip(losses, correct, strict=True)]
        self._last = EpochMetrics.over(of_each) if due else None

    def _forward(self, images: Float32Array) -> None:
        np.matmul(images, self._columns, out=self._side_by_side)
        for layer, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            output = self._outputs[layer]
            if layer > 0:
                np.matmul(self._outputs[layer - 1], weight, out=output)
            output += bias[:, None, :]
            if layer < len(self._weights) - 1:
                np.maximum(output, 0.0, out=output)

    def _add_totals(self, labels: Labels, losses: Float64Array, correct: Labels) -> None:
        logits = self._outputs[-1]
        best = logits.max(axis=2)
        of_images = np.log(np.exp(logits - best[..., None]).sum(axis=2)) + best - logits[:, self._rows, labels]
        losses += of_images.sum(axis=1, dtype=np.float64)
        correct += (logits.argmax(axis=2) == labels).sum(axis=1)

    def _head(self, labels: Labels) -> None:
        dlogits = self._doutputs[-1]
        np.subtract(self._outputs[-1], self._outputs[-1].max(axis=2, keepdims=True), out=dlogits)
        np.exp(dlogits, out=dlogits)
        dlogits /= dlogits.sum(axis=2, keepdims=True)
        dlogits[:, self._rows, labels] -= 1.0
        dlogits *= self._rates / np.float32(len(labels))  # gradients are linear in it: a network's rate is in all

    def _backward(self, images: Float32Array) -> None:
        for layer in reversed(range(len(self._weights))):
            doutput = self._doutputs[layer]
            if layer > 0:
                inputs = self._outputs[layer - 1]
                np.matmul(doutput, self._weights[layer].transpose(0, 2, 1), out=self._doutputs[layer - 1])
                self._doutputs[layer - 1] *= inputs > 0.0
                dweight = self._dweights[layer - 1]
                np.matmul(inputs.transpose(0, 2, 1), doutput, out=dweight)
                self._weights[layer] -= dweight
            else:
                np.matmul(images.T, self._dside_by_side, out=self._dcolumns)
                self._columns -= self._dcolumns
            self._biases[layer] -= doutput.sum(axis=1)

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due."""
        return self._last

    def read_params(self) -> Params:
        """The current parameters."""
        return Params(
            tuple(np.array(weight, order="C") for weight in self._weights), tuple(bias.copy() for bias in self._biases)
        )

    def close(self) -> None:
        """Nothing to release."""


def build(problem: Problem, train: Split) -> StackedTrainer:
    """A trainer in a process whose BLAS has the fastest number of threads."""
    use_fastest_threads(problem, StackedTrainer)
    return StackedTrainer(problem, train)


STAGE = Stage("numpy-stacked", "NumPy, networks stacked", "reference", "float32", (), build, is_fleet=True)
