"""Executes launches for the shim in a separate process.

A kernel, above all one with a planted defect, may write anywhere, crash, or never end. The process (executor.cpp) runs
nothing else, and shares only the launch's arrays with the tests. One process executes many launches of correct kernels,
since starting it takes longer than most launches. It ends after a launch of any other kernel, and after a fault.
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

MEMORY_BYTES = 1 << 30  # of addresses; a page is allocated when it is first written
REPORT_BYTES = 4096  # at the start: the address of a fault, then its description
_FAULT = 3  # the exit status after a fault that is described in the report
_SLACK_S = 60  # beyond the limit, within which a launch that takes too long reports itself


@dataclass(frozen=True)
class Request:
    """A launch, with addresses in the executor."""

    library: Path
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_at: int
    shared_bytes: int
    is_last: bool
    together: int  # 0: one block at a time; else all at once, in clusters of so many blocks along x
    seed: int
    limit_s: int
    guards: Sequence[int]  # addresses of pages that must not be touched
    pages: Sequence[int]  # of a dependent launch's tensors: an address and a size each
    arguments: Sequence[bytes]

    def text(self) -> str:
        """The request as executor.cpp reads it."""
        how = (self.shared_at, self.shared_bytes, int(self.is_last), self.together, self.seed, self.limit_s)
        values = [int.from_bytes(argument, sys.byteorder) for argument in self.arguments]
        lists = [number for each in (self.guards, self.pages, values) for number in (len(each), *each)]
        numbers = (*self.grid, *self.block, *how, *lists)
        return f"{self.library}\n{self.kernel} {' '.join(map(str, numbers))}\n"


@dataclass(frozen=True)
class Fault:
    """A fault's description, and its address if it was an access."""

    what: str
    address: int | None = None


class Executor:
    """The process, and the memory shared with it, which begins at `base` there."""

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
            start_new_session=True,  # so that Ctrl-C reaches the tests alone
        )
        assert process.stdout is not None
        self.base = int(process.stdout.readline())
        return process

    def close(self) -> None:
        """End the process."""
        self._process.communicate()  # it ends when there are no more requests
        os.close(self._file)

    def execute(self, request: Request) -> Fault | None:
        """Run a launch to its end; None without a fault. `base` may change."""
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
