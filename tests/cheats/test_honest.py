"""Correct stages must never be rejected: fifty runs with different seeds and initial parameters pass every check.

They run in this process, which takes seconds; other tests cover separate processes. tests/gpu/test_honest.py does the
same for every rung on a GPU, and the study tests/cheats/honest.toml in separate processes.
"""

from __future__ import annotations

import secrets
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
from ladder.verify.oracle_runs import Computed, OracleRun, Task, assembled, compute, grouped, planned, trained_params
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem

RUNS = 50


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
    *,
    trained: bool = False,
) -> Computed:
    """Train the oracle and its controls, in place of `compute_all`."""
    done = dict[Task, OracleRun]()
    for group in grouped(problem, planned(problem, Dataset.load_saved(dataset), runs, precisions), cores=1):
        done |= compute(problem, dataset, group, budget_s, curve_steps)
    return Computed(assembled(problem, done), trained_params(problem, dataset) if trained else None)


def judge_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run do everything in this process."""
    monkeypatch.setattr(runner, "run_job", in_this_process)
    monkeypatch.setattr(judge, "compute_all", trained_here)
    monkeypatch.setattr(runner, "measure_gpu_limits", lambda *_: None)
    monkeypatch.setattr(runner, "ForkServers", lambda needs, logs, round_: ForkServers([], logs, round_))


@pytest.mark.parametrize("hidden", [(), (16,)], ids=["logistic", "one hidden layer"])
def test_no_correct_stage_is_rejected(hidden: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_this_process(monkeypatch)
    flagged = {}
    for seed in range(RUNS):
        salt = secrets.randbits(31)
        folder = tmp_path / str(seed)
        folder.mkdir()
        problem = small_problem(
            hidden=hidden, batch_size=16, seed=seed
        )  # 32 steps: more than first updates are checked on
        (stage,) = prepare(folder, NUMPY, problem=problem, salt=salt).run(Watcher()).stages
        assert len(stage.checks) > 5
        if stage.status != "passed" and {one.what for one in stage.checks if not one.passed} <= TIME_CHECKS:
            # A busy host disturbs runs of milliseconds; as in a real run, they are measured again, and must then pass.
            again = tmp_path / f"{seed}-again"
            again.mkdir()
            (stage,) = prepare(again, NUMPY, problem=problem, salt=salt).run(Watcher()).stages
        if stage.status != "passed":
            flagged[seed, salt] = stage.reason
    assert flagged == {}


def test_the_study_for_a_gpu_has_the_same_number_of_runs() -> None:
    plan = read_study(Path(__file__).with_name("honest.toml"), "", "")
    assert [point.values["seed"] for point in plan.points] == list(range(RUNS))
    assert {point.settings["stages"] for point in plan.points} == {"all"}
