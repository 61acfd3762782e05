"""Results that are not NumPy arrays or numbers are refused with a way out."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from common.problem import Params
from common.trainer import EpochMetrics
from ladder.measure.fetched import ContractError, fetched_metrics, fetched_params

WAY_OUT = "return float32 NumPy arrays, and wait for your results in run_epoch()"


class Reads:
    """A trainer that returns this."""

    def __init__(self, params: Any) -> None:
        self.read_params = lambda: params


class OnADevice:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


def test_arrays_are_copied() -> None:
    weight, bias = np.ones((2, 3), np.float32), np.zeros(3, np.float32)
    params = fetched_params(Reads(Params((weight,), (bias,))))  # type: ignore[arg-type]
    weight[:] = 5.0
    assert params.weights[0].tolist() == [[1.0] * 3] * 2


def test_a_librarys_array_on_the_host_is_converted() -> None:
    torch = pytest.importorskip("torch")
    (weight,) = fetched_params(Reads(Params((torch.ones(2, 3),), ()))).weights  # type: ignore[arg-type]
    assert (type(weight), weight.dtype.name, weight.shape) == (np.ndarray, "float32", (2, 3))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (Future[Params](), "read_params() returned concurrent.futures._base.Future, not Params"),
        (Params((Future(),), ()), "weights[0] from read_params() is concurrent.futures._base.Future of object"),  # type: ignore[arg-type]
        (Params((), (np.zeros(3),)), "biases[0] from read_params() is numpy.ndarray of float64"),  # type: ignore[arg-type]
        (Params((OnADevice(),), ()), f"weights[0] from read_params() is {__name__}.OnADevice, which NumPy cannot read"),  # type: ignore[arg-type]
    ],
)
def test_anything_else_is_refused(params: Any, said: str) -> None:
    with pytest.raises(ContractError) as refused:
        fetched_params(Reads(params))  # type: ignore[arg-type]
    assert str(refused.value) == f"{said}; {WAY_OUT}"


def test_metrics_become_floats() -> None:
    seen = fetched_metrics(EpochMetrics(np.float32(0.5), np.array(0.25)))  # type: ignore[arg-type]
    assert (seen, type(seen.mean_loss), type(seen.accuracy)) == (EpochMetrics(0.5, 0.25), float, float)


@pytest.mark.parametrize("seen", [EpochMetrics("low", 0.5), EpochMetrics(None, 0.5), 0.5])  # type: ignore[arg-type]
def test_metrics_that_are_no_numbers_are_refused(seen: Any) -> None:
    with pytest.raises(ContractError, match=r"^metrics of .*: return EpochMetrics of two numbers$"):
        fetched_metrics(seen)
