"""Fresh processes: each run to its end, its time limit or its death, and what it reported."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from common.process_group import kill_group
from ladder.measure.protocol import JOB, REPORT, Job, JobResult, decoded
from ladder.processes.fork_servers import ForkServer
from ladder.profile import cupti
from ladder.records.limits import LimitsRecord

ROOT = Path(__file__).parents[2]
Wrap = Callable[[Sequence[str]], list[str]]
"""Makes the command of a profiler out of the command that it is to watch."""


def run_job(
    job: Job, folder: Path, log: Path, timeout_s: float, wrap: Wrap = list, fork_server: ForkServer | None = None
) -> JobResult:
    """Have a worker do a job in this folder and wait for it; what it prints goes to the log.

    It comes from the fork server where there is one. Should it fail, what it shares with its parent may be to blame:
    so the fork server is closed, and a worker started by itself does the job anew. Whatever goes wrong then is the
    report's `error`.
    """
    (folder / JOB).write_bytes(msgspec.json.encode(job))
    (folder / REPORT).unlink(missing_ok=True)  # no process may be taken for another
    if fork_server is not None:
        report = report_of(lambda: fork_server.run(folder, log, timeout_s), folder, log, timeout_s)
        if report is not None and report.error is None and not (report.unprofiled and cupti.available()):
            return report
        fork_server.close()
        (folder / REPORT).unlink(missing_ok=True)
    command = wrap(worker(folder))
    report = report_of(lambda: _run(command, log, timeout_s), folder, log, timeout_s)
    assert report is not None
    return report


def worker(folder: Path) -> list[str]:
    """The command of a process that does the job in the folder."""
    return [sys.executable, "-m", "ladder.measure.worker", str(folder)]


def report_of(run: Callable[[], int | None], folder: Path, log: Path, timeout_s: float) -> JobResult | None:
    """What a worker reported, or how it ended instead; `run` gives its exit code, or None where there was no worker."""
    ended, code = None, None
    try:
        code = run()
        if code is None:
            return None
        if code < 0:
            ended = f"killed by {signal.Signals(-code).name}"
    except subprocess.TimeoutExpired:
        ended = f"no answer within {timeout_s:g} s (--timeout)"
    try:
        report = decoded((folder / REPORT).read_bytes())
    except OSError:
        return JobResult(error=ended or f"exit code {code} and no report; see logs/{log.name}")
    except (ValueError, msgspec.DecodeError) as error:
        return JobResult(error=ended or f"an unreadable report ({error})")
    if report.profiling:  # all had been timed and told: it is the profiler that did not come to an end
        return msgspec.structs.replace(report, unprofiled=f"CUPTI: {ended or f'exit code {code}'}")
    if not ended and code and report.error is None:
        ended = f"exit code {code} after its report; see logs/{log.name}"
    return JobResult(error=ended) if ended else report


def limits_of_gpu(answer: Path, log: Path, timeout_s: float) -> LimitsRecord | None:
    """What a process of its own measures of the GPU; None where it does not come to an end, which the log explains."""
    try:
        _run([sys.executable, "-m", "ladder.machine.limits", str(answer)], log, timeout_s)
        return msgspec.json.decode(answer.read_bytes(), type=LimitsRecord)
    except (subprocess.TimeoutExpired, OSError, ValueError, msgspec.DecodeError):
        return None


def _run(command: Sequence[str], log: Path, timeout_s: float) -> int:
    """The exit code of a command that writes into the log; subprocess.TimeoutExpired where it does not end."""
    process = begin(command, log)
    try:
        return process.wait(timeout_s)
    finally:
        end(process)


def begin(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A process in a session of its own that writes into the log."""
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and whatever it started; by now it is done, late, or the user has interrupted us."""
    kill_group(process.pid)
    process.wait()
