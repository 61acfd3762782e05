"""Profiling a stage from outside: a process of its own under nsys, whose report stays in the run's folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from common.cuda.driver import multiprocessor
from ladder.measure.profiled import sample_of
from ladder.measure.protocol import TRACE, Job
from ladder.processes.worker_process import run_job
from ladder.profile import chrome, nsys, nsys_export
from ladder.profile.summary import summarise
from ladder.profile.trace import ProfileError
from ladder.records.profile import Profile


def watch(
    tool: Path,
    job: Job,
    stage: str,
    steps: int,
    step_us: float,
    *,
    scratch: Path,
    kept: Path,
    log: Path,
    timeout_s: float,
) -> Profile:
    """Run the job under this nsys; `kept` gets the report, to be opened in Nsight Systems, and a trace.

    An epoch has so many `steps`, of which one takes `step_us` without nsys. The process has `scratch` and `log` to
    itself. Raises ProfileError with the reason, in a line, when there is no profile.
    """
    kept.mkdir(exist_ok=True)
    (kept / f"{stage}.nsys-rep").unlink(missing_ok=True)  # an older run's, which would pass for this one's
    report = run_job(job, scratch, log, timeout_s, partial(nsys.command, tool, kept / f"{stage}.nsys-rep"))
    if report.error is not None:
        raise ProfileError(report.error)
    nsys.export(tool, kept / f"{stage}.nsys-rep", scratch / "nsys.sqlite")
    trace = nsys_export.read(scratch / "nsys.sqlite")
    sample = sample_of(job.problem, job.wanted.epochs)
    if [window.epoch for window in trace.windows] != list(sample.epochs):
        raise ProfileError(f"nsys saw {len(trace.windows)} whole epochs instead of {len(sample.epochs)}")
    chrome.write(kept / f"{stage}.nsys.{TRACE}", trace, stage, steps)
    return summarise(trace, sample.weights, steps, "nsys", step_us, multiprocessor())
