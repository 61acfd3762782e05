"""Runs of several networks: each is judged by itself, and all of them are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from common.problem import Problem
from ladder.measure.protocol import Job, JobResult
from ladder.options.run_options import from_record
from ladder.records.run import Precision, Results, StageResult, load
from ladder.run.judge import Judge, Judged
from ladder.run.jury import MOST_JUDGED, Jury
from ladder.verify.other_runs import WAY_CHECK
from reports.facts.run_table import heading, networks_in_words
from reports.facts.stage_facts import all_stage_facts
from tests.cheats.defects import CAUGHT
from tests.cheats.networks import UNJUDGED
from tests.cheats.table import NAMES
from tests.ladder.harness import NUMPY, Watcher, prepare, small_dataset, small_problem
from tests.ladder.in_process import judge_in_this_process
from tests.reports.reporting import report

STACKED = "stages.references.numpy_stacked:STAGE"
SALT = 1
MANY = small_problem(networks=8, learning_rate=0.3)
WRONG = CAUGHT["several networks"]


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_this_process(monkeypatch)


def ran(folder: Path, problem: Problem, *sources: str) -> Results:
    return prepare(folder, *sources, problem=problem, salt=SALT).run(Watcher())


def failed(stage: StageResult) -> set[str]:
    return {one.what for one in stage.checks if not one.passed}


def test_stages_of_several_and_of_one_network_pass(tmp_path: Path) -> None:
    problem = small_problem(networks=3, learning_rates=(0.05, 0.1, 0.3), hidden=(16,))
    results = ran(tmp_path, problem, STACKED, NUMPY)
    assert load(tmp_path).problem == results.problem
    assert results.problem.learning_rates == [0.05, 0.1, 0.3]
    assert from_record(results, tmp_path).problem(problem.inputs, problem.classes) == problem
    assert heading(results).startswith(
        "36-16-4 on noise (not MNIST), batch 32, 3 networks, learning rates 0.05, 0.1, 0.3"
    )
    assert "3 of 36-16-4, batch 32, on a CPU" in report(results)
    assert "Test accuracy by learning rate (" in networks_in_words(results)
    assert "Training accuracy" not in networks_in_words(results)  # of two epochs
    for stage, row in zip(results.stages, all_stage_facts(results), strict=True):
        assert (stage.status, stage.reason) == ("passed", None)
        assert stage.metrics is not None
        assert len(stage.metrics.networks) == 3
        assert row.learned_best.startswith("rate 0.3, ")
        assert row.step_us is not None
        assert row.network_us == pytest.approx(row.step_us / 3)
        assert stage.timing is not None
        fewer = replace(stage, timing=replace(stage.timing, epochs=1))
        assert all_stage_facts(replace(results, stages=[fewer]))[0].learned_best.endswith("% (1 epoch)")
        assert "by learning rate" not in networks_in_words(replace(results, stages=[fewer]))
    assert [stage.detail.endswith("3 in a row") for stage in results.stages] == [False, True]


@pytest.mark.parametrize("name", ["copies", "leaves-one-out"])
def test_a_network_that_is_not_judged_has_to_be_trained(tmp_path: Path, name: str) -> None:
    assert UNJUDGED not in Jury(MANY, small_dataset(), SALT, 0, timed=False).judged(0)
    (stage,) = ran(tmp_path, MANY, f"tests.cheats.{NAMES[name]}").stages
    assert stage.status == "failed"
    assert failed(stage) - {WAY_CHECK} == {WRONG[name]}


def test_each_network_has_its_own_rate(tmp_path: Path) -> None:
    rates = small_problem(networks=2, learning_rates=(0.1, 0.3))
    (stage,) = ran(tmp_path, rates, "tests.cheats.networks:AT_ONE_RATE").stages
    assert stage.status == "failed"
    wrong = next(one for one in stage.checks if one.what == WRONG["at-one-rate"])
    assert not wrong.passed
    assert wrong.note.startswith("network 2")
    assert wrong.factor == pytest.approx(1 / 3, rel=1e-3)


def test_each_network_tells_its_own_metrics(tmp_path: Path) -> None:
    (stage,) = ran(tmp_path, MANY, "tests.cheats.networks:TELLS_MEANS").stages
    assert (stage.status, stage.reason) == ("crashed", f"{WRONG['tells-means']}; see logs/tells-means.1.log")


def test_each_judge_has_the_whole_late_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, judge = list[list[int]](), Judge.judge

    def seen(self: Judge, precision: Precision, job: Job, result: JobResult, *left: Any) -> Judged:
        late.append(sorted(one.batches for one in result.late))
        return judge(self, precision, job, result, *left)

    monkeypatch.setattr(Judge, "judge", seen)
    (stage,) = ran(tmp_path, small_problem(networks=8, hidden=(16,), batch_size=16), STACKED).stages
    assert (stage.status, stage.reason) == ("passed", None)
    assert late == [[3, 32]] * MOST_JUDGED


def test_two_of_many_are_drawn_by_the_salt_and_the_round() -> None:
    drawn = {
        (salt, round_): tuple(Jury(MANY, small_dataset(), salt, 0, timed=False).judged(round_))
        for salt in range(4)
        for round_ in range(4)
    }
    assert all(len({*networks}) == 4 and {0, 7} < {*networks} for networks in drawn.values())
    assert len({*drawn.values()}) > 4
    assert set[int]().union(*drawn.values()) == {*range(8)}
    rates = small_problem(networks=6, learning_rates=(0.3, 0.1, 0.2, 0.9, 0.4, 0.5))
    assert {1, 3} < {*Jury(rates, small_dataset(), SALT, 0, timed=False).judged(0)}
    few = small_problem(networks=4)
    assert Jury(few, small_dataset(), SALT, 0, timed=False).judged(0) == [0, 1, 2, 3]


def test_other_networks_are_drawn_with_oracles_of_their_own(tmp_path: Path) -> None:
    runner = prepare(tmp_path, STACKED, problem=MANY, salt=SALT, rounds=2)
    (stage,) = runner.run(Watcher()).stages
    assert (stage.status, len(stage.processes)) == ("passed", 2)
    assert stage.metrics is not None
    assert None not in stage.metrics.networks
