"""`jobs/` in a study's folder: where its points were sent to, and how far each has come.

Each point has a file of its own, which the job that measures it writes; so jobs on several hosts never write one file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ladder.records.run import write_whole

JOBS, SUBMISSION = "jobs", "submission.json"

Engine = Literal["local", "slurm"]
JobState = Literal["waiting", "running", "measured", "skipped", "stopped"]
Kind = TypeVar("Kind")


class Submission(msgspec.Struct, frozen=True):
    """How a study's points are measured by jobs."""

    on: Engine
    host: str  # that sent the jobs
    parallel: int  # jobs at once
    gpus: int  # of each job
    slurm: dict[str, str]  # options of sbatch
    data: list[dict[str, str]]  # SHA-256 of the files of each data set that the study uses
    jobs: dict[str, str] = {}  # by point: Slurm's id, or the process that measures the points of this host


class PointJob(msgspec.Struct, frozen=True):
    """How far a job has come with a point."""

    name: str  # of the point
    state: JobState = "waiting"
    reason: str | None = None  # why it was skipped or stopped
    job: str = ""
    host: str = ""
    began: float = 0.0  # seconds since 1970
    ended: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether a job still has to come to an end with it."""
        return self.state in ("waiting", "running")


def save_submission(submission: Submission, folder: Path) -> None:
    """Keep in a study's folder how its points were sent."""
    write_whole(submission, folder / JOBS / SUBMISSION)


def load_submission(folder: Path) -> Submission | None:
    """How a study's points were sent; None if they were not, or if the file is damaged."""
    return _read(folder / JOBS / SUBMISSION, Submission)


def save_job(job: PointJob, folder: Path) -> None:
    """Write the state of a point's job into the study's folder."""
    write_whole(job, folder / JOBS / f"{job.name}.json")


def load_job(name: str, folder: Path) -> PointJob:
    """The state of a point's job; a waiting one before the job has begun."""
    return _read(folder / JOBS / f"{name}.json", PointJob) or PointJob(name)


def _read(path: Path, kind: type[Kind]) -> Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
