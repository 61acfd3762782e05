"""A whole run in this process: seconds less for tests to which processes do not matter; others cover those."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from ladder.measure import worker
from ladder.measure.protocol import JOB, Job, JobResult, decoded, encoded, write_result
from ladder.processes.fork_servers import ForkServers
from ladder.processes.seed_server import SeedServer
from ladder.run import session
from ladder.run.bench import Bench, Finished
from ladder.run.orders import Order, parameter_bytes
from ladder.run.stage_run import StageRun
from ladder.verify import oracle_runs


class BenchHere(Bench):
    """Does all in this process."""

    threads: int | None = None

    def imports(self, round_: int, stages: Sequence[StageRun]) -> ForkServers:
        return super().imports(round_, [])

    def run(self, order: Order) -> Finished:
        order.folder.mkdir()
        began = time.monotonic()
        with SeedServer(order.number, parameter_bytes(order.job.problem)) as seeds:
            job = msgspec.structs.replace(order.job, seeds=seeds.address, blas_threads=self.threads)
            result = decoded(encoded(worker.measure(job, order.folder)))
        return Finished(replace(order, job=job), result, seeds.attempt, time.monotonic() - began)

    def gpu_limits(self) -> None:
        return None


class OneCoreBenchHere(BenchHere):
    """Does all on one core, so that no time is spent on reading the pace of all."""

    threads = 1


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
