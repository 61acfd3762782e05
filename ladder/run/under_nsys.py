"""Profiles a stage in a separate process under nsys, and keeps nsys's report in the run's folder."""

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


def profile_under_nsys(
    tool: Path,
    job: Job,
    stage: str,
    steps: int,
    step_us: float,
    *,
    scratch: Path,
    profiles: Path,
    log: Path,
    timeout_s: float,
) -> Profile:
    """Run the job under this nsys; its report (for Nsight Systems) and a trace go to the folder `profiles`.

    An epoch has `steps` steps; a step takes `step_us` without nsys. The process uses `scratch` and `log` alone.
    Raises ProfileError with a one-line reason.
    """
    profiles.mkdir(exist_ok=True)
    report = profiles / f"{stage}.nsys-rep"
    report.unlink(missing_ok=True)  # an earlier run's report must not pass for this one's
    result = run_job(job, scratch, log, timeout_s, partial(nsys.command, tool, report))
    if result.error is not None:
        raise ProfileError(result.error)
    nsys.export(tool, report, scratch / "nsys.sqlite")
    trace = nsys_export.read(scratch / "nsys.sqlite")
    sample = sample_of(job.problem, job.wanted.epochs)
    if [window.epoch for window in trace.windows] != list(sample.epochs):
        raise ProfileError(f"nsys recorded {len(trace.windows)} whole epochs instead of {len(sample.epochs)}")
    chrome.write_trace(profiles / f"{stage}.nsys.{TRACE}", trace, stage, steps)
    return summarise(trace, sample.weights, steps, "nsys", step_us, multiprocessor())
