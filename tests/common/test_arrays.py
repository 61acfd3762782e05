"""Arrays in blocks, by several threads: the same as at once."""

from __future__ import annotations

from threading import get_ident

import numpy as np
import pytest

from common import arrays
from common.arrays import by_blocks, copied


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 40, 101])
def test_blocks_are_whole_and_in_order(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 10)
    found = by_blocks(lambda begin, end: (get_ident(), range(begin, end)), size)
    assert [number for _, block in found for number in block] == list(range(size))
    assert all(0 < len(block) <= 10 for _, block in found)
    assert (get_ident() in {thread for thread, _ in found}) == (0 < size <= 20)  # a small array stays in this thread


def test_an_error_in_a_block_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 10)
    with pytest.raises(ZeroDivisionError):
        by_blocks(lambda begin, end: 1 // (begin - 70), 100)


@pytest.mark.parametrize("dtype", [None, np.float64])
def test_a_copy_has_the_same_values_in_order(dtype: type | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 10)
    array = np.asfortranarray(np.arange(6000, dtype=np.float32).reshape(60, 100))
    copy = copied(array, dtype)
    assert np.array_equal(copy, array)
    assert copy.dtype == np.dtype(dtype or np.float32)
    assert copy.flags.c_contiguous
    assert not np.shares_memory(copy, array)
