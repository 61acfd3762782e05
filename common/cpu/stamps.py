"""Time stamps around every call of a kernel, for a profile of the CPU.

Compiled code reads the clock of `time.perf_counter_ns` just before and just after each kernel, so that Python's part of
a call counts as Python. No privilege is needed.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.cpu.compiled import call, call_library, kernel, words
from common.cpu.host import CALL, BoundCall, Host, Replay
from common.cpu.replay import replay

MONOTONIC = 1  # CLOCK_MONOTONIC of Linux, which Python's perf_counter reads
CLOCK_GETTIME: int = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
STAMP_WORDS = 2  # seconds and nanoseconds
STAMP_BYTES = 8 * STAMP_WORDS
MOST_CALLS = 1 << 20  # from Python in an epoch: 32 MB of stamps
THREADS = 4  # of which calls are stamped; more would only make the profile longer

Times = NDArray[np.int64]


@kernel()
def stamped(row):
    """Call a kernel between two time stamps. Row: kernel, its row, where the next stamp's address is, clock_gettime."""
    at = words(row[2], 1)
    call_library(row[3], (MONOTONIC, at[0]))
    call(row[0], row[1])
    call_library(row[3], (MONOTONIC, at[0] + STAMP_BYTES))
    at[0] += 2 * STAMP_BYTES


@dataclass(frozen=True)
class Calls:
    """Calls of one thread in order, with the begin and the end of each in ns: (calls, 2)."""

    thread: int
    calls: Sequence[BoundCall]
    times: Times
    from_python: bool  # each of them; otherwise one call from Python made them all


class Buffer:
    """Memory for the stamps of some calls, and the address of the next one."""

    def __init__(self, calls: int) -> None:
        self._words = np.empty((calls, 2, STAMP_WORDS), np.int64)
        self.next = np.zeros(1, np.int64)
        self.rewind()

    def rewind(self) -> None:
        """Begin again with the first stamp."""
        self.next[0] = self._words.ctypes.data

    def times(self, calls: int) -> Times:
        """The first stamps in ns: (calls, 2)."""
        stamps = self._words[:calls]
        return stamps[..., 0] * 1_000_000_000 + stamps[..., 1]


class StampedReplay:
    """A recorded list with stamps around each call."""

    def __init__(self, calls: Sequence[BoundCall]) -> None:
        self._buffer = Buffer(len(calls))
        rows = np.empty((len(calls), 4), np.int64)
        rows[:, :2] = [call.pair for call in calls]
        rows[:, 2:] = self._buffer.next.ctypes.data, CLOCK_GETTIME
        pairs = np.empty((len(calls), 2), np.int64)
        pairs[:, 0] = stamped.address
        pairs[:, 1] = rows.ctypes.data + rows.strides[0] * np.arange(len(calls))
        self._calls = calls
        self._whole = BoundCall(replay, (pairs, len(calls)), keep=rows)

    def __call__(self) -> Times:
        """Make all calls; a call begins when the one before it has ended."""
        self._buffer.rewind()
        self._whole()
        times = self._buffer.times(len(self._calls))
        times[1:, 0] = times[:-1, 1]
        return times


class Stamps:
    """Receives every call while a profile is taken, and makes it with stamps around it."""

    def __init__(self) -> None:
        self._buffer = Buffer(MOST_CALLS)
        self._calls: list[BoundCall] = []
        self._replays: dict[int, StampedReplay] = {}
        self._replayed: list[Calls] = []
        self._row = (ctypes.c_int64 * 4)(0, 0, self._buffer.next.ctypes.data, CLOCK_GETTIME)
        self._stamped, self._row_address = CALL(stamped.address), ctypes.addressof(self._row)

    def append(self, call: BoundCall) -> None:
        """Make a call from Python."""
        if len(self._calls) == MOST_CALLS:
            raise RuntimeError(f"an epoch has more than {MOST_CALLS:,} calls; profile fewer steps: --max-steps")
        self._calls.append(call)
        self._row[0], self._row[1] = call.pair
        self._stamped(self._row_address)

    def replay(self, whole: Replay) -> None:
        """Replay a list, with stamps if it is one of the first threads'."""
        if whole.thread >= THREADS:
            whole.whole()
            return
        replay = self._replays.get(id(whole))
        if replay is None:
            replay = self._replays[id(whole)] = StampedReplay(whole.calls)
        self._replayed.append(Calls(whole.thread, whole.calls, replay(), from_python=False))

    def take(self) -> list[Calls]:
        """All calls since the last time, by thread; those from Python first."""
        calls, replayed = self._calls, self._replayed
        self._calls, self._replayed = [], []
        times = self._buffer.times(len(calls))
        self._buffer.rewind()
        one_by_one = [Calls(0, calls, times, from_python=True)] if calls else []
        return [*one_by_one, *sorted(replayed, key=lambda calls: calls.thread)]


@contextmanager
def stamping() -> Iterator[Stamps]:
    """Stamp every call of this process's kernels inside."""
    stamps = Stamps()
    Host.recording = Replay.stamps = stamps
    try:
        yield stamps
    finally:
        Host.recording = Replay.stamps = None
