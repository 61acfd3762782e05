"""A study whose points are measured by jobs, on this host or on Slurm: sent, watched, stopped, continued."""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from common.errors import UsageError
from ladder.options.commands import JobOptions
from ladder.records.jobs import JOBS, PointJob, Submission, load_job, save_job, save_submission
from ladder.records.run import all_results
from ladder.records.study import PointStatus, Study, save_study
from ladder.study import engines
from ladder.study.point_session import MACHINE, machine, machine_differences
from ladder.study.study_session import StudyObserver, due, options_at
from stages.registry import Entry

POLL_S = {"local": 0.5, "slurm": 2.0}
GRACE_S = 4.0  # after a job's end, for its last word to arrive from another host
STATUS: dict[str, PointStatus] = {"measured": "measured", "skipped": "skipped", "stopped": "begun", "running": "begun"}


def how_to_send(
    asked: JobOptions,
    plan: Study,
    entries: Mapping[str, Entry],
    data: Sequence[dict[str, str]],
    before: Submission | None = None,
) -> Submission:
    """How a study's points are sent, as asked, else as before, else as many at once as GPUs allow.

    UsageError where that cannot be.
    """
    on = asked.on or (before.on if before else "local")
    before = before if before and before.on == on else None
    engines.check_engine(on)
    here = len(engines.local_gpus())
    gpus = asked.gpus if asked.gpus is not None else before.gpus if before else None
    if gpus is None:
        gpus = _gpus_of_a_job(plan, entries) if here > 0 or on == "slurm" else 0
    parallel = asked.parallel or (before.parallel if before else 0)
    if not parallel:
        parallel = len(plan.points) if on == "slurm" else max(here // gpus if gpus else 1, 1)
    if on == "local":
        engines.local_slots(parallel, gpus)
    slurm = {**(before.slurm if before else {}), **asked.slurm}
    if slurm and on == "local":
        raise UsageError(f"--slurm {next(iter(slurm))}: needs --on slurm; leave it out on this host")
    return Submission(on, socket.gethostname(), parallel, gpus, slurm, list(data))


def _gpus_of_a_job(plan: Study, entries: Mapping[str, Entry]) -> int:
    """The GPUs that a point divides batches among, at most; 0 if no stage needs one."""
    points = [options_at(point, entries) for point in plan.points]
    needs = {need for options in points for name in options.stages for need in entries[name].stage.needs}
    wants = any(need in ("cuda", "torch-cuda") or need.startswith("sm_") for need in needs)
    return max(options.gpus for options in points) if wants else 0


@dataclass
class SpreadSession:
    """A study that is ready to be sent or watched, and its jobs."""

    folder: Path
    plan: Study
    how: Submission
    only: Sequence[str] | None  # the points that are asked for; None: all
    words: Sequence[str]  # that each job's command adds
    observer: StudyObserver
    lost_at: dict[str, float] = field(default_factory=dict)  # when a job was first found to have ended without a word

    def measure(self) -> list[Path]:
        """Send what waits unless jobs go on already, and watch until all have ended; returns the study's folder.

        KeyboardInterrupt leaves the jobs to themselves.
        """
        try:
            if not self.goes_on():
                self._send()
            while True:
                rows = self.rows()
                self.observer.jobs(rows, self.how.parallel)
                if not any(row.is_due for row in rows):
                    return [self.folder]
                time.sleep(POLL_S[self.how.on])
        except KeyboardInterrupt:
            has_jobs, stop = bool(self.how.jobs), self.stop
            self.observer.note(f"detached: the jobs go on, until `{stop}`" if has_jobs else "nothing was sent")
            raise

    def check_measured(self) -> None:
        """Raise UsageError if points were stopped, or if all were skipped."""
        points = [point for point in self.plan.points if self.only is None or point.name in self.only]
        if stopped := [f"{point.name} ({point.reason})" for point in points if point.status == "begun"]:
            told = ", ".join(stopped)
            raise UsageError(f"{self.folder}: not measured: {told}; continue with study --resume {self.folder}")
        if points and all(point.status == "skipped" for point in points):
            raise UsageError(f"{self.folder}: no point could be measured; study.json has the reasons")

    def _send(self) -> None:
        """Send the points that wait; their earlier states are in the index already."""
        if not (names := due(self.plan, self.only)):
            return
        self._check_commit()
        (self.folder / JOBS).mkdir(parents=True, exist_ok=True)
        save_study(self.plan, self.folder)
        for name in names:
            (self.folder / JOBS / f"{name}.json").unlink(missing_ok=True)
        self.how = replace(self.how, jobs={})
        save_submission(self.how, self.folder)  # the first job may begin before its id is known here
        self.how = replace(self.how, jobs=engines.submit(self.folder, names, self.how, self.words))
        save_submission(self.how, self.folder)

    def goes_on(self) -> bool:
        """Whether a job waits or runs; waits for the last word of those that have ended."""
        rows = self.rows()
        while self.lost_at:
            time.sleep(POLL_S["local"])
            rows = self.rows()
        return any(row.is_due for row in rows)

    @property
    def stop(self) -> str:
        """The command that ends the jobs."""
        return shlex.join(engines.stop_command(self.how))

    def rows(self) -> list[PointJob]:
        """Every point's state now; the index is brought up to it."""
        states = engines.states(self.folder, self.how) if self.how.jobs else {}
        rows = [self._row(point.name, states) for point in self.plan.points if point.name in self.how.jobs]
        by_name = {row.name: row for row in rows}
        points = [
            replace(point, status=STATUS[row.state], reason=row.reason)
            if (row := by_name.get(point.name)) and row.state in STATUS
            else point
            for point in self.plan.points
        ]
        if points != self.plan.points:
            self.plan = replace(self.plan, points=points)
            save_study(self.plan, self.folder)
        return rows

    def _row(self, name: str, states: Mapping[str, str] | None) -> PointJob:
        row = replace(load_job(name, self.folder), job=self.how.jobs[name])
        if states is None:  # Slurm does not answer now
            return row
        state = states.get(row.job, "")
        if state in engines.ALIVE:
            self.lost_at.pop(name, None)
            if not engines.ALIVE[state]:
                return PointJob(name, job=row.job)  # Slurm may have put it back into its queue
            return replace(row, state="running") if row.state == "stopped" and self.how.on == "slurm" else row
        if not row.is_due:
            self.lost_at.pop(name, None)
            return row
        if time.monotonic() < self.lost_at.setdefault(name, time.monotonic()) + GRACE_S:
            return row
        del self.lost_at[name]
        row = replace(row, state="stopped", reason=self._last_word(row, state), ended=time.time())
        save_job(row, self.folder)
        return row

    def _last_word(self, row: PointJob, state: str) -> str:
        """Why a job ended that wrote no end; UsageError if its node cannot have seen the folder."""
        reason = engines.ENDINGS.get(state, "its job ended without a word")
        if row.began or state != "FAILED":
            return reason
        said = [path.read_text().split("\n") for path in (self.folder / JOBS).glob(f"{row.job}_*log.err")]
        if not said:
            subprocess.run(engines.stop_command(self.how), capture_output=True, check=False)
            raise UsageError(f"{self.folder}: the nodes do not see it; choose an --out that all nodes share")
        return f"{reason}: {next((line for line in reversed(said[0]) if line.strip()), 'it printed nothing')}"

    def _check_commit(self) -> None:
        """Raise UsageError if another commit has measured points; a study without any forgets its machine."""
        claimed = self.folder / JOBS / MACHINE
        if not all_results(self.folder):
            claimed.unlink(missing_ok=True)
        elif claimed.exists():
            then = msgspec.json.decode(claimed.read_bytes())
            if other := machine_differences({"code": then["code"]}, {"code": machine()["code"]}):
                raise UsageError(f"{self.folder}: {other}; check that commit out, or measure anew with --out")
