"""The live view of a study's jobs: a table on a terminal, elsewhere a line whenever a point changes its state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ladder.records.jobs import JobState, PointJob
from reports.screens.jobs import changed, jobs_screen, total
from reports.writers.console import is_live
from reports.writers.terminal import as_text

BESIDE = 4  # lines of a terminal that the table leaves free


class JobsView:
    """Shows how far each point is, whenever it is told."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console, self._clock = console, clock
        self._live = Live(console=console, auto_refresh=False, transient=True) if is_live(console) else None
        self._before: dict[str, JobState] = {}

    def show(self, jobs: Sequence[PointJob], at_once: int) -> None:
        """Show the points' states; `at_once` jobs run at a time."""
        new = [job for job in jobs if self._before.get(job.name, "waiting") != job.state]
        self._before, now = {job.name: job.state for job in jobs}, self._clock()
        if self._live is not None:
            self._live.start()
            screen = jobs_screen(jobs, at_once, now, max(self._console.height - BESIDE, 1))
            self._live.update(as_text(screen, self._console), refresh=True)
            return
        lines = [f"{job.name}: {changed(job, now)}" for job in new] + [total(jobs, at_once, now)] * bool(new)
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)

    def end(self) -> None:
        """Remove the table."""
        if self._live is not None:
            self._live.stop()
