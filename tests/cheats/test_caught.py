"""The intended check catches every cheat, and correct stages pass."""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Any

import pytest

from common.trainer import Trainer
from ladder.measure import measurement
from ladder.measure.protocol import REPEATED_EPOCHS
from ladder.measure.timing import Plan, measure
from ladder.processes import seed_server
from ladder.records.run import StageResult
from ladder.run import jury, orders
from ladder.run.judge import POSITIVE
from ladder.run.stage_run import TIME_CHECKS
from ladder.verify.gates import CURVES, KEPT_CHECK, VALIDATION_CURVES, WHOLE_CHECK
from ladder.verify.other_runs import LOSS_CHECK
from reports.facts.warnings import notices
from tests.cheats.defects import CAUGHT, LATE, LATE_OF_ALL
from tests.cheats.frauds import DISPLACEMENT, SHORTEST_RUN, TRAINING_S, UNTIMED_WORK
from tests.cheats.honest_grid import draw_again_from
from tests.cheats.table import CAUGHT_FILE, NAMES, table
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem
from tests.ladder.in_process import judge_in_this_process
from tests.ladder.times import judged_times

FAILED_BY, LATER, BEGIN_LATE, REFUSED_FOR, *_ = (
    {NAMES[stage]: what for stage, what in caught.items()} for caught in CAUGHT.values()
)
JAX_UNWAITED = "tests.cheats.frauds:JAX_WITHOUT_WAITING"
GRAFTED = "tests.cheats.frauds:GRAFTS_WEIGHTS"
PRUNED = "tests.cheats.defects:PIXELS_PRUNED"
LATE_ORDER = "tests.cheats.defects:LATE_RESHUFFLED"
SECOND_RUN = "tests.cheats.frauds:SKIPS_THE_SECOND_RUN"
SHORT_WAYS = "tests.cheats.frauds:TRAINS_A_BATCH_IN_OTHER_RUNS"
HONEST = (NUMPY, *(f"tests.cheats.frauds:{name}" for name in ("CLOCK_BETWEEN", "LATE_METRICS", "STORES")))
LONELY = "tests.cheats.frauds:KILLS_ITS_FORK_SERVER"
SALT = 12345
# In softmax regression, the comparison with the oracle's final parameters catches these.
LOGISTIC = {name: "final parameters" for name, reason in FAILED_BY.items() if reason in (DISPLACEMENT, "loss curve")}
LOGISTIC |= {name: "validation curve, loss" for name in FAILED_BY if "VALIDAT" in name}
LOGISTIC |= {"defects:ROUNDED_TO_17": "first update, precision"}


def run(
    folder: Path, *sources: str, hidden: tuple[int, ...] = (16,), salt: int = SALT, **changes: object
) -> dict[str, StageResult]:
    # 32 steps: more than first updates are checked on
    problem = small_problem(**{"hidden": hidden, "batch_size": 16, "validate_every": 1, **changes})
    results = prepare(folder, *sources, problem=problem, salt=salt).run(Watcher())
    return dict(zip(sources, results.stages, strict=True))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    cheats = [f"tests.cheats.{name}" for name in (*FAILED_BY, *REFUSED_FOR)]
    with judged_times():
        return run(tmp_path_factory.mktemp("cheats"), *HONEST, *cheats)


@pytest.fixture(scope="module")
def judged_later(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    problem = small_problem(hidden=(64,), batch_size=16, learning_rate=0.5, metrics_every=10, epochs=4)
    sources = [NUMPY, *(f"tests.cheats.{name}" for name in LATER)]
    with pytest.MonkeyPatch.context() as patch:
        judge_in_this_process(patch)
        results = prepare(tmp_path_factory.mktemp("later"), *sources, problem=problem, salt=SALT).run(Watcher())
    return dict(zip(sources, results.stages, strict=True))


@pytest.fixture(scope="module")
def judged_late(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    cheats = [f"tests.cheats.{name}" for name in BEGIN_LATE]
    changes = {"hidden": (64,), "epochs": 8, "metrics_every": 4, "validate_every": 8}
    with pytest.MonkeyPatch.context() as patch:
        judge_in_this_process(patch)
        return run(tmp_path_factory.mktemp("late"), NUMPY, *cheats, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def judged_logistic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    cheats = [f"tests.cheats.{name}" for name in LOGISTIC]
    return run(tmp_path_factory.mktemp("logistic"), NUMPY, *cheats, hidden=())


def test_of_every_planted_cheat_is_said_what_catches_it_and_there_are_many() -> None:
    assert CAUGHT_FILE.read_text(encoding="utf-8") == table()
    assert {*NAMES} == {stage for caught in CAUGHT.values() for stage in caught}
    assert len(NAMES) >= 2 * 39  # twice as many as before limits followed controls


@pytest.mark.parametrize("name", FAILED_BY)
def test_each_cheat_fails_the_intended_check(judged: dict[str, StageResult], name: str) -> None:
    stage = judged[f"tests.cheats.{name}"]
    assert_failed_by(stage, FAILED_BY[name])
    if name == "frauds:TRAINS_WHILE_READ":
        assert (stage.reason or "").endswith("; wait for your results in run_epoch() or wait(), and train nowhere else")
    if name == "defects:GRADIENT":  # an error of one per cent is far beyond its limit
        (scale,) = [check for check in stage.checks if check.what == "first update, scale"]
        assert scale.error == pytest.approx(0.01, rel=0.01)
        assert scale.limit < 1e-4


@pytest.mark.parametrize("name", LATER)
def test_accidents_after_first_updates_fail_the_intended_check(judged_later: dict[str, StageResult], name: str) -> None:
    assert_failed_by(judged_later[f"tests.cheats.{name}"], LATER[name])
    honest = judged_later[NUMPY]
    assert (honest.status, honest.reason) == ("passed", None)
    assert {one.what for one in honest.checks if not one.judged} == {"loss curve", "training accuracy"}


@pytest.mark.parametrize("name", BEGIN_LATE)
def test_accidents_that_begin_late_fail_the_intended_check(judged_late: dict[str, StageResult], name: str) -> None:
    assert_failed_by(judged_late[f"tests.cheats.{name}"], BEGIN_LATE[name])
    honest = [one for one in judged_late[NUMPY].checks if one.what not in TIME_CHECKS]
    assert [one.what for one in honest if not one.passed or not one.judged] == []
    assert {LATE, LATE_OF_ALL, f"{POSITIVE}, tensors", KEPT_CHECK, WHOLE_CHECK} <= {one.what for one in honest}


@pytest.mark.parametrize("name", LOGISTIC)
def test_each_cheat_fails_its_check_in_softmax_regression(judged_logistic: dict[str, StageResult], name: str) -> None:
    assert_failed_by(judged_logistic[f"tests.cheats.{name}"], LOGISTIC[name])
    assert judged_logistic[NUMPY].status == "passed"


def assert_failed_by(stage: StageResult, what: str) -> None:
    assert any(check.what.startswith(what) for check in stage.checks if not check.passed), stage.reason
    assert (stage.status, stage.timing) == ("failed", None)
    assert stage.reason


@pytest.mark.parametrize("name", REFUSED_FOR)
def test_a_process_with_a_tampered_harness_counts_as_crashed(judged: dict[str, StageResult], name: str) -> None:
    stage = judged[f"tests.cheats.{name}"]
    assert (stage.status, stage.timing) == ("crashed", None)
    assert (stage.reason or "").startswith(REFUSED_FOR[name])


@pytest.mark.parametrize("source", HONEST)
def test_correct_stages_fail_no_check_of_what_they_computed(judged: dict[str, StageResult], source: str) -> None:
    stage = judged[source]
    assert len(stage.checks) > 5
    assert {check.what for check in stage.checks if not check.passed} <= TIME_CHECKS
    assert stage.status != "crashed"


@pytest.mark.alone
def test_correct_stages_pass_and_cheats_without_effect_are_timed_with_all_their_work(tmp_path: Path) -> None:
    with judged_times():
        stages = run(tmp_path, *HONEST)
    for source, stage in stages.items():
        assert (stage.status, stage.reason) == ("passed", None)
        assert stage.timing is not None
        assert [check for check in stage.checks if not check.passed] == []
        assert source == NUMPY or stage.timing.epoch_s.min > TRAINING_S


def test_other_weights_end_far_from_the_oracles(tmp_path: Path) -> None:
    # No metrics are due: those of other weights would differ. The way is as long as a correct run's.
    problem = {"hidden": (64,), "epochs": 8, "metrics_every": 9, "validate_every": 0}
    stage = run(tmp_path, GRAFTED, **problem)[GRAFTED]  # type: ignore[arg-type]
    assert_failed_by(stage, "distance from the oracle's parameters, by its way")
    assert DISPLACEMENT not in [check.what for check in stage.checks if not check.passed]


def test_a_short_way_in_one_of_two_runs_is_seen_whichever_is_judged(tmp_path: Path) -> None:
    stage = run(tmp_path, SHORT_WAYS, hidden=())[SHORT_WAYS]
    assert {check.what for check in stage.checks if not check.passed} & {LOSS_CHECK, "final parameters"}


def test_each_run_goes_its_way_from_its_own_first_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda runs: 0)  # the first run is judged
    monkeypatch.setattr(orders, "WHOLE_WORK", 0)  # no late epoch among them
    assert_failed_by(run(tmp_path, SECOND_RUN)[SECOND_RUN], SHORTEST_RUN)


@pytest.mark.parametrize(
    ("named", "quick"),
    [
        ("late epoch of 3 batches, tensors", (measurement, "SLOW_S")),
        ("late epoch, tensors", (orders, "WHOLE_WORK")),
        (f"{POSITIVE}, tensors", (orders, "POSITIVE_WORK")),
    ],
)
def test_epochs_that_take_too_long_are_told(
    named: str, quick: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_this_process(monkeypatch)
    monkeypatch.setattr(*quick, 0)
    stage = run(tmp_path, NUMPY)[NUMPY]
    assert (stage.status, stage.not_made) == ("passed", 1)
    (note,) = (one.note for one in stage.checks if one.what == named)
    assert "takes too long" in note


def test_a_late_epoch_has_any_place_among_the_timed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_this_process(monkeypatch)
    monkeypatch.setitem(vars(seed_server), "secrets", secrets)  # to undo
    places = list[int]()

    def seen(trainer: Trainer, params: Any, plan: Plan, **how: Any) -> Any:
        places.extend([how["untimed"].before] if plan.repeats and how.get("untimed") else [])
        return measure(trainer, params, plan, **how)

    monkeypatch.setattr(measurement, "measure", seen)
    for seed in range(8):
        draw_again_from(seed)
        (folder := tmp_path / str(seed)).mkdir()
        stage = run(folder, NUMPY)[NUMPY]
        assert stage.status == "passed"
        assert stage.processes[0].took_s["late epoch"] > 0
    assert {*places} == {0, 1, 2}  # before, between and after two timed runs


def test_a_network_too_large_for_late_epochs_is_judged_from_positive_biases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_this_process(monkeypatch)
    monkeypatch.setattr(orders, "WHOLE_WORK", 0)
    failed = {one.what for one in run(tmp_path, PRUNED)[PRUNED].checks if not one.passed} - TIME_CHECKS
    assert failed == {f"{POSITIVE}, tensors", f"{POSITIVE}, scale"}


def test_a_slow_oracle_passes_another_order_in_late_epochs_with_checks_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged_within(budget_s: float) -> StageResult:
        folder = tmp_path / f"{budget_s}"
        folder.mkdir()
        monkeypatch.setattr(jury, "ORACLE_BUDGET_S", budget_s)
        return run(folder, LATE_ORDER, hidden=(), epochs=REPEATED_EPOCHS + 2)[LATE_ORDER]

    assert_failed_by(judged_within(math.inf), "final parameters")
    stage = judged_within(0.0)  # which trains one epoch even so
    assert (stage.status, stage.not_made) == ("passed", 6)
    assert {check.what for check in stage.checks if not check.judged} == {
        "final parameters",
        DISPLACEMENT,
        *(f"{what}, later epochs" for what in (*CURVES, *VALIDATION_CURVES)),
    }


def test_a_stage_that_ends_its_fork_server_is_told(tmp_path: Path) -> None:
    problem = small_problem(hidden=(16,), batch_size=16)
    results = prepare(tmp_path, LONELY, problem=problem, salt=SALT).run(Watcher())
    why = "round 1: its fork server ended while it ran: a stage must leave other processes alone"
    assert results.stages[0].retries == [why]
    told = [notice.text for notice in notices(results, rows=False)]
    assert f"kills-its-fork-server was repeated in a newly started process. {why[0].upper()}{why[1:]}." in told


def test_a_rank_that_works_while_it_loads_works_untimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.engine.stage._too_few_gpus", lambda problem: "")  # its ranks are on the CPU
    source = "tests.planted_ranks:LOADS_LONG"
    with judged_times():
        assert_failed_by(run(tmp_path, source, gpus=2, validate_every=0)[source], UNTIMED_WORK)


def test_only_the_salt_catches_training_while_preparing(tmp_path: Path) -> None:
    source = "tests.cheats.frauds:TRAINS_WHILE_PREPARING"
    # Without a salt, the parameters are predictable, but for those of late epochs.
    failed = {one.what for one in run(tmp_path, source, salt=0)[source].checks if not one.passed}
    assert {what for what in failed - TIME_CHECKS if not what.startswith("late epoch")} == set()


def test_a_jax_stage_that_does_not_wait_works_untimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    judge_in_this_process(monkeypatch)
    with judged_times():
        stage = run(tmp_path, JAX_UNWAITED, validate_every=0, metrics_every=3)[JAX_UNWAITED]  # never due
    assert_failed_by(stage, UNTIMED_WORK)


@pytest.mark.alone
def test_a_jax_stages_metrics_are_waited_for_inside_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    judge_in_this_process(monkeypatch)
    with judged_times():
        stage = run(tmp_path, JAX_UNWAITED, validate_every=0, epochs=4, metrics_every=4)[JAX_UNWAITED]
    assert UNTIMED_WORK not in [check.what for check in stage.checks if not check.passed]
    assert len([check for check in stage.checks if check.what == "loss curve"]) == 1
