"""Runs a job in a worker process until it ends, crashes or exceeds its time limit, and reads its result."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from common.process_group import kill_group
from ladder.measure.protocol import JOB, RESULT, Job, JobResult, decoded
from ladder.processes.fork_servers import ForkServer
from ladder.profile import cupti
from ladder.records.limits import LimitsRecord

ROOT = Path(__file__).parents[2]
Wrap = Callable[[Sequence[str]], list[str]]
"""Turns a worker's command into the command that runs it under a profiler."""


def run_job(
    job: Job, folder: Path, log: Path, timeout_s: float, wrap: Wrap = list, fork_server: ForkServer | None = None
) -> JobResult:
    """Run a job in this folder in a worker, wait for it, and return its result; the worker's output goes to the log.

    The worker is forked from the fork server, if there is one. If it fails, the state inherited from the fork server
    may be the cause: the fork server is closed, and a newly started worker repeats the job. A failure of that worker
    becomes the result's `error`.
    """
    (folder / JOB).write_bytes(msgspec.json.encode(job))
    (folder / RESULT).unlink(missing_ok=True)  # an earlier worker's result must not pass for this one's
    if fork_server is not None:
        result = result_of(lambda: fork_server.run(folder, log, timeout_s), folder, log, timeout_s)
        if result is not None and result.error is None and not (result.unprofiled and cupti.available()):
            return result
        fork_server.close()
        (folder / RESULT).unlink(missing_ok=True)
    command = wrap(worker_command(folder))
    result = result_of(lambda: _run(command, log, timeout_s), folder, log, timeout_s)
    assert result is not None
    return result


def worker_command(folder: Path) -> list[str]:
    """The command of a worker that runs the job in the folder."""
    return [sys.executable, "-m", "ladder.measure.worker", str(folder)]


def result_of(run: Callable[[], int | None], folder: Path, log: Path, timeout_s: float) -> JobResult | None:
    """The result that a worker left in the folder, or one whose `error` says how the worker ended.

    `run` returns the worker's exit code, or None if no worker could be started; then there is no result.
    """
    failure, code = None, None
    try:
        code = run()
        if code is None:
            return None
        if code < 0:
            failure = f"killed by {signal.Signals(-code).name}"
    except subprocess.TimeoutExpired:
        failure = f"no answer within {timeout_s:g} s (--timeout)"
    try:
        result = decoded((folder / RESULT).read_bytes())
    except OSError:
        return JobResult(error=failure or f"exit code {code} and no result; see logs/{log.name}")
    except (ValueError, msgspec.DecodeError) as error:
        return JobResult(error=failure or f"an unreadable result ({error})")
    if result.profiling:  # the timed runs were complete: only the profiler failed
        return msgspec.structs.replace(result, unprofiled=f"CUPTI: {failure or f'exit code {code}'}")
    if not failure and code and result.error is None:
        failure = f"exit code {code} after its result; see logs/{log.name}"
    return JobResult(error=failure) if failure else result


def measure_gpu_limits(record: Path, log: Path, timeout_s: float) -> LimitsRecord | None:
    """The GPU's limits, measured by a process of its own; None if it fails, for the reason in the log."""
    try:
        _run([sys.executable, "-m", "ladder.machine.limits", str(record)], log, timeout_s)
        return msgspec.json.decode(record.read_bytes(), type=LimitsRecord)
    except (subprocess.TimeoutExpired, OSError, ValueError, msgspec.DecodeError):
        return None


def _run(command: Sequence[str], log: Path, timeout_s: float) -> int:
    """The exit code of a command that writes to the log; raises subprocess.TimeoutExpired."""
    process = start(command, log)
    try:
        return process.wait(timeout_s)
    finally:
        kill(process)


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process in its own session, writing to the log."""
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started: it has ended, is late, or the user has interrupted the run."""
    kill_group(process.pid)
    process.wait()
