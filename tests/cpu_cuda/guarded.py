"""Copies of arrays in memory that detects accesses out of bounds."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 16  # of the widest load, a float4

# The bytes beside an array. These NaNs are signalling; arithmetic makes them quiet, so even `x[i] += 1` past the end
# leaves a trace.
_POISON: dict[np.dtype[Any], NDArray[Any]] = {
    np.dtype(np.float32): np.array(0xFFBFFFFF, np.uint32),
    np.dtype(np.float64): np.array(0xFFF7FFFFFFFFFFFF, np.uint64),
}
_OTHER_POISON: NDArray[Any] = np.array(0xFF, np.uint8)


class Guarded:
    """A copy of an array that ends at a page which a launch cannot touch; another such page lies before it.

    An access past the end faults at once. Within the few bytes that alignment costs, and just before the start, a read
    gives poison, and `damage` finds a write.
    """

    def __init__(self, array: NDArray[Any], memory: NDArray[np.uint8], begin: int) -> None:
        """Take the pages of the memory (bytes) from `begin` to `self.end`."""
        page = mmap.PAGESIZE
        taken = -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        size = -(-taken // page) * page
        self._first = begin + page
        self.end = self._first + size + page
        if self.end > len(memory):
            raise MemoryError(f"the arrays of a launch take more than {len(memory) >> 20} MiB")
        self.guards = (begin, self.end - page)
        self._bytes = memory[self._first : self._first + size]
        poison = _POISON.get(array.dtype, _OTHER_POISON)
        self._bytes.view(poison.dtype)[:] = poison
        self._start = size - taken
        self._end = self._start + array.nbytes
        self._beside = {"before its start": self._bytes[: self._start], "past its end": self._bytes[self._end :]}
        self._untouched = {where: beside.copy() for where, beside in self._beside.items()}
        self.nbytes = array.nbytes
        self.array: NDArray[Any] = self._bytes[self._start : self._end].view(array.dtype).reshape(array.shape)
        self.array[...] = array

    @property
    def place(self) -> int:
        """The first element's offset, in bytes from the memory's start."""
        return self._first + self._start

    @property
    def pages(self) -> tuple[int, int]:
        """The offset of its pages, in bytes from the memory's start, and their size."""
        return self._first, len(self._bytes)

    def offset(self, place: int) -> int | None:
        """The distance of a place from the array's start, in bytes; None outside of this array's pages."""
        return place - self.place if self.guards[0] <= place < self.end else None

    def damage(self) -> str:
        """Where a launch wrote beside the array; empty if it did not."""
        for where, beside in self._beside.items():
            if (beside != self._untouched[where]).any():
                return f"written {where}"
        return ""
