"""A trace: device work and host calls of some epochs, in the same form from every tool.

All times are integers in ns on the tool's clock. Lists are sorted by start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

FROM_PYTHON = "call"  # of compiled code for the CPU, by Python
BARRIER = "barrier"  # a call in which a thread of the CPU waits for the others
LAUNCH = re.compile("Launch(Cooperative)?Kernel|GraphLaunch")
Direction = Literal["host to device", "device to host", "device to device", "fill", "other"]


class ProfileError(Exception):
    """A profile could not be taken or read; the message is one line with the thing and the reason."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One run of a kernel."""

    name: str  # demangled, without template arguments
    start: int
    end: int
    correlation: int  # id of the call that launched it or its graph
    registers: int = 0  # per thread
    shared_bytes: int = 0  # per block, static and dynamic
    blocks: int = 1
    threads: int = 1  # per block
    cluster: int = 1  # blocks per cluster
    thread: int = 0  # of the CPU, that ran it


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy or a fill of memory by the device."""

    direction: Direction
    start: int
    end: int
    correlation: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call into the CUDA runtime or driver that submits work, waits or allocates; on the CPU see the names above."""

    name: str  # without a version: `cudaLaunchKernel`
    start: int
    end: int
    correlation: int
    thread: int


@dataclass(frozen=True, slots=True)
class Window:
    """One epoch, from its first call to the end of the fence after it."""

    epoch: int  # from 0 within a run
    start: int
    end: int


@dataclass
class Trace:
    """All records of a tool."""

    windows: list[Window] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def check(self, tool: str, hint: str) -> None:
        """Raise ProfileError, with the hint, if kernels were launched and the tool recorded none of them."""
        launches = [call.name for call in self.calls if LAUNCH.search(call.name)]
        may_be_copies = bool(self.copies) and all("Graph" in name for name in launches)
        if launches and not self.kernels and not may_be_copies:
            raise ProfileError(f"{tool} recorded {len(launches)} launches but no kernel: {hint}")

    def by_thread(self) -> list[Trace]:
        """The same for each thread of the CPU that ran kernels; all in one if there is only one, as for a GPU."""
        threads = sorted({kernel.thread for kernel in self.kernels})
        if len(threads) < 2:
            return [self]
        return [
            Trace(
                windows=self.windows,
                kernels=[kernel for kernel in self.kernels if kernel.thread == thread],
                calls=[call for call in self.calls if call.thread == thread],
            )
            for thread in threads
        ]
