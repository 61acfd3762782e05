"""Curves: the recorded run equals the oracle's, in parts; a stage without a curve keeps its result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from common.oracle import Oracle, evaluate
from common.problem import initial_params
from ladder.measure.curves import begins, record_curve, windows
from ladder.measure.protocol import run_number
from ladder.records.run import Curve, load
from reports.facts.oracle_distance import oracle_distances
from stages.references.numpy_cpu import NumpyTrainer
from tests.ladder.harness import NUMPY, Watcher, prepare, small_dataset, small_problem

pytestmark = pytest.mark.usefixtures("in_process")


def losses(curve: Curve | None) -> list[float]:
    assert curve is not None
    return [seen.loss or 0.0 for seen in curve.training + curve.validation]


def test_an_epoch_is_divided_into_parts() -> None:
    assert windows(16, 5) == [range(5), range(5, 10), range(10, 15), range(15, 16)]
    assert windows(16, 16) == windows(16, 99) == [range(16)]


@pytest.mark.parametrize("hidden", [(), (12,)])
def test_a_recorded_run_equals_the_whole_run(hidden: tuple[int, ...]) -> None:
    problem, data = small_problem(hidden=hidden), small_dataset()
    params = initial_params(problem, 3)
    curve = record_curve(NumpyTrainer, problem, data, params, 5, lambda: None)
    oracle = Oracle(problem, params)
    size = problem.batch_size
    for number, begin in enumerate([0, 5, 10, 15] * 2):
        rows = slice(begin * size, min(begin + 5, 16) * size)
        wanted = oracle.run_epoch(data.train.images[rows], data.train.labels[rows])
        seen = curve.training[number]
        assert seen.step == number // 4 * 16 + min(begin + 5, 16)
        assert seen.loss == pytest.approx(wanted.mean_loss, rel=1e-5)
        assert seen.accuracy == wanted.accuracy
    tested = evaluate(oracle.weights, oracle.biases, data.test.images, data.test.labels)
    assert [seen.step for seen in curve.validation] == [16, 32]
    assert curve.validation[-1].loss == pytest.approx(tested.mean_loss, rel=1e-5)
    assert curve.validation[-1].accuracy == tested.accuracy


def test_evaluation_follows_the_formula() -> None:
    problem, data = small_problem(hidden=()), small_dataset()
    params = initial_params(problem, 0)
    logits = data.test.images / 256.0 @ params.weights[0].astype(np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    seen = evaluate(params.weights, params.biases, data.test.images, data.test.labels)
    right = probabilities[np.arange(len(logits)), data.test.labels.astype(int)]
    assert seen.mean_loss == pytest.approx(-np.log(right).mean(), rel=1e-12)
    params.weights[0][0, 0] = np.nan
    broken = evaluate(params.weights, params.biases, data.test.images, data.test.labels)
    assert np.isnan([broken.mean_loss, broken.accuracy]).all()


def test_a_run_records_curves_beside_the_oracles_where_a_defect_shows(tmp_path: Path) -> None:
    runner = prepare(
        tmp_path, NUMPY, "tests.cheats.defects:GRADIENT", "tests.planted:NO_PARTS", problem=small_problem(hidden=(12,)),
        curve_steps=5, rounds=2, repeats=1,
    )  # fmt: skip
    results = runner.run(Watcher())
    good, defect, without = results.stages
    oracle = losses(results.oracle.curve if results.oracle else None)
    assert len(oracle) == 2 * 4 + 2
    assert losses(good.curve) == pytest.approx(oracle, rel=1e-5)
    assert losses(defect.curve) != pytest.approx(oracle, rel=1e-4)
    assert (without.status, without.curve, without.no_curve) == ("passed", None, "RuntimeError: no part of an epoch")
    assert load(tmp_path) == results

    again = prepare(
        tmp_path, NUMPY, "tests.cheats.defects:GRADIENT", "tests.planted:NO_PARTS", problem=small_problem(hidden=(12,)),
        known=results,
    ).run(Watcher())  # fmt: skip
    assert [stage.curve for stage in again.stages[::2]] == [good.curve, None]
    assert again.stages[2].no_curve == without.no_curve


def test_a_resumed_runs_curves_are_compared_with_the_oracles_that_began_where_they_did(tmp_path: Path) -> None:
    mlp = small_problem(hidden=(12,))
    first = prepare(tmp_path, NUMPY, problem=mlp, curve_steps=5, salt=1).run(Watcher())
    both = NUMPY, "tests.cheats.defects:GRADIENT"
    results = prepare(tmp_path, *both, problem=mlp, salt=2, known=first).run(Watcher())
    good, defect = oracle_distances([results])
    assert good.worst < 1e-6 < defect.worst
    assert results.oracle is not None
    curves = [results.oracle.curve, *results.oracle.earlier_curves, *(stage.curve for stage in results.stages)]
    assert len({one.begins for one in curves if one is not None}) == 2
    assert [one.stage for one in oracle_distances([replace(results, oracle=first.oracle)])] == [good.stage]


def test_the_oracles_epochs_are_the_same_in_parts(tmp_path: Path) -> None:
    from ladder.verify.oracle_runs import Task, compute

    small_dataset().save(tmp_path)
    task = Task(run_number(0, 0))
    whole, parts = (compute(small_problem(), tmp_path, [task], 60.0, steps)[task] for steps in (0, 5))
    for one, other in zip(whole.epochs, parts.epochs, strict=True):
        assert other.mean_loss == pytest.approx(one.mean_loss, rel=1e-12)
        assert other.accuracy == pytest.approx(one.accuracy, rel=1e-12)
    assert whole.tested == parts.tested
    assert [seen.step for seen in whole.curve.training] == [16, 32]
    assert (whole.curve.begins, parts.curve.begins) == ("", begins(initial_params(small_problem(), task.run)))
