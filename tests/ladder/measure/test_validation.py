"""Validation inside the timed run: when it happens, how it is recorded and checked, and stages without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import UsageError
from common.oracle import OracleEpoch
from common.trainer import EpochMetrics
from ladder.records.run import StageResult, load
from ladder.verify.gates import verify_validation
from ladder.verify.oracle_runs import OracleRun
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem

IMAGES = 10_000


def stages(folder: Path, *sources: str, **changes: object) -> list[StageResult]:
    prepare(folder, *sources, problem=small_problem(**changes)).run(Watcher())
    return load(folder).stages


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("every", "epochs", "hidden"), [(1, [1, 2, 3, 4], (8,)), (2, [2, 4], ()), (3, [3], (8,))])
def test_validation_is_due_and_checked(tmp_path: Path, hidden: tuple[int, ...], every: int, epochs: list[int]) -> None:
    (stage,) = stages(tmp_path, NUMPY, hidden=hidden, epochs=4, validate_every=every)
    assert (stage.status, stage.reason) == ("passed", None)
    assert stage.metrics is not None
    assert [seen.epoch for seen in stage.metrics.validation] == epochs
    judged = {check.what for check in stage.checks if "validation" in check.what}
    final = {f"validation of the final parameters, {what}" for what in ("loss", "accuracy") if 4 % every == 0}
    curve = {"validation curve, loss", "validation curve, accuracy"}
    assert judged == {"validations left out, of those that are due", *curve, *final}
    if final:
        assert stage.metrics.validation[-1].accuracy == pytest.approx(stage.metrics.test_accuracy)


def test_without_validation_and_curves_nothing_is_prepared_measured_or_checked(tmp_path: Path) -> None:
    (stage,) = stages(tmp_path, "tests.planted:NOT_TO_BE_ASKED")
    assert (stage.status, stage.reason, stage.curve) == ("passed", None, None)
    assert stage.metrics is not None
    assert stage.metrics.validation == []
    assert [check for check in stage.checks if "validation" in check.what] == []


def test_only_a_stage_that_cannot_validate_is_skipped(tmp_path: Path) -> None:
    cannot_validate, numpy = stages(tmp_path, "tests.planted:CANNOT_VALIDATE", NUMPY, validate_every=2)
    assert (cannot_validate.status, numpy.status) == ("skipped", "passed")
    assert cannot_validate.reason == "its trainer has no validate(), which --validate-every 2 asks for; leave that out"


def test_a_stage_that_finds_its_gpu_unfit_is_skipped_in_one_line(tmp_path: Path) -> None:
    (stage,) = stages(tmp_path, "tests.planted:MISFIT")
    told = "This GPU cannot run a cluster of 16 blocks. Closest rung here: `persistent-grid`."
    assert (stage.status, stage.reason) == ("skipped", told)


@pytest.mark.parametrize("every", [-1, 3])
def test_an_interval_longer_than_the_run_is_refused(every: int) -> None:
    with pytest.raises(UsageError, match=f"validate every {every}: must be from 1 to the 2 epochs of a run, or 0"):
        small_problem(validate_every=every)


def failed(said: dict[int, EpochMetrics], *, logistic: bool, epochs: int = 2) -> set[str]:
    """The checks that fail these metrics; correct are losses of 0.5 and 0.2, accuracies of 0.8 and 0.9."""
    problem = replace(small_problem(hidden=() if logistic else (8,)), epochs=epochs, validate_every=1)
    truth = [OracleEpoch(0.5, 0.8), OracleEpoch(0.2, 0.9)]
    oracle = OracleRun([OracleEpoch(1.0, 0.5), OracleEpoch(0.3, 0.8)], truth)
    checks = verify_validation(problem, "float32", epochs, said, oracle, truth[-1], IMAGES)
    return {check.what for check in checks if not check.passed}


TRUE = {0: EpochMetrics(0.5, 0.8), 1: EpochMetrics(0.2, 0.9)}
LOSS, ACCURACY = "validation of the final parameters, loss", "validation of the final parameters, accuracy"


@pytest.mark.parametrize(
    ("said", "caught"),
    [
        (TRUE | {1: EpochMetrics(0.2001, 0.9)}, {LOSS}),
        (TRUE | {1: EpochMetrics(0.2, 0.9003)}, {ACCURACY}),
        (TRUE | {0: EpochMetrics(0.8, 0.8)}, {"validation curve, loss"}),
        (TRUE | {0: EpochMetrics(0.5, 0.7)}, {"validation curve, accuracy"}),
        (TRUE | {0: EpochMetrics(float("nan"), 0.8)}, {"validation curve, loss"}),
        ({1: TRUE[1]}, {"validations left out, of those that are due"}),
        ({}, {"validations left out, of those that are due"}),
    ],
)
def test_invented_validations_are_caught_in_chaos_too(said: dict[int, EpochMetrics], caught: set[str]) -> None:
    assert failed(said, logistic=False) == caught
    assert failed(TRUE, logistic=True) == failed(TRUE, logistic=False) == set()


@pytest.mark.parametrize(("accuracy", "hidden", "passes"), [(0.5, (8,), True), (0.95, (8,), False), (0.5, (), False)])
def test_a_network_just_begun_may_be_a_step_ahead(accuracy: float, hidden: tuple[int, ...], passes: bool) -> None:
    problem = replace(small_problem(hidden=hidden), epochs=1, validate_every=1)
    parts = [OracleEpoch(loss, accuracy) for loss in (1.2, 1.0, 0.9)]
    oracle, own = OracleRun([OracleEpoch(1.0, accuracy)], [OracleEpoch(0.9, accuracy)], parts=[parts]), (0.81, accuracy)
    checks = verify_validation(problem, "float32", 1, {0: EpochMetrics(*own)}, oracle, OracleEpoch(*own), IMAGES)
    assert all(check.passed for check in checks) is passes


def test_after_the_oracles_last_epoch_the_final_parameters_are_still_compared() -> None:
    said = TRUE | {2: EpochMetrics(0.1, 0.5)}
    assert failed(said, logistic=False, epochs=3) == {LOSS, ACCURACY}
