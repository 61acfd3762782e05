"""NumPy: the same training on the CPU.

Why: everyone can run and read it, and it shows what the GPU gains.

Change: none; it is a reference, not a rung. Float32, buffers allocated once, matrix products by NumPy's BLAS.
Preparation tries several numbers of threads and keeps the fastest.

Expect: 100 us per step for softmax regression, where BLAS multiplies 10 columns and threads do not help. In wide hidden
layers the products dominate, and cores begin to count.

Predict: on H200: 784-10, batch 128: 100 us.

Found: it is slower than predicted on the hosts of both GPUs, and faster on a machine of two cores. With ten columns
BLAS reaches a small part of its rate, and more threads hardly help. With hidden layers the rate is higher, and the best
number of threads depends on network and machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np

from common.blas import blas_description, blas_threads, limit_blas_threads
from common.cpu.cores import usable_cores
from common.data.dataset import Split
from common.problem import Float32Array, Params, Problem, initial_params
from common.trainer import EpochMetrics, Trainer
from stages.engine.stage import Stage
from stages.references.thread_trials import epoch_steps_s, fastest_count, random_split, thread_counts

Labels = np.ndarray[tuple[int], np.dtype[np.intp]]


class NumpyTrainer:
    """SGD in float32 on the host."""

    device: Literal["cpu", "gpu"] = "cpu"
    cuda_stream: int | None = None

    def __init__(self, problem: Problem, train: Split) -> None:
        batch, steps = problem.batch_size, problem.steps(len(train.images))
        images = train.pixels()[: steps * batch]
        labels = train.labels[: steps * batch].astype(np.intp)
        rows = [slice(step * batch, (step + 1) * batch) for step in range(steps)]
        self._problem = problem
        self._batches = [(images[r], labels[r]) for r in rows]
        self._rows = np.arange(batch)
        self._weights: list[Float32Array] = [np.empty((la.fan_in, la.fan_out), np.float32) for la in problem.layers]
        self._biases: list[Float32Array] = [np.empty(la.fan_out, np.float32) for la in problem.layers]
        self._dweights = [np.empty_like(weight) for weight in self._weights]
        self._outputs: list[Float32Array] = [np.empty((batch, la.fan_out), np.float32) for la in problem.layers]
        self._doutputs = [np.empty_like(output) for output in self._outputs]
        self._last: EpochMetrics | None = None
        self._test: list[tuple[Float32Array, Labels]] = []
        self.detail = f"CPU, {blas_description()}"

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        for targets, sources in ((self._weights, params.weights), (self._biases, params.biases)):
            for target, source in zip(targets, sources, strict=True):
                target[:] = source

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        due = self._problem.metrics_due(epoch)
        loss_sum, correct = 0.0, 0
        for images, labels in self._batches:
            self._forward(images, self._outputs)
            if due:
                loss, right = self._totals(self._outputs[-1], labels)
                loss_sum += loss
                correct += right
            self._head(labels)
            self._backward(images)
        seen = len(self._batches) * self._problem.batch_size
        self._last = EpochMetrics(loss_sum / seen, correct / seen) if due else None

    def prepare_validation(self, test: Split) -> None:
        """Cut the test images into batches; the last may be smaller."""
        images, labels, batch = test.pixels(), test.labels.astype(np.intp), self._problem.batch_size
        self._test = [(images[at : at + batch], labels[at : at + batch]) for at in range(0, len(images), batch)]

    def validate(self) -> EpochMetrics:
        """Loss and accuracy on the test images."""
        loss_sum, correct = 0.0, 0
        for images, labels in self._test:
            outputs = [output[: len(images)] for output in self._outputs]
            self._forward(images, outputs)
            loss, right = self._totals(outputs[-1], labels)
            loss_sum += loss
            correct += right
        seen = sum(len(labels) for _, labels in self._test)
        return EpochMetrics(loss_sum / seen, correct / seen)

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        inputs = images
        for layer, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            output = outputs[layer]
            np.matmul(inputs, weight, out=output)
            output += bias
            if layer < len(self._weights) - 1:
                np.maximum(output, 0.0, out=output)
            inputs = output

    def _totals(self, logits: Float32Array, labels: Labels) -> tuple[float, int]:
        rows = self._rows[: len(labels)]
        best = logits.max(axis=1)
        losses = np.log(np.exp(logits - best[:, None]).sum(axis=1)) + best - logits[rows, labels]
        return float(losses.sum(dtype=np.float64)), int((logits.argmax(axis=1) == labels).sum())

    def _head(self, labels: Labels) -> None:
        dlogits = self._doutputs[-1]
        np.subtract(self._outputs[-1], self._outputs[-1].max(axis=1, keepdims=True), out=dlogits)
        np.exp(dlogits, out=dlogits)
        dlogits /= dlogits.sum(axis=1, keepdims=True)
        dlogits[self._rows, labels] -= 1.0
        dlogits *= np.float32(1.0 / len(labels))

    def _backward(self, images: Float32Array) -> None:
        rate = np.float32(self._problem.learning_rate)
        for layer in reversed(range(len(self._weights))):
            doutput = self._doutputs[layer]
            inputs = self._outputs[layer - 1] if layer > 0 else images
            if layer > 0:
                np.matmul(doutput, self._weights[layer].T, out=self._doutputs[layer - 1])
                self._doutputs[layer - 1] *= inputs > 0.0
            dweight = self._dweights[layer]
            np.matmul(inputs.T, doutput, out=dweight)
            dweight *= rate
            self._weights[layer] -= dweight
            self._biases[layer] -= rate * doutput.sum(axis=0)

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due."""
        return self._last

    def read_params(self) -> Params:
        """The current parameters."""
        return Params(
            tuple(weight.copy() for weight in self._weights),
            tuple(bias.copy() for bias in self._biases),
        )

    def close(self) -> None:
        """Nothing to release."""


def build(problem: Problem, train: Split) -> NumpyTrainer:
    """A trainer in a process whose BLAS has the fastest number of threads."""
    use_fastest_threads(problem, NumpyTrainer)
    return NumpyTrainer(problem, train)


def use_fastest_threads(problem: Problem, trainer: Callable[[Problem, Split], Trainer]) -> None:
    """Give BLAS the number of threads with which these trainers have the fastest step."""
    if (threads := _quickest(problem, trainer)) is not None:
        limit_blas_threads(threads)


@cache
def _quickest(problem: Problem, made: Callable[[Problem, Split], Trainer]) -> int | None:
    """The number of threads, of 1, 2, 4, ... and all usable, with the fastest step; None without threadpoolctl."""
    if (loaded := blas_threads()) is None:
        return None
    trainer = made(problem, random_split(problem, 1))
    trainer.load_params(initial_params(problem, 0))

    def steps_s(count: int) -> list[float]:
        limit_blas_threads(count)
        return epoch_steps_s(trainer, 1)

    return fastest_count(thread_counts(min(loaded, usable_cores())), steps_s)


STAGE = Stage("numpy", "NumPy", "reference", "float32", (), build)
