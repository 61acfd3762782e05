"""A whole run in this process: seconds less for tests to which processes do not matter; others cover those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from common.data.dataset import Dataset
from common.problem import Problem
from ladder.measure import worker
from ladder.measure.protocol import Job, JobResult, decoded, encoded
from ladder.processes.fork_servers import ForkServers
from ladder.processes.worker_process import run_job
from ladder.run import jury, runner
from ladder.verify.oracle_runs import (
    Computed,
    OracleRun,
    Task,
    assembled,
    compute,
    compute_all,
    planned,
    tasks_by_group,
    trained_params,
)


def in_this_process(job: Job, folder: Path, log: Path, timeout_s: float, fork_server: object = None) -> JobResult:
    """Do a worker's job, in place of `run_job`."""
    return decoded(encoded(worker.measure(job, folder)))


def on_one_core(job: Job, *rest: Any, **more: Any) -> JobResult:
    """The same, without reading the pace of the host."""
    return in_this_process(replace(job, blas_threads=1), *rest, **more)


def trained_here(
    problem: Problem, dataset: Path, runs: Any, budget_s: float, curve_steps: int, precisions: Any, **also: Any
) -> Computed:
    """Train the oracle and its controls, in place of `compute_all`."""
    done, data = dict[Task, OracleRun](), Dataset.load_saved(dataset)
    for group in tasks_by_group(problem, planned(problem, data, runs, precisions), cores=1):
        done |= compute(problem, dataset, group, budget_s, curve_steps)
    found = assembled(problem, done, data.train.images)
    return Computed(found, trained_params(problem, dataset) if also["trained"] else None)


def judge_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run do everything in this process."""
    monkeypatch.setattr(runner, "run_job", on_one_core)
    monkeypatch.setattr(jury, "compute_all", trained_here)
    monkeypatch.setattr(runner, "measure_gpu_limits", lambda *_: None)
    monkeypatch.setattr(runner, "ForkServers", lambda needs, logs, round_: ForkServers([], logs, round_))


def judge_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo `judge_in_this_process` for a test of a file whose other tests need no processes."""
    monkeypatch.setattr(runner, "run_job", run_job)
    monkeypatch.setattr(jury, "compute_all", compute_all)
    monkeypatch.setattr(runner, "ForkServers", ForkServers)
