"""Networks of several layers and a step of SGD, in float64, for the doubles of kernels that train."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int32]


def network(plan: Labels, parameters: Array) -> tuple[list[Array], list[Array]]:
    """Weights (I, O) and biases (O,) of cluster_mlp, as views of its parameters, by its plan."""
    weights, biases, fan_in = [], [], int(plan[2])
    for units, *_, weights_begin, biases_begin in plan[12:].reshape(-1, 9):
        weights.append(parameters[weights_begin : weights_begin + fan_in * units].reshape(fan_in, units))
        biases.append(parameters[biases_begin : biases_begin + units])
        fan_in = units
    return weights, biases


def network_step(weights: list[Array], biases: list[Array], x: Array, wanted: Labels, learning_rate: float) -> Array:
    """Update the parameters; returns the logits (B, C) of images (B, I) from before the update."""
    outputs = [x]
    for weight, bias in zip(weights, biases, strict=True):
        outputs.append(np.maximum(outputs[-1] @ weight + bias, 0))
    rows, classes = len(wanted), len(biases[-1])
    logits: Array = outputs[-2] @ weights[-1] + biases[-1]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    doutput = (powers / powers.sum(axis=1, keepdims=True) - np.eye(classes)[wanted]) / rows
    for weight, bias, inputs in zip(weights[::-1], biases[::-1], outputs[-2::-1], strict=True):
        dinputs = doutput @ weight.T * (inputs > 0)
        weight -= learning_rate * inputs.T @ doutput
        bias -= learning_rate * doutput.sum(axis=0)
        doutput = dinputs
    return logits
