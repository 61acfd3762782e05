"""Float16 on the CPU, rounded where grid-messages-fp16 rounds: right, and with a defect near the limits.

Why: of all correct rungs, its messages round most, and so flip most units at their ReLU's corner.

Change: each is the NumPy trainer with factors of 11 bits, sums sent in parts, and a quarter of all numbers with ten.

Expect: the first passes on every seed; updates that are 0.2 % too large never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.problem import Float32Array
from stages.engine.stage import Stage
from stages.references.numpy_cpu import NumpyTrainer
from tests.cheats.defects import caught_by

FEATURES, UNITS = 12, 1  # of a part of a sum
SCALE = np.float32(64.0)  # of gradients, for the sum over a batch


def _half(numbers: Float32Array) -> Float32Array:
    return numbers.astype(np.float16).astype(np.float32)


def _sent(numbers: Float32Array) -> Float32Array:
    """Numbers (M, N) as messages: eight rows of sixteen give a bit of every other number to a tag."""
    sent = numbers.astype(np.float16)
    for row in range(0, len(sent), 16):
        bits = sent[row : row + 8, ::2].view(np.uint16)
        bits += bits >> 1 & bits & 1
        bits &= 0xFFFE
    return sent.astype(np.float32)


@caught_by("right: rounded as rungs on the GPU round", "passes")
class _Messages(NumpyTrainer):
    """Sends its sums in parts, as messages of float16."""

    factor = 1.0  # of every update

    def _product(self, inputs: Float32Array, weight: Float32Array, part: int) -> Float32Array:
        ends = range(0, len(weight), part)
        parts: list[Any] = [_sent(inputs[:, k : k + part] @ weight[k : k + part]) for k in ends]
        total: Float32Array = sum(parts)
        return total

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        (first, last), (bias, last_bias) = map(_half, self._weights), self._biases
        outputs[0][:] = _sent(np.maximum(self._product(images, first, FEATURES) + bias, np.float32(0.0)))
        outputs[1][:] = self._product(outputs[0], last, UNITS) + last_bias

    def _backward(self, images: Float32Array) -> None:
        rate = np.float32(self.factor * self._problem.learning_rate / len(images)) / SCALE
        outputs, last = self._outputs[0], _half(self._weights[1])
        dlogits = _sent(self._doutputs[1] * (SCALE * len(images)))
        doutputs = _sent((dlogits @ last.T) * (outputs > 0.0))
        for layer, (inputs, gradient) in enumerate(((images, doutputs), (outputs, dlogits))):
            self._weights[layer] -= rate * (inputs.T @ gradient)
            self._biases[layer] -= rate * gradient.sum(axis=0)


@caught_by("a scale", "alone")
class _TooLarge(_Messages):
    """Every update is 0.2 % too large."""

    factor = 1.002


MESSAGES = Stage("messages", "Messages", "reference", "float16", (), _Messages)
TOO_LARGE = Stage("too-large", "Too large", "reference", "float16", (), _TooLarge)
