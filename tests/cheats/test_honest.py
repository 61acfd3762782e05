"""Correct stages must never be rejected: runs with different seeds and initial parameters pass every check.

They run in this process, always the same ones; other tests cover separate processes. `tests.cheats.honest_grid` draws
thousands of others, tests/gpu/test_honest.py does the same for every rung on a GPU, and the study
tests/cheats/honest.toml in fifty separate processes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.study.study_file import read_study
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem
from tests.ladder.in_process import judge_in_this_process

RUNS, FIRST_SALT = 4, 1 << 30  # seeds of the data's order, and of the first parameters


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
        wrong = [one.what for one in stage.checks if not one.passed]
        if wrong or stage.status == "crashed":
            refused[seed] = wrong or stage.reason
    assert refused == {}


def test_the_study_for_a_gpu_has_fifty_runs() -> None:
    plan = read_study(Path(__file__).with_name("honest.toml"), "", "")
    assert [point.values["seed"] for point in plan.points] == list(range(50))
    assert {point.settings["stages"] for point in plan.points} == {"all"}
