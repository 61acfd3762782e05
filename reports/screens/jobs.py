"""The screen of a study's jobs: how far each point is, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ladder.records.jobs import JobState, PointJob
from reports.facts import numbers
from reports.screens.blocks import ColumnOf, Screen, Sentences, Tone, table_of

TONES: dict[JobState, Tone] = {
    "measured": "good", "skipped": "quiet", "stopped": "bad", "running": "strong", "waiting": "quiet"
}  # fmt: skip
ORDER: tuple[JobState, ...] = ("running", "stopped", "waiting", "measured", "skipped")  # the first are shown first


def jobs_screen(jobs: Sequence[PointJob], at_once: int, now: float, most: int) -> Screen:
    """At most so many points, and how many are in which state; `at_once` jobs run at a time, `now` is in seconds."""
    first = sorted(jobs, key=lambda job: ORDER.index(job.state))[:most]
    shown = [job for job in jobs if job in first]
    tones = {_state(job): TONES[job.state] for job in shown}
    table = table_of(shown, [
        ColumnOf("point", lambda job: job.name),
        ColumnOf("state", _state, tones=tones),
        ColumnOf("job", lambda job: job.job, 2),
        ColumnOf("host", lambda job: job.host, 2),
        ColumnOf("for", lambda job: _took(job, now), 1),
    ])  # fmt: skip
    return Screen("", "", [], jobs, [], [table, Sentences([total(jobs, at_once, now)])])


def changed(job: PointJob, now: float) -> str:
    """A point's new state: `running, job 12_3 on node1`, `measured in 41 s`, `stopped: out of time`."""
    if job.state == "running":
        return f"running, job {job.job} on {job.host}"
    if job.state == "waiting":  # its first state is no change
        return f"waiting again, job {job.job}"
    return _state(job) if job.reason else f"{job.state} in {_took(job, now)}"


def _state(job: PointJob) -> str:
    return f"{job.state}: {job.reason}" if job.reason else job.state


def _took(job: PointJob, now: float) -> str:
    return numbers.duration((job.ended or now) - job.began) if job.began else ""


def total(jobs: Sequence[PointJob], at_once: int, now: float) -> str:
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
