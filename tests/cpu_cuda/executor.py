"""Executes launches for the shim, in a process apart.

A kernel, and a defect planted in one even more so, may write where it likes, crash, or never end. So it does this in a
process that runs nothing else (executor.cpp): of the tests' own memory it sees the arrays that it was given, and no
more. A process executes the launches of kernels that are to be right one after the other, since most of them take a
fraction of what a process takes to begin; any other kernel's launch, and one that had a fault, is its last.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY_BYTES = 1 << 30  # of addresses; a page is taken when it is first written
REPORT_BYTES = 4096  # the first ones: the address of a fault, then what it was
_FAULT = 3  # the exit status after a fault that is told in the report
_SLACK_S = 60  # beyond its limit, within which a launch that takes too long says so itself


@dataclass(frozen=True)
class Request:
    """A launch; addresses are those in the executor."""

    library: Path
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_at: int
    shared_bytes: int
    is_last: bool
    together: int  # 0: blocks run one after the other; else all at once, in clusters of so many along x
    seed: int
    limit_s: int
    guards: Sequence[int]  # where a page begins that must not be touched
    pages: Sequence[int]  # of a dependent launch's tensors, an address and a size each
    arguments: Sequence[bytes]

    def text(self) -> str:
        """As executor.cpp reads it."""
        how = (self.shared_at, self.shared_bytes, int(self.is_last), self.together, self.seed, self.limit_s)
        values = [int.from_bytes(argument, sys.byteorder) for argument in self.arguments]
        lists = [number for each in (self.guards, self.pages, values) for number in (len(each), *each)]
        numbers = (*self.grid, *self.block, *how, *lists)
        return f"{self.library}\n{self.kernel} {' '.join(map(str, numbers))}\n"


@dataclass(frozen=True)
class Fault:
    """What was wrong, and the address if it was an access."""

    what: str
    address: int | None = None


class Executor:
    """The process, and the memory that is shared with it, which begins at `base` there."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._file = os.memfd_create("cpu_cuda")
        os.ftruncate(self._file, MEMORY_BYTES)
        self.memory = mmap.mmap(self._file, MEMORY_BYTES)
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [self._program, str(self._file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[self._file],
            start_new_session=True,  # so that Ctrl-C is told to the tests alone
        )
        assert process.stdout is not None
        self.base = int(process.stdout.readline())
        return process

    def close(self) -> None:
        """End the process."""
        self._process.communicate()  # it ends when there are no more requests
        os.close(self._file)

    def execute(self, request: Request) -> Fault | None:
        """Run a launch to its end; None if it had no fault. Afterwards `base` may be another."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request.text())
        process.stdin.flush()
        if not select.select([process.stdout], [], [], request.limit_s + _SLACK_S)[0]:
            process.kill()
        if process.stdout.readline():
            return None
        process.communicate()
        self._process = self._started()
        if process.returncode == 0 and request.is_last:
            return None
        if process.returncode == _FAULT:
            what, _, _ = self.memory[8:REPORT_BYTES].partition(b"\0")
            return Fault(what.decode(), int.from_bytes(self.memory[:8], sys.byteorder) or None)
        if process.returncode < 0:
            return Fault(f"ended by {signal.Signals(-process.returncode).name}")
        raise RuntimeError(f"the executor of kernels has ended, exit status {process.returncode}")
