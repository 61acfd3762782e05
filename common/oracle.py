"""Reference training: SGD in float64 with NumPy, written directly from the formulas.

It shares no code with the stages that it judges and has no optimisation: one batch and one layer at a time. The
formulas are the chain rule for mean cross-entropy over softmax (Bishop, Pattern Recognition and Machine Learning,
2006, sections 4.3.4 and 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.problem import Params, Problem

Float64Array = NDArray[np.float64]

TIE_MARGIN = 2.0**-20  # relative to the largest logit of a batch: about sixteen float32 roundings
RELU_MARGINS = (TIE_MARGIN, 2.0**-11, 2.0**-8)  # relative to a layer's largest sum


@dataclass(frozen=True)
class OracleEpoch:
    """Mean cross-entropy and accuracy (0 to 1) of one epoch of float64 training, over all steps."""

    mean_loss: float
    accuracy: float


class Oracle:
    """Float64 training from given parameters, one epoch a call: stages differ in their number of epochs."""

    def __init__(self, problem: Problem, params: Params) -> None:
        self.problem = problem
        self.weights: list[Float64Array] = [weight.astype(np.float64) for weight in params.weights]
        self.biases: list[Float64Array] = [bias.astype(np.float64) for bias in params.biases]
        self.near = dict.fromkeys(RELU_MARGINS, 0)
        """Units within each relative margin of ReLU's corner so far: rounding may flip their sign."""
        self.undecided = 0
        """Images whose two largest logits are so close that float32 may choose the other one. Example: every image
        whose hidden units are all 0, while two labels are equally frequent."""

    def run_epoch(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
        """Train on every full batch of images (N, I) and labels (N,) once, in order."""
        size = self.problem.batch_size
        steps = self.problem.steps(len(images))
        loss_sum = 0.0
        correct = 0
        for step in range(steps):
            batch = slice(step * size, (step + 1) * size)
            loss, right = self._step(images[batch] / 256.0, labels[batch].astype(np.intp))
            loss_sum += loss
            correct += right
        return OracleEpoch(loss_sum / (steps * size), correct / (steps * size))

    def _step(self, images: Float64Array, labels: NDArray[np.intp]) -> tuple[float, int]:
        """Update from one batch; returns the batch's summed loss and correct answers before the update."""
        inputs = [images]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            sums = inputs[-1] @ weight + bias
            sizes = np.abs(sums)
            for corner in self.near:
                self.near[corner] += int((sizes < corner * sizes.max()).sum())
            inputs.append(np.maximum(sums, 0.0))
        logits = inputs[-1] @ self.weights[-1] + self.biases[-1]

        rows = np.arange(len(labels))
        if logits.shape[1] > 1:
            second, first = np.sort(logits, axis=1)[:, -2:].T
            self.undecided += int((first - second < TIE_MARGIN * np.abs(logits).max()).sum())
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        doutput = np.exp(log_probs)
        doutput[rows, labels] -= 1.0
        doutput /= len(labels)

        for layer in reversed(range(len(self.weights))):
            dweight = inputs[layer].T @ doutput
            dbias = doutput.sum(axis=0)
            if layer > 0:
                doutput = (doutput @ self.weights[layer].T) * (inputs[layer] > 0.0)
            dweight *= self.problem.learning_rate
            self.weights[layer] -= dweight
            self.biases[layer] -= self.problem.learning_rate * dbias
        return -float(log_probs[rows, labels].sum()), int((logits.argmax(axis=1) == labels).sum())


Weights = tuple[NDArray[np.floating], ...] | list[Float64Array]


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
