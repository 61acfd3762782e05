"""Compilers side by side, before anything is measured: processes that leave on disk what those to be measured need.

A compiler takes longer than all that is measured of its stage, and most of that on one core. One after the other, as
stages are measured, they would keep all other cores waiting. What they are not to leave there is anything that they
chose by timing it, while others use the GPU: see `Stage.compiles_within`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from ladder.environment import cores_usable
from ladder.jobs import JOB, Job
from ladder.processes import begin, end, report_of, worker

CORES_EACH = 2  # a compiler has processes of its own for its kernels
POLL_S = 0.02


class _Compiler(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    deadline: float


class Compilers:
    """A process for each job, by the name of what it is for, of which as many run at once as the cores can take.

    Where that is no more than one at a time, there are none: it would take as long as each stage's own first process
    does. On leaving, whatever still runs is ended.
    """

    def __init__(self, jobs: Mapping[str, Job], folder: Path, logs: Path, timeout_s: float) -> None:
        self._at_once = cores_usable() // CORES_EACH
        self._waiting = dict(jobs) if min(len(jobs), self._at_once) > 1 else {}
        self._folder, self._logs, self._timeout_s = folder, logs, timeout_s
        self._running: list[_Compiler] = []
        self.names = list(self._waiting)

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> dict[str, float]:
        """Until all have ended, or been ended as too late; how long preparing took each, in seconds, by its name.

        0 for one that did not prepare what is timed, or failed, which has cost its time and no more: its stage compiles
        when it is measured.
        """
        took_s: dict[str, float] = {}
        while self._running:
            for one in list(self._running):
                if one.process.poll() is not None or time.monotonic() > one.deadline:
                    took_s[one.name] = self._end(one)
            self._begin()
            time.sleep(POLL_S)
        return took_s

    def close(self) -> None:
        """End them all."""
        self._waiting.clear()
        for one in self._running:
            end(one.process)
        self._running.clear()

    def _begin(self) -> None:
        """As many of those that wait as there is room for."""
        for name in list(self._waiting)[: self._at_once - len(self._running)]:
            folder, log = self._folder / f"{name}.compiling", self._logs / f"{name}.compiling.log"
            folder.mkdir()
            (folder / JOB).write_bytes(msgspec.json.encode(self._waiting.pop(name)))
            process = begin(worker(folder), log)
            self._running.append(_Compiler(name, process, folder, log, time.monotonic() + self._timeout_s))

    def _end(self, one: _Compiler) -> float:
        """How long preparing took this one, which has ended or ends here; 0 where it did not come to that."""
        report = report_of(lambda: one.process.wait(0), one.folder, one.log, self._timeout_s)
        end(one.process)
        self._running.remove(one)
        return report.compiled_s or 0.0 if report is not None and report.error is None else 0.0
