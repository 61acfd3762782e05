"""Programmatic dependent launch: a kernel's blocks start while the kernel before it still runs, and wait there.

What makes it right. `wait_for_previous` (stages/kernels/device/dependent.cuh) returns once the kernel at the other end
of a programmatic edge is complete and all that it wrote is seen; it says nothing of the kernel before that one. So
every kernel of a chain waits, and before it touches any memory, even where it reads nothing that its neighbour
writes: then a kernel that is complete has seen its own predecessor complete, and that one its own, back to the first.
Were there one that did not wait, it could be complete while the kernel before it still ran, and the next would read
what that has yet to write, or overwrite what it has yet to read. When a kernel lets the next one start is then free,
and the earlier the better: the next one does nothing but take its place and wait.

An edge is programmatic only from one such kernel to the next that depends on it alone, on the same stream. To a kernel
of a library, to a memset or a copy, where branches join, and from any of these, edges are ordinary ones: they wait for
the whole kernel, which is complete as said, and a kernel behind one finds its wait fulfilled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cuda.bindings import driver

from common.cuda.compile import Macros, local_sources

HEADER = "dependent.cuh"
MACROS: Macros = (("DEPENDENT_LAUNCH", "1"),)
NODES = 4  # where cuStreamGetCaptureInfo has what the next node will depend on; what follows differs by CUDA's version

Place = tuple[int, list[int]]  # a stream that is captured, and the nodes that its next one will depend on


def waits(source: Path) -> bool:
    """Whether the kernels of a file wait for the one before them, if they are compiled with `MACROS`."""
    return any(file.name == HEADER for file in local_sources(source))


def captured_at(stream: int) -> Place | None:
    """Where the capture of a stream has come to; None where there is none. RuntimeError where CUDA does not tell."""
    info = driver.cuStreamGetCaptureInfo(stream)
    status, capturing = info[:2]
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuStreamGetCaptureInfo: {status.name}")
    if capturing != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        return None
    return stream, [int(node) for node in info[NODES]]


class Chain:
    """The kernels that wait, as they are captured one after the other; `place` tells where the capture has come to."""

    def __init__(self, place: Callable[[], Place | None]) -> None:
        self._place = place
        self._end: Place | None = None  # behind the last of them

    def goes_on(self) -> bool:
        """Whether what is captured next depends on the last of them, and on nothing else."""
        return self._end is not None and self._place() == self._end

    def extend(self) -> None:
        """What was captured last is one of them."""
        self._end = self._place()
