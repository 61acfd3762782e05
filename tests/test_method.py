"""`docs/method.md` names the checks and gives the limits that the code has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from common.oracle import OracleEpoch
from common.problem import initial_params
from common.trainer import EpochMetrics
from ladder.measure.displacement import Displacement
from ladder.measure.timing import Plan
from ladder.records.run import Process
from ladder.verify import gates
from ladder.verify.control import ROUNDINGS
from ladder.verify.oracle_runs import OracleRun
from ladder.verify.other_runs import RunEnd, verify_clock, verify_judged_time, verify_losses
from ladder.verify.short_runs import ShortRun, from_zero_run
from tests.ladder.harness import small_dataset, small_problem

METHOD = (Path(__file__).parent.parent / "docs" / "method.md").read_text(encoding="utf-8")
CHECKS = "| check | error | when |"


def test_the_checks_of_the_document_are_those_of_the_code() -> None:
    problem, train = small_problem(validate_every=1), small_dataset().train
    params, seen = initial_params(problem, 0), EpochMetrics(1.0, 0.5)
    oracle = OracleRun(
        [OracleEpoch(1.0, 0.5)],
        [OracleEpoch(1.0, 0.5)],
        [(list(params.weights), list(params.biases))],
        [Displacement(1.0, 1.0)],
    )
    mlp, images = replace(problem, hidden=(2,)), train.images.reshape(len(train.images), -1)
    short, whole = ShortRun(problem, 1, params, images, train.labels), from_zero_run(problem, images, train.labels)
    arrived = RunEnd(Displacement(1.0, 1.0), 1.0, 0.3)
    process = Process(
        round=0, prepare_s=0.0, warmups_s=[1.0], runs_s=[1.0], gpu_runs_s=None, gpu_states=[], gpu_memory_mib=None
    )
    checks = [
        *gates.verify_first_update("float32", short, params, seen),
        *gates.verify_short_run("3 epochs of a few batches", "float32", short, params, seen),
        *gates.verify_short_run("trained parameters", "float32", short, params, seen),
        gates.check("trained parameters, metrics left out", 0.0, 0.0),
        *gates.verify_short_run("epoch from positive biases", "float32", short, params, None),
        *gates.verify_late_epoch("late epoch of a few batches", "float32", short, 20, params, seen),
        *gates.verify_late_epoch("late epoch", "float32", short, 2, params, seen),
        *gates.verify_whole_images("float32", [(seen, 32)]),
        *gates.verify_kept_bits("float32", params),
        *gates.verify_from_zero("float32", whole, params, seen),
        *gates.verify_final(problem, "float32", 1, params, {0: seen}, oracle, 0.5, 200, 515),
        *gates.verify_validation(problem, "float32", 1, {0: seen}, oracle, oracle.tested[0], 200),
        gates.verify_timer(0.1),
        *gates.verify_displacements("float32", {0: Displacement(1.0, 1.0)}, Plan(1, 1, 0), oracle),
        *gates.verify_path(mlp, "float32", 1, params, params, oracle),
        gates.verify_speed(1.0, 2.0),
        *verify_losses(problem, arrived, [arrived]),
        verify_clock(process, [1.0, 1.0]),
        verify_judged_time(process, 0),
    ]
    _, table = METHOD.split(CHECKS)
    told = []
    for line in table.split("\n\n")[0].splitlines()[2:]:
        of, *names = re.split(r"; |, (?=[^,;]*(?:;|$))", line.split("|")[1].strip())
        told += [f"{of}, {name}" for name in names] or [of]
    done = {re.sub(r"(weight|bias)\[\d+\]", "each tensor", check.what) for check in checks}
    assert sorted(told) == sorted(done)


def test_the_limits_of_the_document_are_those_of_the_code() -> None:
    text = " ".join(METHOD.split())
    told = {
        r"Short runs\*\*: ([\d.]+) times the largest error of the controls": gates.SAFETY,
        r"([\d.]+) times for the scale": gates.SCALE_SAFETY,
        r"([\d.]+) times from zeros": gates.FROM_ZERO_SAFETY,
        r"precision's share has the limit ([\d.]+)\.": gates.LOWER_SHARE,
        r"where controls show ([\d.]+) by chance": gates.MOST_CHANCE,
        r"An MLP's distance may be ([\d.]+) more": gates.MLP_APART_FLOOR,
        r"and ([\d.]+) at most": gates.MLP_APART_LIMIT,
        r"its losses ([\d.]+) more": gates.MLP_LOSS_FLOOR,
        r"Test accuracy may differ by ([\d.]+) more": gates.TEST_ACCURACY[0],
        r"and by ([\d.]+) for an MLP": gates.TEST_ACCURACY[1],
    }
    assert {pattern: [float(found) for found in re.findall(pattern, text)] for pattern in told} == {
        pattern: [limit] for pattern, limit in told.items()
    }
    (late,) = re.findall(r"(\d+)% of those that it has wrong in an epoch are allowed as well", text)
    assert int(late) / 100 == gates.LATE_START_ALLOWANCE
    rows = dict(re.findall(r"^\| (\w+) \| (\d+) \|", METHOD, re.MULTILINE))
    assert rows == {precision: str(rounding.bits) for precision, rounding in ROUNDINGS.items()}
