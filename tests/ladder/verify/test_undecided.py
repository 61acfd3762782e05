"""Where rounding decides, a check says so; it hides no failure, and it is no silent pass."""

from __future__ import annotations

import math

import pytest

from common.oracle import OracleEpoch
from common.problem import Problem, initial_params
from common.trainer import EpochMetrics
from ladder.records.run import Check
from ladder.verify.gates import accuracy_within, verify_final, verify_first_update, verify_validation
from ladder.verify.oracle_runs import EpochSpread, OracleRun
from ladder.verify.short_runs import ShortRun
from tests.ladder.harness import small_dataset, small_problem

DEEP = Problem(36, 4, (64,), batch_size=8, metrics_every=1, validate_every=1)
REFERENCE = [OracleEpoch(1.0, 0.6), OracleEpoch(0.8, 0.7)]
UNDECIDED = "float32 cannot decide here"


def judged(said: list[EpochMetrics], spreads: list[EpochSpread], accuracy: float = 0.7) -> dict[str, Check]:
    """The checks of a run of two epochs that says this of its training, and of its validation."""
    oracle = OracleRun(REFERENCE, REFERENCE, [None] * 2, spreads={"float32": spreads})
    told = dict(enumerate(said))
    params = initial_params(DEEP, 0)
    checks = verify_final(DEEP, "float32", 2, params, told, oracle, accuracy, 10_000, 60_000)
    checks += verify_validation(DEEP, "float32", 2, told, oracle, OracleEpoch(0.8, 0.7), 10_000)
    return {one.what: one for one in checks}


LOSSES, ACCURACIES = ("loss curve", "validation curve, loss"), ("training accuracy", "validation curve, accuracy")


@pytest.mark.parametrize(
    ("first", "verdict"), [(EpochMetrics(1.5, 0.2), "failed"), (EpochMetrics(1.0, 0.6), "passed in part")]
)
def test_an_epoch_that_rounding_decides_hides_no_other(first: EpochMetrics, verdict: str) -> None:
    """The second epoch's errors are further beyond any limit than the first one's, but are not judged."""
    wide = EpochSpread(loss=9.0, accuracy=1.0, tested_loss=9.0, tested_accuracy=1.0)
    checks = judged([first, EpochMetrics(9.0, 0.0)], [EpochSpread(), wide])
    for what in (*LOSSES, *ACCURACIES):
        one = checks[what]
        assert one.judged
        assert one.passed == (verdict != "failed")
        assert one.note == f"{UNDECIDED}: 1 of 2 epochs"


def test_an_accuracy_is_not_judged_where_none_could_fail() -> None:
    wide = EpochSpread(accuracy=0.25, tested_accuracy=0.25)
    guesses = EpochMetrics(0.8, 0.1)
    checks = judged([guesses, guesses], [wide, wide], accuracy=0.1)
    for what in ("test accuracy", *ACCURACIES):
        assert (checks[what].judged, checks[what].note) == (False, UNDECIDED)
    broken = EpochMetrics(0.8, math.nan)
    checks = judged([broken, broken], [wide, wide], accuracy=math.nan)
    assert not any(checks[what].passed for what in ("test accuracy", *ACCURACIES))


@pytest.mark.parametrize(("reference", "spread", "says"), [(0.98, 0.2, True), (0.98, 0.23, False), (0.5, 0.12, False)])
def test_an_accuracys_limit_is_as_wide_as_accuracies_are(reference: float, spread: float, says: bool) -> None:
    assert accuracy_within("x", "float32", reference, reference, 10_000, spread=spread).judged == says


def test_one_image_tells_no_accuracy() -> None:
    problem, data = small_problem(batch_size=1), small_dataset().train
    first = ShortRun(problem, 1, initial_params(problem, 0), data.images, data.labels)
    checks = verify_first_update("float32", first, initial_params(problem, 0), EpochMetrics(1.0, 0.0))
    (accuracy,) = (one for one in checks if one.what.endswith("accuracy"))
    assert (accuracy.passed, accuracy.judged, accuracy.is_undecided) == (True, False, False)
    assert accuracy.note == "rounding may change two images; this run has 1"
