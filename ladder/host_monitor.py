"""What the process lacks of the host's cores while it runs: time in which it wanted one and another had it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ladder.results import HostState

TASKS, STAT = Path("/proc/self/task"), Path("/proc/stat")
STEAL = 8  # the field of /proc/stat's first line, from 0 with its name


class HostMonitor:
    """Linux's own account of it, from one reading to the next; says nothing where there is none."""

    def __init__(self, tasks: Path = TASKS, stat: Path = STAT) -> None:
        self._tasks, self._stat = tasks, stat
        self._before = self._now()

    def read(self) -> list[HostState]:
        """What was waited for and stolen since the last reading, or since the beginning; empty without an account."""
        before, self._before = self._before, self._now()
        if before is None or self._before is None:
            return []
        # A thread that ended since then has taken its account with it, so that the sum may shrink.
        return [HostState(*(max(now - then, 0.0) for now, then in zip(self._before, before, strict=True)))]

    def _now(self) -> tuple[float, float] | None:
        """The seconds that all threads waited for a core, and those that were stolen from the machine's cores."""
        waited_ns = 0
        try:
            for task in self._tasks.iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
                    waited_ns += int((task / "schedstat").read_text().split()[1])
            stolen = int(self._stat.read_text().split("\n", 1)[0].split()[STEAL])
        except (OSError, ValueError, IndexError):
            return None
        return waited_ns / 1e9, stolen / os.sysconf("SC_CLK_TCK")
