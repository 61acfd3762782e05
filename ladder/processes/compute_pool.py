"""Processes that compute for this one, and end with it: of NumPy's small arrays, threads would take turns.

A result comes with its arrays in memory that both processes map: a pipe would copy them four times.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from mmap import mmap
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import current_thread, main_thread
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from common.arrays import by_blocks, keep_freed_memory
from common.blas import limit_blas_threads
from common.errors import UsageError
from common.files import is_limit
from common.process_group import die_with_parent
from ladder.machine.environment import cores_usable

MOST_HELPERS = 16  # each takes as much memory as NumPy does


def pool(workers: int, threads: int) -> ProcessPoolExecutor:
    """`workers` processes, with `threads` threads of BLAS each."""
    try:
        return ProcessPoolExecutor(workers, get_context("spawn"), _begin, (threads, os.getpid()))
    except OSError as error:
        if is_limit(error):
            raise
        way_out = "mount a tmpfs there, or give the container one (--shm-size)"
        raise UsageError(f"/dev/shm: {error.strerror}; the float64 oracle's processes need it: {way_out}") from error


@cache
def helpers() -> ProcessPoolExecutor:
    """A process for each core, `MOST_HELPERS` at most, kept until this process ends; each starts with its first job."""
    return pool(min(cores_usable(), MOST_HELPERS), 1)


def results_of(workers: ProcessPoolExecutor, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of all jobs; raises BrokenProcessPool if the host runs out of memory."""
    try:  # includes the starting: a Ctrl-C held back meanwhile is raised right after it
        with _ctrl_c_held_back(), _silent_stderr(), _without_main():
            futures = [workers.submit(job) for job in jobs]
        return [future.result() for future in futures]
    except BaseException:  # mostly Ctrl-C: closing the pool would wait for workers with a minute's work left
        for worker in active_children():
            worker.kill()
        raise


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Hold Ctrl-C back inside the context, also for processes started in it: this process ends them itself.

    Started processes inherit the signal mask. In this process the mask is not enough, since a library's thread may
    receive the signal: an interrupt before the pool knows a new process would leave that process running.
    """
    received: list[int] = []
    in_main_thread = current_thread() is main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number)) if in_main_thread else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
    if received:
        raise KeyboardInterrupt


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence stderr for processes started inside: one whose parent ends while it starts would print a traceback.

    Errors of their actual work are raised through the pool.
    """
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep processes started inside from importing the main program, which may take longer than their work."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(threads: int, parent: int) -> None:
    """Initialise a worker: it ends with the harness, its parent, and its BLAS uses `threads` threads."""
    die_with_parent(parent)
    os.environ["CUPY_ACCELERATORS"] = ""  # no sums by CUB, whose headers CuPy compiles anew for each kind of sum
    os.environ["CUPY_NVRTC_USE_PCH"] = "1"  # its headers take most of the time of a kernel
    np.seterr(all="ignore")  # divergence is reported in one line
    limit_blas_threads(threads)
    keep_freed_memory()


ALIGNMENT = 64  # bytes


class Packed(NamedTuple):
    """A result without its arrays, the file in memory that has them, and the bytes there of each."""

    raw: bytes
    path: str
    places: list[slice]


def packed(job: Callable[[], Any]) -> Packed:
    """Do a job and pack its result, for as long as this process lives."""
    buffers: list[pickle.PickleBuffer] = []
    raw, places, end = pickle.dumps(job(), protocol=5, buffer_callback=buffers.append), list[slice](), 0
    for buffer in buffers:
        places.append(slice(end, end + buffer.raw().nbytes))
        end = -(-places[-1].stop // ALIGNMENT) * ALIGNMENT
    descriptor = os.memfd_create("result")
    os.truncate(descriptor, end + 1)  # a map has a byte or more
    memory = np.frombuffer(mmap(descriptor, 0), np.uint8)
    for buffer, place in zip(buffers, places, strict=True):
        part = np.frombuffer(buffer.raw(), np.uint8)
        by_blocks(partial(_copy, memory[place], part), part.size)
    return Packed(raw, f"/proc/{os.getpid()}/fd/{descriptor}", places)


def _copy(target: Any, source: Any, begin: int, end: int) -> None:
    target[begin:end] = source[begin:end]


def unpacked(result: Packed) -> Any:
    """The result of a child that still lives."""
    with Path(result.path).open("r+b") as file:
        memory = memoryview(mmap(file.fileno(), 0))
    return pickle.loads(result.raw, buffers=[memory[place] for place in result.places])
