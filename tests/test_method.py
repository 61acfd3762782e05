"""`docs/method.md` names the checks and gives the limits that the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import numpy as np

from common.oracle import OracleEpoch
from common.problem import initial_params
from common.trainer import EpochMetrics
from ladder.measure.displacement import Displacement
from ladder.measure.timing import Plan
from ladder.records.run import Precision
from ladder.verify.gates import (
    LATE_START_ALLOWANCE,
    LIMITS,
    TEST_ACCURACY,
    TRAINING_ACCURACY,
    VALIDATION_LOSS_LIMIT,
    FirstBatches,
    verify_displacements,
    verify_final,
    verify_first_update,
    verify_from_zero,
    verify_speed,
    verify_timer,
    verify_validation,
)
from ladder.verify.oracle_runs import OracleRun
from tests.ladder.harness import small_dataset, small_problem

METHOD = (Path(__file__).parent.parent / "docs" / "method.md").read_text(encoding="utf-8")
CHECKS = "| check | error | when |"
HEADER = "| precision | first update | scale | epoch from zeros | final parameters | loss curve |"


def test_the_checks_of_the_document_are_those_of_the_code() -> None:
    problem, train = small_problem(validate_every=1), small_dataset().train
    params, seen = initial_params(problem, 0), EpochMetrics(1.0, 0.5)
    tensors = [[tensor.astype(np.float64) for tensor in kind] for kind in (params.weights, params.biases)]
    oracle = OracleRun(
        [OracleEpoch(1.0, 0.5)], [OracleEpoch(1.0, 0.5)], [(tensors[0], tensors[1])], [Displacement(1.0, 1.0)]
    )
    batch = train.images[: problem.batch_size], train.labels[: problem.batch_size]
    checks = [
        *verify_first_update("float32", FirstBatches.of(problem, 1, params, *batch), params, seen),
        *verify_from_zero(problem, "float32", params, seen, oracle),
        *verify_final(problem, "float32", 1, params, {0: seen}, oracle, 0.5, 200, 515),
        *verify_validation(problem, "float32", 1, {0: seen}, oracle, oracle.tested[0], 200),
        verify_timer(0.1),
        *verify_displacements({0: Displacement(1.0, 1.0)}, Plan(1, 1, 0), oracle),
        verify_speed(1.0, 2.0),
    ]
    _, table = METHOD.split(CHECKS)
    told = [line.split("|")[1].strip() for line in table.split("\n\n")[0].splitlines()[2:]]
    done = {re.sub(r"(weight|bias)\[\d+\]", "each tensor", check.what) for check in checks}
    assert sorted(told) == sorted(done)


def test_every_precision_has_its_limits_in_the_document() -> None:
    _, table = METHOD.split(HEADER)
    rows = [line.strip("|").split("|") for line in table.split("\n\n")[0].splitlines()[2:]]
    told = {name.strip(): tuple(tuple(map(float, cell.split(","))) for cell in cells) for name, *cells in rows}
    assert told == {
        precision: (
            limits.first_update,
            limits.update_scale,
            limits.from_zero,
            (limits.final_params,),
            limits.loss_curve,
        )
        for precision, limits in LIMITS.items()
    }
    assert set(told) == set(get_args(Precision))


def test_the_limits_of_the_accuracies_are_in_the_document() -> None:
    text = " ".join(METHOD.split())
    ((logistic, mlp),) = re.findall(
        r"Test accuracy may differ by ([\d.]+) for logistic and ([\d.]+) for an MLP", METHOD
    )
    assert (float(logistic), float(mlp)) == TEST_ACCURACY
    (training,) = re.findall(r"Training accuracy may differ by ([\d.]+)\.\s", text)
    assert float(training) == TRAINING_ACCURACY
    (late,) = re.findall(r"(\d+) % of those that it has wrong in an epoch are allowed as well", text)
    assert int(late) / 100 == LATE_START_ALLOWANCE
    (loss,) = re.findall(r"validation's loss by ([\d.]+) for an MLP", text)
    assert float(loss) == VALIDATION_LOSS_LIMIT
