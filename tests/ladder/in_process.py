"""A whole run in this process: seconds less for tests to which processes do not matter; others cover those."""

from __future__ import annotations

import math
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ladder.measure import worker
from ladder.measure.protocol import JOB, Job, JobResult, decoded, encoded, write_result
from ladder.processes.fork_servers import ForkServers
from ladder.processes.worker_process import run_job
from ladder.run import runner
from ladder.verify import oracle_runs


def in_this_process(job: Job, folder: Path, log: Path, timeout_s: float, fork_server: object = None) -> JobResult:
    """Do a worker's job, in place of `run_job`."""
    return decoded(encoded(worker.measure(job, folder)))


def on_one_core(job: Job, *rest: Any, **more: Any) -> JobResult:
    """The same, without reading the pace of the host."""
    return in_this_process(replace(job, blas_threads=1), *rest, **more)


def judge_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run do everything in this process."""
    monkeypatch.setattr(runner, "run_job", on_one_core)
    monkeypatch.setattr(oracle_runs, "LITTLE_WORK", math.inf)
    monkeypatch.setenv("LADDER_ORACLE", "numpy")
    monkeypatch.setattr(runner, "measure_gpu_limits", lambda *_: None)
    monkeypatch.setattr(runner, "ForkServers", lambda needs, logs, round_: ForkServers([], logs, round_))


def worked_here(folder: Path, log: Path, *_: object) -> SimpleNamespace:
    """Do a worker's job in this process, in place of `launch`; a worker that has ended."""
    job, code = msgspec.json.decode((folder / JOB).read_bytes(), type=Job), 0
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            write_result(folder, worker.measure(job, folder))
        except Exception as error:  # as in a process of its own
            write_result(folder, JobResult(error=worker.crash_reason(error)))
            code = 1
    return SimpleNamespace(has_ended=lambda: True, wait=lambda limit_s: code, end=lambda: None)


def judge_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo `judge_in_this_process`, but for the oracle, for a test of a file whose other tests need no processes."""
    monkeypatch.setattr(runner, "run_job", run_job)
    monkeypatch.setattr(runner, "ForkServers", ForkServers)
