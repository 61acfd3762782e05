"""The one cause that wrong first updates have in common, by stages that are wrong in a known way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from common.oracle import FloatArray
from common.problem import Params, initial_params
from ladder.records.run import Check
from ladder.verify.failed_checks import first_cause, what_to_look_at
from ladder.verify.gates import check, verify_first_update
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


def test_what_has_no_one_cause_gets_no_lead() -> None:
    assert first_cause(checks_of()) == ""
    assert first_cause(checks_of(bias_0=0.0, weight_1=1.3)) == ""
    turned = initial_params(PROBLEM, 1)
    assert first_cause(verify_first_update("float32", FIRST, turned, None)) == ""
    assert first_cause([*checks_of(), check("loss curve", 1.0, 0.5)]) == ""
    aside = [replace(one, error=0.5) for one in checks_of(every=1.02)]  # 0.02 along, and more across
    assert first_cause(aside) == ""


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
