"""CUPTI's buffers of records, read where they lie.

cupti-python turns every record into an object of NumPy's, which takes fifty times as long as what is wanted of it: ten
seconds for an epoch of thousands of steps. So buffers are exchanged with the library itself, by the two callbacks that
its documentation describes, and of a record only the fields that a trace has are read. Later versions add fields at a
record's end and leave the others where they are (`cupti_activity.h`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_size_t, c_uint32, c_void_p
from functools import cache
from struct import Struct, calcsize
from typing import Any

from ladder.profile.trace import ProfileError

LIBRARY = "libcupti.so.13"  # which cupti-python has loaded by then
BUFFER_BYTES = 8 << 20  # some ten thousand records; CUPTI fills a larger one with zeros for longer than an epoch takes
MAX_LIMIT_REACHED = 12  # CUptiResult: there are no more records in a buffer
Memory = Any
Take = Callable[[Memory, int], None]
"""Takes in the record that begins at this byte of a buffer."""

_REQUESTED = ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
_COMPLETED = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


def fields(*wanted: tuple[int, str]) -> Struct:
    """Unpacks these fields of a record: the byte at which each begins, in order, and its type in `struct`'s letters."""
    layout, at = "<", 0
    for begin, letters in wanted:
        layout += f"{begin - at}x{letters}"
        at = begin + calcsize(f"<{letters}")
    return Struct(layout)


KIND = fields((0, "i"))


class Buffers:
    """Lends CUPTI memory, and hands the records in it to whoever takes their kind."""

    def __init__(self, library: Any) -> None:
        self.takers: Mapping[int, Take] = {}  # by kind of record; without any, a buffer is not even looked at
        self._error: Exception | None = None
        self._next = library.cuptiActivityGetNextRecord
        self._next.argtypes = c_void_p, c_size_t, POINTER(c_void_p)
        self._lent: dict[int, Memory] = {}
        self._free: list[Memory] = []
        # Kept as long as the process: CUPTI may call them once all has been switched off.
        self._callbacks = _REQUESTED(self._lend), _COMPLETED(self._take_back)
        if status := library.cuptiActivityRegisterCallbacks(*self._callbacks):
            raise ProfileError(f"CUPTI takes no buffers (error {status})")

    def check(self) -> None:
        """Raise what went wrong with a buffer: in the callback itself nobody would hear of it."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _lend(self, buffer: Any, size: Any, most_records: Any) -> None:
        memory = self._free.pop() if self._free else ctypes.create_string_buffer(BUFFER_BYTES)
        address = ctypes.addressof(memory)
        self._lent[address] = memory
        buffer[0], size[0], most_records[0] = address, BUFFER_BYTES, 0  # 0: as many as there is room for

    def _take_back(self, context: int, stream: int, address: int, size: int, valid: int) -> None:  # noqa: ARG002
        memory = self._lent.pop(address)
        try:
            if self.takers:
                self._read(memory, address, valid)
        except Exception as error:
            self._error = error
        self._free.append(memory)

    def _read(self, memory: Memory, address: int, valid: int) -> None:
        record = c_void_p()
        while not (status := self._next(address, valid, byref(record))):
            offset = (record.value or 0) - address
            take = self.takers.get(KIND.unpack_from(memory, offset)[0])
            if take is not None:
                take(memory, offset)
        if status != MAX_LIMIT_REACHED:
            raise ProfileError(f"CUPTI's buffer cannot be read (error {status})")


@cache
def buffers() -> Buffers:
    """Those of this process, which has loaded CUPTI; OSError where it has not."""
    return Buffers(ctypes.CDLL(LIBRARY, os.RTLD_NOLOAD | os.RTLD_NOW))


@cache
def text(address: int) -> str:
    """The text that a record points to, which CUPTI keeps as long as the process."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""
