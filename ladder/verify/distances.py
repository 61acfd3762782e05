"""Distances between the parameters of two runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from common.oracle import FloatArray
from common.problem import Params
from ladder.measure.displacement import in_chunks

Tensors = tuple[Sequence[FloatArray], Sequence[FloatArray]]
"""Weights and biases."""


@np.errstate(all="ignore")  # what is not finite fails its check
def apart(initial: Params, found: Tensors, aim: Tensors) -> float:
    """||W - W_ref|| / ||W_ref - W0|| over all tensors: 0 for the same run, 1 for one that does not move."""
    distance = length = 0.0
    for starts, ends, aims in zip((initial.weights, initial.biases), found, aim, strict=True):
        for tensors in zip(starts, ends, aims, strict=True):
            for start, end, wanted in in_chunks(*tensors):
                rest, way = end - wanted, wanted - start
                distance += float(rest @ rest)
                length += float(way @ way)
    return math.sqrt(distance / length) if length > 0 else math.inf if distance > 0 else 0.0


def params_error(found: Tensors, aim: Tensors, *, least: float) -> float:
    """The largest ||W - W_ref|| / ||W_ref|| of a tensor; NaN if any is.

    The error of a tensor that happens to end near zero is relative to `least`, the size of a step.
    """
    errors = [
        _relative_error(end, wanted, least)
        for ends, aims in zip(found, aim, strict=True)
        for end, wanted in zip(ends, aims, strict=True)
    ]
    return float(np.max(np.array(errors)))


@np.errstate(all="ignore")
def _relative_error(found: FloatArray, wanted: FloatArray, least: float) -> float:
    distance = size = 0.0
    for end, aim in in_chunks(found, wanted):
        rest = end - aim
        distance += float(rest @ rest)
        size += float(aim @ aim)
    return math.sqrt(distance) / max(math.sqrt(size), least)
