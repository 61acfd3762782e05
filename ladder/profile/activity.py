"""Reads the records in CUPTI's buffers in place.

cupti-python turns every record into a NumPy object, which is fifty times slower: ten seconds for an epoch of thousands
of steps. This module exchanges buffers with the library itself, by the two callbacks in CUPTI's documentation, and
reads only the fields that a trace needs. Newer versions add fields at the end of a record and keep the offsets of the
others (`cupti_activity.h`).
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

LIBRARY = "libcupti.so.13"  # loaded before by cupti-python
BUFFER_BYTES = 8 << 20  # about ten thousand records; CUPTI zeroes each buffer, and a larger one longer than an epoch
MAX_LIMIT_REACHED = 12  # CUptiResult: no more records in this buffer
Memory = Any
Handler = Callable[[Memory, int], None]
"""Receives a record: the buffer and the byte offset at which the record begins."""

_REQUESTED = ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
_COMPLETED = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


def fields(*wanted: tuple[int, str]) -> Struct:
    """A struct that unpacks some fields of a record, each given by its byte offset and format letters."""
    layout, at = "<", 0
    for begin, letters in wanted:
        layout += f"{begin - at}x{letters}"
        at = begin + calcsize(f"<{letters}")
    return Struct(layout)


KIND = fields((0, "i"))


class Buffers:
    """Lends buffers to CUPTI, and passes the records in them to the handler of their kind."""

    def __init__(self, library: Any) -> None:
        self.handlers: Mapping[int, Handler] = {}  # by kind of record; without handlers, buffers are not read
        self._error: Exception | None = None
        self._next = library.cuptiActivityGetNextRecord
        self._next.argtypes = c_void_p, c_size_t, POINTER(c_void_p)
        self._lent: dict[int, Memory] = {}
        self._free: list[Memory] = []
        # Referenced for the life of the process: CUPTI may call them even after recording has ended.
        self._callbacks = _REQUESTED(self._lend), _COMPLETED(self._reclaim)
        if status := library.cuptiActivityRegisterCallbacks(*self._callbacks):
            raise ProfileError(f"CUPTI accepts no buffers (error {status})")

    def check(self) -> None:
        """Raise an error that occurred in a callback, where CUPTI would ignore it."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _lend(self, buffer: Any, size: Any, most_records: Any) -> None:
        memory = self._free.pop() if self._free else ctypes.create_string_buffer(BUFFER_BYTES)
        address = ctypes.addressof(memory)
        self._lent[address] = memory
        buffer[0], size[0], most_records[0] = address, BUFFER_BYTES, 0  # 0: no limit on records

    def _reclaim(self, context: int, stream: int, address: int, size: int, valid: int) -> None:  # noqa: ARG002
        memory = self._lent.pop(address)
        try:
            if self.handlers:
                self._read(memory, address, valid)
        except Exception as error:
            self._error = error
        self._free.append(memory)

    def _read(self, memory: Memory, address: int, valid: int) -> None:
        record = c_void_p()
        while not (status := self._next(address, valid, byref(record))):
            offset = (record.value or 0) - address
            handle = self.handlers.get(KIND.unpack_from(memory, offset)[0])
            if handle is not None:
                handle(memory, offset)
        if status != MAX_LIMIT_REACHED:
            raise ProfileError(f"CUPTI's buffer cannot be read (error {status})")


@cache
def buffers() -> Buffers:
    """The buffers of this process; raises OSError unless CUPTI has been loaded."""
    return Buffers(ctypes.CDLL(LIBRARY, os.RTLD_NOLOAD | os.RTLD_NOW))


@cache
def text(address: int) -> str:
    """The text at an address in a record; CUPTI keeps it for the life of the process."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""
