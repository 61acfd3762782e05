"""Reads from Linux how much of the host other processes take while a stage runs: waits, stolen time, quotas."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from common.cpu.cores import control_groups, throttled_s
from ladder.records.run import HostState

TASKS, STAT = Path("/proc/self/task"), Path("/proc/stat")
IDLE, IOWAIT, STEAL, GUEST = 4, 5, 8, 9  # fields of a line of /proc/stat; field 0 is its name


class _Counters(NamedTuple):
    """Seconds since the system or this process began."""

    at: float
    waited: float  # by this process's threads, ready to run and without a core
    stolen: float  # from this virtual machine by others
    busy: float  # all cores, all processes
    own: float  # all cores, this process
    idle: float  # the cores that this process may use
    throttled: float  # the cores of its control groups, by their quotas


class HostMonitor:
    """The differences between readings of Linux's accounting; without `/proc`, every reading is empty."""

    def __init__(self, tasks: Path = TASKS, stat: Path = STAT, groups: Iterable[Path] | None = None) -> None:
        self._tasks, self._stat = tasks, stat
        self._groups = list(control_groups() if groups is None else groups)
        self._cores = {f"cpu{core}" for core in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
        self._before = self._now()

    def read(self) -> list[HostState]:
        """The state since the last reading, or since the monitor was made; empty without accounting."""
        before, self._before = self._before, self._now()
        if before is None or self._before is None:
            return []
        passed = _Counters(*(now - then for now, then in zip(self._before, before, strict=True)))
        # Differences may be negative: a thread that ends takes its counters with it, and ticks lag behind.
        others = max(passed.busy - passed.own, 0.0)
        cores = os.cpu_count() or 1
        share = min(others / (passed.at * cores), 1.0) if passed.at > 0 else 0.0
        idle_cores = passed.idle / passed.at if passed.at > 0 else 0.0
        passed = _Counters(*(max(seconds, 0.0) for seconds in passed))
        return [
            HostState(
                waited_s=passed.waited,
                stolen_s=passed.stolen,
                others=share,
                idle_cores=max(idle_cores, 0.0),
                over_s=passed.at,
                own_s=passed.own,
                cores=cores,
                throttled_s=passed.throttled,
            )
        ]

    def _now(self) -> _Counters | None:
        waited_ns = 0
        try:
            for task in self._tasks.iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
                    waited_ns += int((task / "schedstat").read_text().split()[1])
            fields, *cores = (line.split() for line in self._stat.read_text().splitlines())
            ticks = [int(field) for field in fields[1:GUEST]]  # guest time is contained in user time
            stolen, idle = ticks[STEAL - 1], ticks[IDLE - 1] + ticks[IOWAIT - 1]
        except (OSError, ValueError, IndexError):
            return None
        second = os.sysconf("SC_CLK_TCK")
        return _Counters(
            at=time.monotonic(),
            waited=waited_ns / 1e9,
            stolen=stolen / second,
            busy=(sum(ticks) - idle - stolen) / second,
            own=time.process_time(),
            idle=self._idle(cores) / second,
            throttled=throttled_s(self._groups),
        )

    def _idle(self, cores: Iterable[Sequence[str]]) -> float:
        """Idle ticks of the cores that this process could use when it began, from the lines of /proc/stat."""
        return sum(int(line[IDLE]) + int(line[IOWAIT]) for line in cores if line and line[0] in self._cores)
