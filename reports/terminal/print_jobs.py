"""The live view of a study's jobs: a table on a terminal, elsewhere a line whenever a point changes its state."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ladder.records.jobs import JobState, PointJob
from reports.facts import numbers
from reports.writers.console import is_live, plain_table

STYLE = {"measured": "green", "skipped": "dim", "stopped": "bold red", "running": "bold", "waiting": "dim"}
ORDER: tuple[JobState, ...] = ("running", "stopped", "waiting", "measured", "skipped")  # the first are shown first
BESIDE = 4  # lines of a terminal that the table leaves free


class JobsView:
    """Shows how far each point is, whenever it is told."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console, self._clock = console, clock
        self._live = Live(console=console, auto_refresh=False, transient=True) if is_live(console) else None
        self._before: dict[str, JobState] = {}

    def show(self, jobs: Sequence[PointJob], at_once: int) -> None:
        """Show the points' states; `at_once` jobs run at a time."""
        changed = [job for job in jobs if self._before.get(job.name, "waiting") != job.state]
        self._before = {job.name: job.state for job in jobs}
        if self._live is not None:
            self._live.start()
            self._live.update(Group(self._table(jobs), Text(self._total(jobs, at_once))), refresh=True)
        else:
            for job in changed:
                self._console.print(Text(f"{job.name}: {self._line(job)}"), soft_wrap=True)
            if changed:
                self._console.print(Text(self._total(jobs, at_once)), soft_wrap=True)

    def end(self) -> None:
        """Remove the table."""
        if self._live is not None:
            self._live.stop()

    def _table(self, jobs: Sequence[PointJob]) -> Table:
        table = plain_table()
        for heading in ("point", "state", "job", "host", "for"):
            table.add_column(heading, no_wrap=True, overflow="ellipsis")
        shown = sorted(jobs, key=lambda job: ORDER.index(job.state))[: max(self._console.height - BESIDE, 1)]
        for job in sorted(shown, key=jobs.index):
            state = f"{job.state}: {job.reason}" if job.reason else job.state
            table.add_row(Text(job.name), Text(state, STYLE[job.state]), job.job, job.host, self._took(job))
        return table

    def _line(self, job: PointJob) -> str:
        """A point's new state: `running, job 12_3 on node1`, `measured in 41 s`, `stopped: out of time`."""
        if job.state == "running":
            return f"running, job {job.job} on {job.host}"
        if job.state == "waiting":  # its first state is no change
            return f"waiting again, job {job.job}"
        return f"{job.state}: {job.reason}" if job.reason else f"{job.state} in {self._took(job)}"

    def _took(self, job: PointJob) -> str:
        return numbers.duration((job.ended or self._clock()) - job.began) if job.began else ""

    def _total(self, jobs: Sequence[PointJob], at_once: int) -> str:
        """How many points are in which state, and the time left at the mean of those measured."""
        counts = Counter(job.state for job in jobs)
        told = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        done = [job.ended - job.began for job in jobs if job.state == "measured"]
        left = counts["waiting"] + counts["running"]
        if not done or not left:
            return told
        running = sum(self._clock() - job.began for job in jobs if job.state == "running")
        mean = sum(done) / len(done)
        left_s = (mean * left - running) / min(at_once, left)
        return f"{told}; about {numbers.duration(left_s)} left" if left_s >= 1 else told
