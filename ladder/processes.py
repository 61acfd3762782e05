"""One fresh process: started with a job, run to its end, its time limit or its death, and what it reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ladder.jobs import JOB, REPORT, Job, Report

ROOT = Path(__file__).parent.parent
Wrap = Callable[[Sequence[str]], list[str]]
"""Makes the command of a profiler out of the command that it is to watch."""


def run_job(job: Job, folder: Path, log: Path, timeout_s: float, wrap: Wrap = list) -> Report:
    """Start a worker on a job in this folder and wait for it; what it prints goes to the log.

    Whatever goes wrong is the report's `error`.
    """
    (folder / JOB).write_bytes(msgspec.json.encode(job))
    log.parent.mkdir(exist_ok=True)
    command = wrap([sys.executable, "-m", "ladder.worker", str(folder)])
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Report(error=f"no answer within {timeout_s:g} s (--timeout)")
        finally:
            _end_group(process)
    if code < 0:
        return Report(error=f"killed by {signal.Signals(-code).name}")
    try:
        return msgspec.json.decode((folder / REPORT).read_bytes(), type=Report)
    except OSError:
        return Report(error=f"exit code {code} and no report; see logs/{log.name}")
    except msgspec.DecodeError as error:
        return Report(error=f"an unreadable report ({error})")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and whatever it started; by now it is done, late, or the user has interrupted us."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()
