"""The CPU as the `Device` of a recipe: memory, kernels by name, and the replay of recorded steps."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from common.cpu.compiled import word
from common.cpu.replay import LINE, barrier, replay

Array = NDArray[Any]
Words = NDArray[np.int64]
LINE_BYTES = 64
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
SCHED_YIELD = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value


class BoundCall:
    """A kernel with its arguments, which it keeps alive, and `keep` with them."""

    def __init__(self, function: Any, arguments: Sequence[Any], keep: Any = None) -> None:
        self._kept = (arguments, keep)
        self.name: str = function.__name__
        self.row: Words = np.array([word(argument) for argument in arguments], np.int64)
        self.pair = (function.address, self.row.ctypes.data)
        self._call, self._row = CALL(function.address), self.row.ctypes.data

    def __call__(self) -> None:
        """Run the kernel."""
        self._call(self._row)


class Kernel:
    """A compiled kernel, called with (grid, block, *arguments) as on a GPU; a CPU needs neither grid nor block.

    Arguments are prepared once: a step calls each kernel with the same arrays again and again.
    """

    def __init__(self, function: Any, host: Host) -> None:
        self._function = function
        self._host = host
        self._bound: dict[tuple[int, ...], BoundCall] = {}

    def __call__(self, grid: Any, block: Any, *arguments: Any) -> None:  # noqa: ARG002
        """Run the kernel now, or add it to the recording."""
        self.run(*arguments)

    def run(self, *arguments: Any, keep: Any = None) -> None:
        """The same without a grid; `keep` holds what addresses among the arguments point to."""
        key = tuple(map(id, arguments))
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = BoundCall(self._function, arguments, keep)
        self._host.do(bound)


class Recording(Protocol):
    """What receives calls instead of running them: a list, or a profile's time stamps."""

    def append(self, call: BoundCall, /) -> None:
        """Receive a call."""


class Stamping(Recording, Protocol):
    """A profile's time stamps."""

    def replay(self, whole: Replay, /) -> None:
        """Make the calls of a list with stamps around them."""


class Host:
    """The CPU. Kernels run at once on the caller's thread, unless they are being recorded."""

    kind: Literal["cpu", "gpu"] = "cpu"
    stream_handle: int | None = None
    has_clusters = False
    keeps_columns = True
    threads = 1
    recording: ClassVar[Recording | None] = None

    def __init__(self, kernels: Mapping[str, Any]) -> None:
        self._kernels = kernels

    @property
    def detail(self) -> str:
        """The number of threads that train."""
        return f"CPU, {self.threads} thread{'s' if self.threads > 1 else ''}"

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Uninitialised memory that begins with a cache line."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        memory = np.empty(size + LINE_BYTES, np.uint8)
        begin = -memory.ctypes.data % LINE_BYTES
        return memory[begin : begin + size].view(dtype).reshape(shape)

    def upload(self, host: Array) -> Array:
        """A copy."""
        copy = self.empty(host.shape, host.dtype)
        copy[...] = host
        return copy

    def overwrite(self, target: Array, host: Array) -> None:
        """Copy an array over another."""
        target[...] = host

    def download(self, array: Array) -> Array:
        """A copy in rows."""
        return np.array(array, order="C")

    def zero(self, array: Array) -> None:
        """Zeros, at once."""
        array[...] = 0

    def kernel(self, file: Path | str, name: str, **how: Any) -> Kernel:  # noqa: ARG002
        """The kernel of this name; files and launch options are the GPU's."""
        return Kernel(self._kernels[name], self)

    def do(self, call: BoundCall) -> None:
        """Run a call, or record it."""
        if self.recording is None:
            call()
        else:
            self.recording.append(call)

    @contextmanager
    def recorded(self) -> Iterator[list[BoundCall]]:
        """Record the calls inside instead of running them."""
        assert Host.recording is None
        calls: list[BoundCall] = []
        Host.recording = calls
        try:
            yield calls
        finally:
            Host.recording = None

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Record what `enqueue` calls; returns a function that replays it in one call."""
        with self.recorded() as calls:
            enqueue()
        return Replay(calls)


class Replay:
    """Recorded calls of one thread, which one call of a compiled function makes in order."""

    stamps: ClassVar[Stamping | None] = None

    def __init__(self, calls: Sequence[BoundCall], thread: int = 0) -> None:
        self.calls, self.thread = calls, thread  # kept: the calls hold the rows
        pairs: Words = np.array([call.pair for call in calls], np.int64).reshape(-1, 2)
        self.whole = BoundCall(replay, (pairs, len(calls)))

    def __call__(self) -> None:
        """Make all calls, with time stamps while a profile is taken."""
        if self.stamps is None:
            self.whole()
        else:
            self.stamps.replay(self)


class Team:
    """Threads that replay a list each and wait for one another at barriers."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._meeting = np.zeros(2 * LINE, np.int64)  # arrivals, and rounds in another cache line
        self._others = ThreadPoolExecutor(max(1, threads - 1), "cpu-cores")

    def barrier(self) -> BoundCall:
        """A call in which a thread waits for all others."""
        arrived, rounds = self._meeting[:1], self._meeting[LINE : LINE + 1]
        return BoundCall(barrier, (arrived, rounds, self.threads, SCHED_YIELD))

    def run(self, lists: Sequence[Replay]) -> None:
        """Replay one list on each thread, the first on the caller's; returns when all have ended."""
        others = [self._others.submit(own) for own in lists[1:]]
        lists[0]()
        for other in others:
            other.result()


def shares(count: int, threads: int, multiple: int = 1) -> list[slice]:
    """Consecutive shares of `count` things, one a thread, that begin at a multiple; the last ones may be empty."""
    groups = -(-count // multiple)
    ends = [min(count, (groups * (thread + 1) // threads) * multiple) for thread in range(threads)]
    return [slice(begin, end) for begin, end in itertools.pairwise([0, *ends])]
