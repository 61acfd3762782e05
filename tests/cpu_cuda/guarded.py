"""Copies of arrays in memory where an access out of bounds does not go unnoticed."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 16  # of the widest load, a float4

# What lies beside an array. The NaNs are signalling ones, which arithmetic makes quiet: so even `x[i] += 1` past the
# end leaves a trace, which it would not on a quiet NaN.
_POISON: dict[np.dtype[Any], NDArray[Any]] = {
    np.dtype(np.float32): np.array(0xFFBFFFFF, np.uint32),
    np.dtype(np.float64): np.array(0xFFF7FFFFFFFFFFFF, np.uint64),
}
_OTHER_POISON: NDArray[Any] = np.array(0xFF, np.uint8)

_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """A copy of an array, up against a page that cannot be touched; one more such page lies before.

    Reading or writing past the end faults at once (or, within the few bytes that alignment costs, like a small
    underrun: reads poison, and a write is seen by `damage`).
    """

    def __init__(self, array: NDArray[Any]) -> None:
        page = mmap.PAGESIZE
        taken = -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        pages = -(-taken // page)
        self._memory = mmap.mmap(-1, (pages + 2) * page)
        self._bytes = np.frombuffer(self._memory, np.uint8)[page:-page]
        poison = _POISON.get(array.dtype, _OTHER_POISON)
        self._bytes.view(poison.dtype)[:] = poison
        self._untouched = self._bytes.copy()
        self._start = pages * page - taken
        self._end = self._start + array.nbytes
        self._base = int(self._bytes.ctypes.data)
        self.nbytes = array.nbytes
        self.array: NDArray[Any] = self._bytes[self._start : self._end].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        for guard in (self._base - page, self._base + pages * page):
            if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), _PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    @property
    def address(self) -> int:
        """Of the first element."""
        return self._base + self._start

    @property
    def pages(self) -> tuple[int, int]:
        """Where the pages begin that it lies in, and their size in bytes."""
        return self._base, len(self._bytes)

    def offset(self, address: int) -> int | None:
        """How many bytes after its start the address lies; None if it is not in this array's pages."""
        inside = self._base - mmap.PAGESIZE <= address < self._base + len(self._bytes) + mmap.PAGESIZE
        return address - self.address if inside else None

    def damage(self) -> str:
        """Where something was written beside the array; empty if nothing was."""
        changed = self._bytes != self._untouched
        if changed[: self._start].any():
            return "written before its start"
        if changed[self._end :].any():
            return "written past its end"
        return ""
