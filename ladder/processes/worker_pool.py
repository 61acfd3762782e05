"""Workers side by side, for what nobody times: compiling before anything is measured, and checking alone."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from ladder.measure.protocol import JOB, Job, JobResult
from ladder.processes.launcher import begin, end, report_of, worker

POLL_S = 0.02


class Ended(NamedTuple):
    """A worker that has come to its end: by which name, where, with what report, and after how long."""

    name: str
    folder: Path
    report: JobResult
    seconds: float


class _Running(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    begun: float


class SideBySide:
    """A worker for each job by its name, so many at once, with `folder/NAME` and `logs/NAME.log` for its own.

    The first begin on entering; iterating waits for all, as they end. On leaving, whatever still runs is ended.
    """

    def __init__(self, jobs: Mapping[str, Job], at_once: int, folder: Path, logs: Path, timeout_s: float) -> None:
        self._waiting, self._at_once = dict(jobs), at_once
        self._folder, self._logs, self._timeout_s = folder, logs, timeout_s
        self._running: list[_Running] = []

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Ended]:
        """Every worker as it ends by itself, or is ended as too late.

        They are looked at only while the next one is asked for: one that ends between is given the time until then.
        """
        while self._running:
            for one in list(self._running):
                if one.process.poll() is not None or time.monotonic() > one.begun + self._timeout_s:
                    ended = self._end(one)
                    self._begin()
                    yield ended
            time.sleep(POLL_S)

    def close(self) -> None:
        """End them all."""
        self._waiting.clear()
        for one in self._running:
            end(one.process)
        self._running.clear()

    def _begin(self) -> None:
        """As many of those that wait as there is room for."""
        for name in list(self._waiting)[: self._at_once - len(self._running)]:
            folder, log = self._folder / name, self._logs / f"{name}.log"
            folder.mkdir()
            (folder / JOB).write_bytes(msgspec.json.encode(self._waiting.pop(name)))
            self._running.append(_Running(name, begin(worker(folder), log), folder, log, time.monotonic()))

    def _end(self, one: _Running) -> Ended:
        report = report_of(lambda: one.process.wait(0), one.folder, one.log, self._timeout_s)
        assert report is not None
        end(one.process)
        self._running.remove(one)
        return Ended(one.name, one.folder, report, time.monotonic() - one.begun)
