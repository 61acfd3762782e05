"""The intended check catches every cheat, and correct stages pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.records.run import StageResult
from stages.engine.stage import Stage
from tests.cheats import defects, frauds
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem

FIRST, ZEROS = "first update, weight[0]", "epoch from zeros, parameters"
UNTIMED_WORK = "work outside of the timer, as a share of the run"
DISPLACEMENT, SHORTEST_RUN = "way from the first parameters", "timed runs, shortest way by the judged one's"
REPLACED = "TamperedError: the stage replaced {}, which measures it"

FAILED_BY = {
    "defects:NO_OP": FIRST,
    "defects:FEWER_STEPS": ZEROS,
    "defects:LAST_BATCH_REPEATED": ZEROS,
    "defects:SMALLER_BATCHES": FIRST,
    "defects:FIRST_BATCH": "first 3 updates, weight[0]",
    "defects:OTHER_ORDER": "first 3 updates, weight[0]",
    "defects:TWICE": FIRST,
    "defects:ONE_EPOCH_ONLY": "loss curve",
    "defects:NO_BIAS": "first update, bias[0]",
    "defects:GRADIENT": "first update, scale",
    "defects:RATE_FOLDED_WRONG": "first update, scale",
    "defects:LABELS": FIRST,
    "defects:TRANSFORMED": FIRST,
    "defects:LOWER_PRECISION": FIRST,
    "defects:MOMENTUM": "first 3 updates, scale",
    "defects:NAN": FIRST,
    "defects:INF": "first update, bias[0]",
    "defects:NAN_METRICS": "finite parameters and metrics",
    "defects:LEFT_BEHIND": FIRST,
    "defects:OLD_PARAMS": ZEROS,
    "frauds:TRAINS_WHILE_LOADING": UNTIMED_WORK,
    "frauds:TRAINS_WHILE_READ": UNTIMED_WORK,
    "frauds:TRAINS_BEHIND_THE_FENCE": UNTIMED_WORK,
    "frauds:TRAINS_WHILE_PREPARING": DISPLACEMENT,
    "frauds:REPLAYS": DISPLACEMENT,
    "frauds:TRAINS_LAST_RUN_ONLY": SHORTEST_RUN,
    "frauds:READS_THE_ANSWER": DISPLACEMENT,
    "frauds:HELPER_KILLED": DISPLACEMENT,
    "frauds:MADE_UP_METRICS": "first update, loss",
    "frauds:NO_METRICS": "metrics left out, of those that are due",
    "frauds:MADE_UP_VALIDATION": "validation of the final parameters, loss",
    "frauds:VALIDATES_A_FEW": "validation of the final parameters, loss",
    "frauds:VALIDATES_ONCE": "validation of the final parameters, loss",
}
REFUSED_FOR = {
    "frauds:CLOCK": REPLACED.format("time.perf_counter"),
    "frauds:FENCE": REPLACED.format("clock.fence"),
    "frauds:FENCE_INSIDE": REPLACED.format("clock.fence"),
    "frauds:METHOD": REPLACED.format("Measurement._params_of"),
    "frauds:REPORTS_AND_LEAVES": "exit code 3 after its result; see logs/reports-and-leaves.1.log",
}
HONEST = (NUMPY, "tests.cheats.frauds:CLOCK_BETWEEN")
SALT = 12345
# In softmax regression, the comparison with the oracle's final parameters catches these.
LOGISTIC = {name: "final parameters" for name, reason in FAILED_BY.items() if reason in (DISPLACEMENT, "loss curve")}
LOGISTIC |= {name: "validation curve, loss" for name in FAILED_BY if "VALIDAT" in name}
LOGISTIC |= {name: FAILED_BY[name] for name in ("defects:GRADIENT", "defects:FEWER_STEPS", "frauds:NO_METRICS")}


def run(folder: Path, *sources: str, hidden: tuple[int, ...] = (16,), salt: int = SALT) -> dict[str, StageResult]:
    # 32 steps: more than first updates are checked on
    problem = small_problem(hidden=hidden, batch_size=16, validate_every=1)
    results = prepare(folder, *sources, problem=problem, salt=salt).run(Watcher())
    return dict(zip(sources, results.stages, strict=True))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    cheats = [f"tests.cheats.{name}" for name in (*FAILED_BY, *REFUSED_FOR)]
    return run(tmp_path_factory.mktemp("cheats"), *HONEST, *cheats)


@pytest.fixture(scope="module")
def judged_logistic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    cheats = [f"tests.cheats.{name}" for name in LOGISTIC]
    return run(tmp_path_factory.mktemp("logistic"), NUMPY, *cheats, hidden=())


def test_every_planted_cheat_is_listed_and_there_are_at_least_twenty() -> None:
    planted = {
        f"{module.__name__.rpartition('.')[2]}:{name}"
        for module in (defects, frauds)
        for name, value in vars(module).items()
        if isinstance(value, Stage)
    }
    assert planted == {*FAILED_BY, *REFUSED_FOR, "frauds:CLOCK_BETWEEN"}
    assert len(FAILED_BY) + len(REFUSED_FOR) >= 20


@pytest.mark.parametrize("name", FAILED_BY)
def test_each_cheat_fails_the_intended_check(judged: dict[str, StageResult], name: str) -> None:
    stage = judged[f"tests.cheats.{name}"]
    assert_failed_by(stage, FAILED_BY[name])


@pytest.mark.parametrize("name", LOGISTIC)
def test_each_cheat_fails_the_intended_check_in_softmax_regression(
    judged_logistic: dict[str, StageResult], name: str
) -> None:
    assert_failed_by(judged_logistic[f"tests.cheats.{name}"], LOGISTIC[name])
    assert judged_logistic[NUMPY].status == "passed"


def assert_failed_by(stage: StageResult, what: str) -> None:
    assert what in [check.what for check in stage.checks if not check.passed], stage.reason
    assert (stage.status, stage.timing) == ("failed", None)
    assert stage.reason


@pytest.mark.parametrize("name", REFUSED_FOR)
def test_a_process_with_a_tampered_harness_counts_as_crashed(judged: dict[str, StageResult], name: str) -> None:
    stage = judged[f"tests.cheats.{name}"]
    assert (stage.status, stage.reason, stage.timing) == ("crashed", REFUSED_FOR[name], None)


@pytest.mark.parametrize("source", HONEST)
def test_correct_stages_pass(judged: dict[str, StageResult], source: str) -> None:
    stage = judged[source]
    assert (stage.status, stage.reason) == ("passed", None)
    assert stage.timing is not None
    assert [check for check in stage.checks if not check.passed] == []


def test_a_temporarily_replaced_clock_changes_no_time(judged: dict[str, StageResult]) -> None:
    timing = judged["tests.cheats.frauds:CLOCK_BETWEEN"].timing
    assert timing is not None
    assert timing.epoch_s.min > 0.05


def test_an_error_of_one_per_cent_is_far_beyond_its_limit(judged: dict[str, StageResult]) -> None:
    stage = judged["tests.cheats.defects:GRADIENT"]
    (scale,) = [check for check in stage.checks if check.what == "first update, scale"]
    assert scale.error == pytest.approx(0.01, rel=0.01)
    assert scale.limit < 1e-4


def test_only_the_salt_catches_training_while_preparing(tmp_path: Path) -> None:
    source = "tests.cheats.frauds:TRAINS_WHILE_PREPARING"
    assert run(tmp_path, source, salt=0)[source].status == "passed"  # without a salt, the parameters are predictable
