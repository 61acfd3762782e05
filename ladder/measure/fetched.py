"""Fetches what a trainer returns as NumPy arrays and numbers, so that no result can still be on its way.

A library may return before its results exist: JAX computes in the background, a future when it is asked. Converting
waits for such work, so it has to happen while a clock runs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from common.arrays import copied
from common.problem import Float32Array, Params
from common.trainer import EpochMetrics, Trainer

WAY_OUT = "return float32 NumPy arrays, and wait for your results in run_epoch()"


class ContractError(Exception):
    """A trainer returned something else than `common.trainer` asks for; one line with the way out."""


def fetched_params(trainer: Trainer) -> Params:
    """The trainer's parameters, copied: it cannot change them any more.

    Raises ContractError for tensors that are not float32, or do not convert to NumPy arrays.
    """
    params = trainer.read_params()
    try:
        parts = tuple(params.weights), tuple(params.biases), tuple(getattr(params, "state", ()))
    except (AttributeError, TypeError):
        raise ContractError(f"read_params() returned {_kind(params)}, not Params; {WAY_OUT}") from None
    return Params(*(_arrays(name, part) for name, part in zip(("weights", "biases", "state"), parts, strict=True)))


def fetched_metrics(seen: EpochMetrics) -> EpochMetrics:
    """Loss and accuracy as Python's floats. Raises ContractError for anything that is not a number."""
    try:
        networks = tuple(map(fetched_metrics, getattr(seen, "networks", ())))
        return EpochMetrics(float(seen.mean_loss), float(seen.accuracy), networks=networks)
    except (AttributeError, TypeError, ValueError) as error:
        kinds = f"{_kind(getattr(seen, 'mean_loss', seen))} and {_kind(getattr(seen, 'accuracy', seen))}"
        raise ContractError(f"metrics of {kinds}: return EpochMetrics of two numbers") from error


def _arrays(name: str, tensors: Iterable[object]) -> tuple[Float32Array, ...]:
    return tuple(_array(f"{name}[{index}]", tensor) for index, tensor in enumerate(tensors))


def _array(name: str, tensor: object) -> Float32Array:
    try:
        array = np.asarray(tensor)
    except Exception as error:  # CuPy and PyTorch refuse tensors on a GPU, each in its own way
        raise ContractError(
            f"{name} from read_params() is {_kind(tensor)}, which NumPy cannot read; {WAY_OUT}"
        ) from error
    if array.dtype != np.float32:
        raise ContractError(f"{name} from read_params() is {_kind(tensor)} of {array.dtype}; {WAY_OUT}")
    return copied(array)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
