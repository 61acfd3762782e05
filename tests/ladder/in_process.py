"""A whole run in this process: seconds less for tests to which processes do not matter; others cover those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from ladder.measure import worker
from ladder.measure.protocol import JOB, Job, JobResult, decoded, encoded, write_result
from ladder.processes.fork_servers import ForkServer, ForkServers
from ladder.run import session
from ladder.run.bench import Bench
from ladder.run.stage_run import StageRun
from ladder.verify import oracle_runs


class BenchHere(Bench):
    """Does all in this process."""

    def imports(self, round_: int, stages: Sequence[StageRun]) -> ForkServers:
        return super().imports(round_, [])

    def work(self, job: Job, folder: Path, log: Path, fork_server: ForkServer | None) -> JobResult:
        return decoded(encoded(worker.measure(job, folder)))

    def gpu_limits(self) -> None:
        return None


class OneCoreBenchHere(BenchHere):
    """Does all on one core, so that no time is spent on reading the pace of all."""

    def work(self, job: Job, folder: Path, log: Path, fork_server: ForkServer | None) -> JobResult:
        return super().work(replace(job, blas_threads=1), folder, log, fork_server)


def judge_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run do everything in this process."""
    monkeypatch.setattr(session, "Bench", OneCoreBenchHere)
    monkeypatch.setattr(oracle_runs, "LITTLE_WORK", math.inf)
    monkeypatch.setenv("LADDER_ORACLE", "numpy")


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
    monkeypatch.setattr(session, "Bench", Bench)
