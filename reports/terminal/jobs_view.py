"""The live view of a study's jobs: a line whenever a point changes its state, and how far all points are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from ladder.records.jobs import JobState, PointJob
from reports.facts import numbers

ORDER: tuple[JobState, ...] = ("running", "stopped", "waiting", "measured", "skipped")  # in a sentence


class JobsView:
    """Shows how far each point is, whenever it is told."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console, self._clock = console, clock
        self._before: dict[str, JobState] = {}

    def show(self, jobs: Sequence[PointJob], at_once: int) -> None:
        """Print the points whose state is new, and how far all are; `at_once` jobs run at a time."""
        new = [job for job in jobs if self._before.get(job.name, "waiting") != job.state]
        self._before, now = {job.name: job.state for job in jobs}, self._clock()
        for line in [f"{job.name}: {_changed(job)}" for job in new] + [_total(jobs, at_once, now)] * bool(new):
            self._console.print(Text(line), soft_wrap=True)


def _changed(job: PointJob) -> str:
    """A point's new state: `running, job 12_3 on node1`, `measured in 41 s`, `stopped: out of time`."""
    if job.state == "running":
        return f"running, job {job.job} on {job.host}"
    if job.state == "waiting":  # its first state is no change
        return f"waiting again, job {job.job}"
    took = numbers.duration(job.ended - job.began) if job.began else ""
    return f"{job.state}: {job.reason}" if job.reason else f"{job.state} in {took}"


def _total(jobs: Sequence[PointJob], at_once: int, now: float) -> str:
    """How many points are in which state, and the time left at the mean of those measured."""
    counts = Counter(job.state for job in jobs)
    told = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
    done = [job.ended - job.began for job in jobs if job.state == "measured"]
    left = counts["waiting"] + counts["running"]
    if not done or not left:
        return told
    running = sum(now - job.began for job in jobs if job.state == "running")
    mean = sum(done) / len(done)
    left_s = (mean * left - running) / min(at_once, left)
    return f"{told}; about {numbers.duration(left_s)} left" if left_s >= 1 else told
