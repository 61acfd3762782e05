"""What others take of the host while a stage runs on it: cores that it waited for, cores that were busy beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ladder.records.run import HostState

TASKS, STAT = Path("/proc/self/task"), Path("/proc/stat")
IDLE, IOWAIT, STEAL, GUEST = 4, 5, 8, 9  # the fields of /proc/stat's first line, of which 0 is its name


class _Account(NamedTuple):
    """Seconds since the system, or this process, began."""

    at: float
    waited: float
    stolen: float
    busy: float  # of all cores, by any process
    own: float  # of them, by this process
    idle: float  # of the cores that this process may use


class HostMonitor:
    """Linux's own account of it, from one reading to the next; says nothing where there is none."""

    def __init__(self, tasks: Path = TASKS, stat: Path = STAT) -> None:
        self._tasks, self._stat = tasks, stat
        self._cores = {f"cpu{core}" for core in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
        self._before = self._now()

    def read(self) -> list[HostState]:
        """What was lost to others since the last reading, or since the beginning; empty without an account."""
        before, self._before = self._before, self._now()
        if before is None or self._before is None:
            return []
        passed = _Account(*(now - then for now, then in zip(self._before, before, strict=True)))
        # A thread that ended has taken its account with it; and what is accounted in ticks may lag behind a little.
        others = max(passed.busy - passed.own, 0.0)
        share = others / (passed.at * (os.cpu_count() or 1)) if passed.at > 0 else 0.0
        idle_cores = passed.idle / passed.at if passed.at > 0 else 0.0
        return [HostState(max(passed.waited, 0.0), max(passed.stolen, 0.0), share, max(idle_cores, 0.0))]

    def _now(self) -> _Account | None:
        waited_ns = 0
        try:
            for task in self._tasks.iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
                    waited_ns += int((task / "schedstat").read_text().split()[1])
            fields, *cores = (line.split() for line in self._stat.read_text().splitlines())
            ticks = [int(field) for field in fields[1:GUEST]]  # a guest's time is counted as its host's, too
            stolen, idle = ticks[STEAL - 1], ticks[IDLE - 1] + ticks[IOWAIT - 1]
        except (OSError, ValueError, IndexError):
            return None
        second = os.sysconf("SC_CLK_TCK")
        return _Account(
            at=time.monotonic(),
            waited=waited_ns / 1e9,
            stolen=stolen / second,
            busy=(sum(ticks) - idle - stolen) / second,
            own=time.process_time(),
            idle=self._idle(cores) / second,
        )

    def _idle(self, cores: Iterable[Sequence[str]]) -> float:
        """Ticks that the cores which this process could use when it began have idled, of /proc/stat's lines."""
        return sum(int(line[IDLE]) + int(line[IOWAIT]) for line in cores if line and line[0] in self._cores)
