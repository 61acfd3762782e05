"""The screen of a study's jobs: how far each point is, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ladder.records.jobs import JobState, PointJob
from reports.facts import numbers
from reports.screens.blocks import Column, Screen, Sentences, Table, Tone

TONES: dict[JobState, Tone] = {
    "measured": "good", "skipped": "quiet", "stopped": "bad", "running": "strong", "waiting": "quiet"
}  # fmt: skip
ORDER: tuple[JobState, ...] = ("running", "stopped", "waiting", "measured", "skipped")  # the first are shown first


def jobs_screen(jobs: Sequence[PointJob], at_once: int, now: float, most: int) -> Screen:
    """At most so many points, and how many are in which state; `at_once` jobs run at a time, `now` is in seconds."""
    first = sorted(jobs, key=lambda job: ORDER.index(job.state))[:most]
    shown = [job for job in jobs if job in first]
    states = [f"{job.state}: {job.reason}" if job.reason else job.state for job in shown]
    tones = {state: TONES[job.state] for state, job in zip(states, shown, strict=True)}
    table = Table([
        Column("point", [job.name for job in shown]),
        Column("state", states, tones=tones),
        Column("job", [job.job for job in shown], 2),
        Column("host", [job.host for job in shown], 2),
        Column("for", [_took(job, now) for job in shown], 1),
    ])  # fmt: skip
    return Screen("", "", [], jobs, [], [table, Sentences([total(jobs, at_once, now)])])


def changed(job: PointJob, now: float) -> str:
    """A point's new state: `running, job 12_3 on node1`, `measured in 41 s`, `stopped: out of time`."""
    if job.state == "running":
        return f"running, job {job.job} on {job.host}"
    if job.state == "waiting":  # its first state is no change
        return f"waiting again, job {job.job}"
    return f"{job.state}: {job.reason}" if job.reason else f"{job.state} in {_took(job, now)}"


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
