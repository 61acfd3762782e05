"""Profiles a stage in a separate process under nsys, and keeps nsys's report in the run's folder.

`python -m ladder.run.under_nsys` stands around nsys, whose report it reads: it ends with all that it starts, as every
worker does, and beside those of other stages.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from common.cuda.driver import multiprocessor
from ladder.measure.profiled import sample_of
from ladder.measure.protocol import JOB, RESULT, Job, JobResult, decoded, write_result
from ladder.processes.worker_process import Wrap
from ladder.profile import nsys, nsys_export
from ladder.profile.summary import summarise
from ladder.profile.trace import ProfileError
from ladder.records.profile import Profile


def profiled(tool: Path, profiles: Path, stage: str, steps: int, step_us: float) -> Wrap:
    """Turns a worker's command into one that runs it under this nsys, and adds the profile to its result.

    The report, for Nsight Systems, goes to the folder `profiles`. An epoch has `steps` steps; a step takes `step_us`
    without nsys. Without a profile, the result has an `error`.
    """
    words = [sys.executable, "-m", __name__, str(tool), str(profiles), stage, str(steps), str(step_us)]
    return lambda worker: [*words, *worker]


def main(tool: Path, profiles: Path, stage: str, steps: int, step_us: float, worker: Sequence[str]) -> int:
    """Run the worker under nsys, add the profile to the result that it left, and return the exit code."""
    folder, report = Path(worker[-1]), profiles / f"{stage}.nsys-rep"
    try:
        profiles.mkdir(exist_ok=True)
        report.unlink(missing_ok=True)  # an earlier run's report must not pass for this one's
        if code := subprocess.call(nsys.command(tool, report, worker)):
            return code if code > 0 else 128 - code  # after a signal, as a shell
        nsys.export(tool, report, folder / "nsys.sqlite")
        profile = _read(folder, steps, step_us)
        result = msgspec.structs.replace(decoded((folder / RESULT).read_bytes()), profile=profile)
    except (ProfileError, OSError) as error:
        result = JobResult(error=str(error))
    write_result(folder, result)
    return 0


def _read(folder: Path, steps: int, step_us: float) -> Profile:
    """The profile in the exported report."""
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job)
    trace = nsys_export.read(folder / "nsys.sqlite")
    sample = sample_of(job.problem, job.wanted.epochs)
    if [window.epoch for window in trace.windows] != list(sample.epochs):
        raise ProfileError(f"nsys recorded {len(trace.windows)} whole epochs instead of {len(sample.epochs)}")
    return summarise(trace, sample.weights, steps, "nsys", step_us, multiprocessor())


if __name__ == "__main__":
    tool, profiles, stage, steps, step_us, *worker = sys.argv[1:]
    sys.exit(main(Path(tool), Path(profiles), stage, int(steps), float(step_us), worker))
