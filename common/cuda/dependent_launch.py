"""Programmatic dependent launch: a kernel's blocks start while the previous kernel still runs, and wait inside.

Why it is correct. `griddepcontrol_wait` (stages/kernels/device/dependent.cuh) returns once the kernel at the other end
of a programmatic edge is complete and its writes are visible. It guarantees nothing about earlier kernels. So every
kernel of a chain waits before it touches memory, even if it reads nothing from its neighbour. A complete kernel has
then seen its predecessor complete, and so on back to the first. If one kernel did not wait, it could finish while its
predecessor still ran; the next kernel would read or overwrite memory too early. A kernel may let the next one start
at any time, best at once: the next one only takes its place and waits. If it does so after its own wait, the next one
may read early what kernels before it wrote (stages/large_batch/large_batch_early.py).

A ring of weight tiles (stages/kernels/streamed/ring.cuh) copies weights before it waits. Each ring lets the next kernel
start only after its own wait, so of the kernels before it at most two may still run, and these write no weights of its
layer. Where the kernel before does, in the first layer forward, the ring waits first.

In a `Chain` an edge is programmatic only between two such kernels on one stream, where the second depends on the first
alone. Edges from or to library kernels, memsets, copies and joins of branches are ordinary: they wait for the whole
kernel, and a wait behind them returns at once.

`Kernel.dependent` makes the edge from a library kernel programmatic too. Our kernel waits until that one is complete.
The library's kernel began behind an ordinary edge, or waited by itself, so all before it is complete as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cuda.bindings import driver

from common.cuda.compile import Macros, local_sources

HEADER = "dependent.cuh"
MACROS: Macros = (("DEPENDENT_LAUNCH", "1"),)
DEPENDENCIES = (
    4  # index of the next node's dependencies in cuStreamGetCaptureInfo's result; later fields vary by CUDA version
)

Place = tuple[int, list[int]]  # a captured stream, and the dependencies of its next node


def waits(source: Path) -> bool:
    """Whether a file's kernels, compiled with `MACROS`, wait for their predecessor."""
    return any(file.name == HEADER for file in local_sources(source))


def captured_at(stream: int) -> Place | None:
    """The current end of a stream's capture; None if it is not captured. RuntimeError if CUDA refuses."""
    info = driver.cuStreamGetCaptureInfo(stream)
    status, capturing = info[:2]
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuStreamGetCaptureInfo: {status.name}")
    if capturing != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        return None
    return stream, [int(node) for node in info[DEPENDENCIES]]


class Chain:
    """Waiting kernels captured one after the other; `place` returns the capture's current end."""

    def __init__(self, place: Callable[[], Place | None]) -> None:
        self._place = place
        self._end: Place | None = None  # after the last of them

    def goes_on(self) -> bool:
        """Whether the next captured kernel depends on the chain's last kernel alone."""
        return self._end is not None and self._place() == self._end

    def extend(self) -> None:
        """Append the kernel captured last."""
        self._end = self._place()
