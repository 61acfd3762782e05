"""Reference training: SGD in float64 with NumPy, written directly from the formulas.

It shares no code with the stages that it judges and has no optimisation: one batch and one layer at a time. The
formulas are the chain rule for mean cross-entropy over softmax (Bishop, Pattern Recognition and Machine Learning,
2006, sections 4.3.4 and 5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.problem import Params, Problem

Float64Array = NDArray[np.float64]
FloatArray = NDArray[np.floating]


@dataclass(frozen=True)
class OracleEpoch:
    """Mean cross-entropy and accuracy (0 to 1) of one epoch of float64 training, over all steps."""

    mean_loss: float
    accuracy: float


class Oracle:
    """Float64 training from given parameters, one epoch a call: stages differ in their number of epochs."""

    def __init__(self, problem: Problem, params: Params, dtype: type[np.floating] = np.float64) -> None:
        self.problem = problem
        self.weights: list[FloatArray] = [weight.astype(dtype) for weight in params.weights]
        self.biases: list[FloatArray] = [bias.astype(dtype) for bias in params.biases]
        self._dtype = dtype

    def run_epoch(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
        """Train on every full batch of images (N, I) and labels (N,) once, in order."""
        size = self.problem.batch_size
        steps = self.problem.steps(len(images))
        loss_sum = 0.0
        correct = 0
        for step in range(steps):
            batch = slice(step * size, (step + 1) * size)
            pixels = images[batch].astype(self._dtype)
            pixels *= 1 / 256
            loss, right = self._step(pixels, labels[batch].astype(np.intp))
            loss_sum += loss
            correct += right
        return OracleEpoch(loss_sum / (steps * size), correct / (steps * size))

    def _step(self, images: FloatArray, labels: NDArray[np.intp]) -> tuple[float, int]:
        """Update from one batch; returns the batch's summed loss and correct answers before the update."""
        weights = [self._factor(weight) for weight in self.weights]
        inputs, passing = [images], []
        for weight, bias in zip(weights[:-1], self.biases[:-1], strict=True):
            outputs = self._product(inputs[-1], weight) + bias
            passing.append(self._passes(outputs))
            inputs.append(self._factor(np.maximum(outputs, 0.0)))
        logits = self._product(inputs[-1], weights[-1]) + self.biases[-1]

        rows = np.arange(len(labels))
        shifted = logits - logits.max(axis=1, keepdims=True)
        powers = np.exp(shifted)
        sums = powers.sum(axis=1, keepdims=True)
        doutput = self._probabilities(powers / sums)
        doutput[rows, labels] -= 1.0
        doutput = self._factor(doutput / len(labels))

        for layer in reversed(range(len(weights))):
            dweight = self._product(inputs[layer].T, doutput)
            dbias = self._column_sums(doutput)
            if layer > 0:
                doutput = self._factor(self._product(doutput, weights[layer].T) * passing[layer - 1])
            dweight *= self.problem.learning_rate
            self._subtract(self.weights[layer], dweight)
            self._subtract(self.biases[layer], self.problem.learning_rate * dbias)
        return float(np.log(sums).sum() - shifted[rows, labels].sum()), int((logits.argmax(axis=1) == labels).sum())

    # What another implementation may do in another way, for a subclass to replace.

    def _passes(self, outputs: FloatArray) -> NDArray[np.bool_]:
        """Where ReLU passes the gradient on. At exactly zero, any share of it is a subgradient; most pass nothing."""
        return outputs > 0.0

    def _probabilities(self, exact: FloatArray) -> FloatArray:
        """Exponentials divided by their sums."""
        return exact

    def _factor(self, exact: FloatArray) -> FloatArray:
        """A tensor that the step multiplies."""
        return exact

    def _product(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """The product of (M, K) and (K, N)."""
        product: FloatArray = left @ right
        return product

    def _column_sums(self, terms: FloatArray) -> FloatArray:
        """The sums (N,) of (M, N)."""
        sums: FloatArray = terms.sum(axis=0)
        return sums

    def _subtract(self, parameters: FloatArray, update: FloatArray) -> None:
        """Update a tensor in place."""
        parameters -= update


Weights = Sequence[FloatArray]


def test_accuracy(weights: Weights, biases: Weights, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
    """Share of images (N, I) whose largest logit is at their label (N,), by one float64 forward pass.

    NaN if any logit is NaN: a broken network has no accuracy.
    """
    return evaluate(weights, biases, images, labels).accuracy


def evaluate(weights: Weights, biases: Weights, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
    """Mean cross-entropy and accuracy on images (N, I) and labels (N,), by one float64 forward pass; NaN likewise."""
    correct, loss_sum = 0, 0.0
    exact = [weight.astype(np.float64, copy=False) for weight in weights]
    for start in range(0, len(images), 1000):
        outputs = images[start : start + 1000] / 256.0
        for weight, bias in zip(exact[:-1], biases[:-1], strict=True):
            outputs = np.maximum(outputs @ weight + bias, 0.0)
        logits = outputs @ exact[-1] + biases[-1]
        if np.isnan(logits).any():
            return OracleEpoch(float("nan"), float("nan"))
        wanted = labels[start : start + 1000].astype(np.intp)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_sums = np.log(np.exp(shifted).sum(axis=1))
        loss_sum += float((log_sums - shifted[np.arange(len(wanted)), wanted]).sum())
        correct += int((logits.argmax(axis=1) == wanted).sum())
    return OracleEpoch(loss_sum / len(images), correct / len(images))
