"""What failed checks have in common, checks of the other runs, and checks that rounding decides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from common.oracle import FloatArray, OracleEpoch
from common.problem import Params, Problem, initial_params
from common.trainer import EpochMetrics
from ladder.measure.displacement import Displacement
from ladder.records.run import Check, Process
from ladder.verify.failed_checks import first_cause, what_to_look_at
from ladder.verify.gates import accuracy_within, check, verify_final, verify_first_update, verify_validation
from ladder.verify.oracle_runs import EpochSpread, OracleRun
from ladder.verify.other_runs import (
    WAY_CHECK,
    RunEnd,
    verify_clock,
    verify_judged_time,
    verify_losses,
    verify_networks,
)
from ladder.verify.short_runs import ShortRun
from tests.ladder.harness import small_dataset, small_problem

PROBLEM = small_problem(hidden=(8,))
INITIAL = initial_params(PROBLEM, 0)
FIRST = ShortRun(PROBLEM, 1, INITIAL, small_dataset().train.images, small_dataset().train.labels)
TENSORS = ("weight[0]", "bias[0]", "weight[1]", "bias[1]")
RATE = "look at the learning rate and the division by the batch size"


def checks_of(**factors: float) -> list[Check]:
    """The checks of a first update that is so many times the right one: of `every` tensor, or by tensor (`bias_0`)."""

    def moved(kind: str, before: Sequence[FloatArray], right: Sequence[FloatArray]) -> tuple[NDArray[np.float32], ...]:
        of = [factors.get(f"{kind}_{layer}", factors.get("every", 1.0)) for layer in range(len(before))]
        return tuple(
            (start + factor * (end - start)).astype(np.float32)
            for start, end, factor in zip(before, right, of, strict=True)
        )

    weights = moved("weight", INITIAL.weights, FIRST.oracle.weights)
    biases = moved("bias", INITIAL.biases, FIRST.oracle.biases)
    return verify_first_update("float32", FIRST, Params(weights, biases), None)


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ({"every": 1.02}, f"every first update is 1.02 times the expected one: {RATE}"),
        ({"every": 0.5}, f"every first update is 0.5 times the expected one: {RATE}"),
        ({"every": 32.0}, f"every first update is 32 times the expected one: {RATE}"),
        ({"every": 2.0}, f"every first update is 2 times the expected one: {RATE}"),
        ({"every": 0.0}, "no parameter is updated in a run of one batch"),
        ({"every": -1.0}, "every parameter is updated in the opposite direction"),
        ({"bias_0": 0.0}, "bias[0] is not updated"),
        ({"bias_0": 0.0, "bias_1": 0.0}, "bias[0] and bias[1] are not updated"),
        ({"bias_0": 1 / 128}, "bias[0] is updated 0.00781 times as far as expected"),
        ({"weight_1": -1.0}, "weight[1] is updated in the opposite direction"),
        ({"bias_0": 2.0}, "bias[0] is updated 2 times as far as expected"),
    ],
)
def test_a_cause_is_told_by_its_sign_and_its_size(factors: dict[str, float], said: str) -> None:
    checks = checks_of(**factors)
    assert first_cause(checks).partition(";")[0] == said
    wrong = sum(not one.passed for one in checks)
    tensors = len(TENSORS) if "every" in factors else len(factors)
    assert first_cause([*checks, *[check(f"{n} epochs", 1.0, 0.0) for n in range(3)]]) == (
        f"{said}; the other {wrong - tensors + 3} failed checks may follow from it"
    )


def test_pixels_divided_by_255_are_named() -> None:
    said = "the first layer learns as from pixels divided by 255: divide them by 256"
    assert first_cause(checks_of(weight_0=1.0043, bias_0=1.0012)).partition(";")[0] == said
    assert first_cause(checks_of(weight_0=1.01, bias_0=1.0012)) == ""
    assert "every first update is" in first_cause(checks_of(every=256 / 255))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "late epoch, tensors",
            "its update is 0.8 times the expected one: look at what changes with the number of steps",
        ),
        (
            "late epoch, scale",
            "its update is 0.8 times the expected one: look at the learning rate and at the division",
        ),
        ("late epoch, loss", "its loss is 128 times the expected one: look at what changes"),
        ("3 epochs of 3 batches, tensors", "look at what one epoch leaves to the next"),
        ("loss curve", ""),
    ],
)
def test_advice_begins_with_a_ratio_where_one_explains(what: str, said: str) -> None:
    checks = [
        check("late epoch, tensors", 0.3, 0.1),
        replace(check("late epoch, scale", 0.2, 0.1), factor=0.8),
        replace(check("late epoch, loss", 127.0, 0.1), factor=128.0),
        check("3 epochs of 3 batches, tensors", 0.3, 0.1),
        check("3 epochs of 3 batches, scale", 0.2, 0.1),
        check("loss curve", 0.3, 0.1),
    ]
    advice = what_to_look_at(next(one for one in checks if one.what == what), checks)
    assert advice.startswith(said)
    assert bool(advice) == bool(said)


def test_a_record_without_factors_gets_no_lead() -> None:
    assert first_cause([replace(one, factor=None) for one in checks_of(every=1.02)]) == ""


def process(*runs_s: float, warmups_s: tuple[float, ...] = (0.5,), gpu_runs_s: list[float] | None = None) -> Process:
    return Process(
        round=0, prepare_s=0.0, warmups_s=list(warmups_s), runs_s=list(runs_s), gpu_runs_s=gpu_runs_s, gpu_states=[]
    )


def arrived(share: float, way: float = 1.0) -> RunEnd:
    """A run that wins this share of a loss of 2, and goes so far."""
    return RunEnd(Displacement(way, 0.0), 2.3, 2.3 - 2.0 * share)


@pytest.mark.parametrize(
    ("others", "passes"),
    [
        ((1.0,), True),
        ((0.7, 1.1), True),
        ((0.0, 0.9, 1.0), True),
        ((0.0,), False),
        ((0.0, 0.0, 1.0), False),
        ((0.3, 0.4), False),
        ((math.nan,) * 2, False),
    ],
)
def test_the_median_run_wins_as_much_as_the_judged_one(others: tuple[float, ...], passes: bool) -> None:
    check, way = verify_losses(Problem(784, 10), arrived(1.0), [arrived(share) for share in others])
    assert (check.passed, way.passed) == (passes, True)


@pytest.mark.parametrize(
    ("hidden", "ways", "passes"),
    [
        ((), (0.9, 1.2), True),
        ((), (1.0, 0.62), False),
        ((), (1.0, math.nan), False),
        ((64,), (0.5,), None),
    ],
)
def test_no_run_of_softmax_regression_goes_a_far_shorter_way(
    hidden: tuple[int, ...], ways: tuple[float, ...], passes: bool | None
) -> None:
    checks = verify_losses(Problem(784, 10, hidden=hidden), arrived(1.0), [arrived(1.0, way) for way in ways])
    assert [one.passed for one in checks if one.what == WAY_CHECK] == ([] if passes is None else [passes])


def test_where_correct_runs_differ_no_loss_is_judged() -> None:
    for problem in (Problem(784, 10, hidden=(8,)), Problem(784, 10, hidden=(128,) * 4)):  # narrow, deep
        assert verify_losses(problem, arrived(1.0), [arrived(0.0)]) == []
    for layers, least in ((0, 0.3), (1, 0.3), (2, 0.6), (3, 0.6)):
        problem = Problem(784, 10, hidden=(64,) * layers)
        assert verify_losses(problem, arrived((least - 0.01) * 2.3 / 2.0), [arrived(0.0)]) == []
        assert (
            len(verify_losses(problem, arrived((least + 0.01) * 2.3 / 2.0), [arrived(0.0)])) == 1 + problem.is_logistic
        )
    assert verify_losses(Problem(784, 10), arrived(1.0), []) == []


@pytest.mark.parametrize(
    ("retained", "least", "lost"),
    [
        (0.9, 0.8, 0.0),
        (0.3, 0.8, 1 - (0.3 + 0.012372) / 0.8),  # beyond chance: of (784 * 10) / 3 / 784, a way of 2 / sqrt(3 * 784)
        (0.79, 0.8, 0.0),
        (0.0, 0.0, 0.0),
        (math.nan, 0.8, None),
    ],
)
def test_a_network_that_retains_less_than_the_judged_ones_has_lost_it(
    retained: float, least: float, lost: float | None
) -> None:
    ends = [RunEnd(Displacement(2.0, kept), 2.3, 0.3) for kept in (1.0, least, retained)]
    own, *_ = verify_networks(Problem(784, 10, networks=3), ends, [0, 1])
    assert own.error == (None if lost is None else pytest.approx(lost, rel=1e-4))


def test_the_loss_is_the_harnesss_own() -> None:
    problem, data = small_problem(), small_dataset()
    end = RunEnd.of(initial_params(problem, 0), initial_params(problem, 1), data.test)
    assert 1.0 < end.before < 3.0
    assert end.won == end.before - end.after != 0.0


@pytest.mark.parametrize(
    ("told", "seen", "passes"),
    [
        ((1.0, 1.0, 1.0), (0.5, 1.0, 1.0, 1.0), True),
        ((1.0, 1.0, 1.0), (0.5, 1.1, 1.0, 9.0), True),  # the host was late once
        ((0.1, 0.1, 0.1), (0.5, 1.0, 1.0, 1.0), False),
        ((0.95, 0.95, 0.95), (0.5, 1.0, 1.0, 1.0), True),
        ((0.8, 0.8, 0.8), (0.5, 1.0, 1.0, 1.0), False),  # a clock that is 20 % slow
        ((0.001,) * 3, (0.5, 0.004, 0.004, 0.004), True),  # too short to tell
        ((1.0, 1.0, 0.0), (0.5, 1.0, 1.0, 1.0), False),
        ((1.0, 1.0, -1.0), (0.5, 1.0, 1.0, 1.0), False),
        ((1.0, 1.0, math.nan), (0.5, 1.0, 1.0, 1.0), False),
        ((1.0, 1.0, 1.0), (0.5, 1.0, 1.0), False),
        ((1.0, 1.0, 1.0), (None,) * 4, True),  # a kernel without such times
    ],
)
def test_times_are_those_of_linux(told: tuple[float, ...], seen: tuple[float | None, ...], passes: bool) -> None:
    assert verify_clock(process(*told), seen).passed == passes


@pytest.mark.parametrize(("took_s", "passes"), [(0.0, True), (-0.001, True), (-0.3, False)])
def test_no_phase_ends_before_it_begins(took_s: float, passes: bool) -> None:
    told = replace(process(1.0), took_s={"load": 0.5, "prepare": took_s})
    assert verify_clock(told, (0.5, 1.0)).passed is passes
    for gpu_s in (0.9, 0.0):
        assert verify_clock(process(1.0, gpu_runs_s=[gpu_s]), (0.5, 1.0)).passed is (gpu_s > 0)


@pytest.mark.parametrize(("judged_s", "passes"), [(1.0, True), (0.3, True), (0.2, False), (5.0, True)])
def test_the_judged_run_is_not_the_only_short_one(judged_s: float, passes: bool) -> None:
    assert verify_judged_time(process(1.0, judged_s, 1.0), judged=1).passed == passes


def test_a_run_alone_is_compared_with_none_and_says_so() -> None:
    check = verify_judged_time(process(1.0, warmups_s=()), judged=0)
    assert (check.passed, check.judged, check.is_undecided) == (True, False, False)
    assert check.note == "a process has one run and no warm-up (--repeats, --warmups, --budget)"


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
