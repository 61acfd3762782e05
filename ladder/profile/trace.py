"""What happened on the device and in the host's calls while two epochs ran: the same plain data from every tool.

All times are integers in ns on one clock, whichever the tool uses. Lists are in the order of their start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["host to device", "device to host", "device to device", "fill", "other"]


class ProfileError(Exception):
    """A profile could not be taken or read: one line that says of what and why."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One run of a kernel."""

    name: str  # demangled, without template arguments
    start: int
    end: int
    correlation: int  # of the call that launched it, or the graph it belongs to
    registers: int = 0  # a thread
    shared_bytes: int = 0  # a block, static and dynamic
    blocks: int = 1
    threads: int = 1  # a block
    cluster: int = 1  # blocks


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy, or a fill, of memory by the device."""

    direction: Direction
    start: int
    end: int
    correlation: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call into the CUDA runtime or driver that hands over work, waits or allocates."""

    name: str  # without a version: `cudaLaunchKernel`
    start: int
    end: int
    correlation: int
    thread: int


@dataclass(frozen=True, slots=True)
class Range:
    """What the code itself said that it was doing (NVTX): the stage, an epoch, a part of the step."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    """One epoch, from its first call to the end of the fence behind it."""

    epoch: int  # from 0 within a run
    start: int
    end: int


@dataclass
class Trace:
    """Everything that a tool recorded."""

    windows: list[Window] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
