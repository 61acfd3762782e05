"""What the plain kernels are called with where it is only to be seen how fast they are, and whether they are right.

Numbers are drawn; nothing that is written is read before, but what the kernel adds to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.engine.parts import float32, int32

DRAWN = 1_048_573  # numbers, which are repeated for larger tensors; a prime, so that no two rows are alike

Array = NDArray[Any]


class Arguments(NamedTuple):
    """In the kernel's order: tensors on the host, scalars as the launch takes them."""

    values: list[Any]
    written: int  # which of them the kernel writes


def arguments(kernel: str, sizes: tuple[int, ...]) -> Arguments:
    """Those of an operation of these sizes; KeyError for a kernel that nobody has drawn any for."""
    return MADE[kernel](*sizes)


def _gemm_naive(m: int, n: int, k: int, trans_a: int, trans_b: int) -> Arguments:
    a, b = _drawn((k, m) if trans_a else (m, k)), _drawn((n, k) if trans_b else (k, n), 1)
    scalars = map(int32, (m, n, k, trans_a, trans_b))
    return Arguments([a, b, _nothing((m, n)), *scalars, float32(1.0), float32(0.0)], 2)


def _add_bias(rows: int, cols: int) -> Arguments:
    return Arguments([_drawn((rows, cols)), _drawn((cols,), 1), int32(rows), int32(cols)], 0)


def _relu(count: int) -> Arguments:
    return Arguments([_drawn((count,)), int32(count)], 0)


def _relu_backward(count: int) -> Arguments:
    return Arguments([_drawn((count,)), _drawn((count,), 1), int32(count)], 0)


def _bias_gradient(rows: int, cols: int) -> Arguments:
    return Arguments([_drawn((rows, cols)), _nothing((cols,)), int32(rows), int32(cols)], 1)


def _softmax(rows: int, classes: int) -> Arguments:
    return Arguments([_drawn((rows, classes)), _nothing((rows, classes)), int32(rows), int32(classes)], 1)


def _softmax_xent_backward(rows: int, classes: int) -> Arguments:
    values = [_drawn((rows, classes)), _labels(rows, classes), _nothing((rows, classes)), int32(rows), int32(classes)]
    return Arguments(values, 2)


def _softmax_xent_totals(rows: int, classes: int) -> Arguments:
    values = [_drawn((rows, classes)), _labels(rows, classes), np.zeros(2), int32(rows), int32(classes)]
    return Arguments(values, 2)


def _sgd_update(count: int) -> Arguments:
    return Arguments([_drawn((count,)), _drawn((count,), 1), float32(0.1), int32(count)], 0)


MADE: dict[str, Callable[..., Arguments]] = {
    "gemm_naive": _gemm_naive,
    "add_bias": _add_bias,
    "relu": _relu,
    "relu_backward": _relu_backward,
    "bias_gradient": _bias_gradient,
    "softmax": _softmax,
    "softmax_xent_backward": _softmax_xent_backward,
    "softmax_xent_totals": _softmax_xent_totals,
    "sgd_update": _sgd_update,
}


def _drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Numbers of both signs."""
    size = math.prod(shape)
    some = np.random.default_rng(seed).standard_normal(min(size, DRAWN), np.float32)
    return np.resize(some, size).reshape(shape)


def _nothing(shape: tuple[int, ...]) -> Array:
    """What is not written stays no number."""
    return np.full(shape, np.nan, np.float32)


def _labels(rows: int, classes: int) -> Array:
    return np.random.default_rng(2).integers(0, classes, rows, np.int32)
