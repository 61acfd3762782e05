"""Chunks of tensors: every element once and in order, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ladder.measure import displacement
from ladder.measure.displacement import in_chunks


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 11), (7, 10), (140,)])
def test_every_element_occurs_once_and_in_order(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displacement, "CHUNK_ELEMENTS", 70)
    numbers = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    halves = np.asfortranarray(numbers / 2)  # another memory order
    found = list(in_chunks(numbers, halves))
    assert all(one.dtype == other.dtype == np.float64 and one.size == other.size <= 70 for one, other in found)
    one, other = (np.concatenate([np.empty(0), *sides]) for sides in (zip(*found, strict=True) if found else ([], [])))
    assert one.tolist() == numbers.ravel().tolist()
    assert (2 * other).tolist() == one.tolist()


def test_nan_and_infinity_are_kept() -> None:
    ((chunk,),) = in_chunks(np.array([1, np.nan, np.inf], np.float32))
    assert chunk.tolist() == pytest.approx([1, np.nan, np.inf], nan_ok=True)
