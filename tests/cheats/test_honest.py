"""Correct stages must never be rejected: runs with different seeds and initial parameters pass every check.

They run in this process, always the same ones; other tests cover separate processes. `tests.cheats.honest_grid` draws
thousands of others, tests/gpu/test_honest.py does the same for every rung on a GPU, and the study
tests/cheats/honest.toml in fifty separate processes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from common.data.dataset import Dataset
from common.problem import Problem
from ladder.measure import worker
from ladder.measure.protocol import Job, JobResult, decoded, encoded
from ladder.processes.fork_servers import ForkServers
from ladder.records.run import Precision
from ladder.run import judge, runner
from ladder.run.stage_run import TIME_CHECKS
from ladder.study.study_file import read_study
from ladder.verify.oracle_runs import OracleRun, assembled, compute, planned
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem

RUNS, FIRST_SALT = 10, 1 << 30  # seeds of the data's order, and of the first parameters


def in_this_process(job: Job, folder: Path, log: Path, timeout_s: float, fork_server: object = None) -> JobResult:
    """Do a worker's job, in place of `run_job`."""
    return decoded(encoded(worker.measure(job, folder)))


def trained_here(
    problem: Problem,
    dataset: Path,
    runs: Sequence[int],
    budget_s: float,
    curve_steps: int = 0,
    precisions: Collection[Precision] = (),
) -> dict[int, OracleRun]:
    """Train the oracle and its controls, in place of `compute_all`."""
    tasks = planned(problem, Dataset.load_saved(dataset), runs, precisions)
    return assembled(problem, {task: compute(problem, dataset, task, budget_s, curve_steps) for task in tasks})


def judge_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run do everything in this process."""
    monkeypatch.setattr(runner, "run_job", in_this_process)
    monkeypatch.setattr(judge, "compute_all", trained_here)
    monkeypatch.setattr(runner, "measure_gpu_limits", lambda *_: None)
    monkeypatch.setattr(runner, "ForkServers", lambda needs, logs, round_: ForkServers([], logs, round_))


@pytest.mark.parametrize("hidden", [(), (16,)], ids=["logistic", "one hidden layer"])
def test_no_correct_stage_is_rejected(hidden: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_this_process(monkeypatch)
    refused = {}
    for seed in range(RUNS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        # 32 steps: more than first updates are checked on
        problem = small_problem(hidden=hidden, batch_size=16, seed=seed)
        (stage,) = prepare(folder, NUMPY, problem=problem, salt=FIRST_SALT + seed).run(Watcher()).stages
        assert len(stage.checks) > 5
        # A busy host disturbs the times of runs of milliseconds.
        wrong = [one.what for one in stage.checks if not one.passed and one.what not in TIME_CHECKS]
        if wrong or stage.status == "crashed":
            refused[seed] = wrong or stage.reason
    assert refused == {}


def test_the_study_for_a_gpu_has_fifty_runs() -> None:
    plan = read_study(Path(__file__).with_name("honest.toml"), "", "")
    assert [point.values["seed"] for point in plan.points] == list(range(50))
    assert {point.settings["stages"] for point in plan.points} == {"all"}
