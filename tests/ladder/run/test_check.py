"""A check says of a stage what a run's verification says, and times nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import UsageError
from common.oracle import Oracle, OracleEpoch
from ladder.run import jury
from ladder.run.bench import Bench
from ladder.run.check import OVERWROTE, Checker
from ladder.run.stage_run import StageRun
from ladder.verify.failed_checks import first_cause, what_to_look_at
from ladder.verify.oracle_runs import compute_on_gpu
from ladder.verify.short_runs import ShortRun
from stages.registry import load_entry
from tests.cheats.test_caught import BEGIN_LATE, FAILED_BY, LATER
from tests.common.strict_arrays import Device
from tests.ladder.harness import NUMPY, small_dataset, small_problem

# One defect for each kind of check, on the problems where tests/cheats catches them.
FROM_THE_FIRST = (
    "defects:LABELS", "defects:GRADIENT", "defects:FIRST_BATCH", "defects:ONE_STEP_IN_EIGHT_SKIPPED",
    "defects:SHORT_BATCH", "defects:METRICS_AFTERWARDS",
)  # fmt: skip
LATER_ON = (
    "defects:LATER_MOMENTUM", "defects:HALF_RATE_WITH_METRICS", "defects:NAN_METRICS_WHEN_DUE",
    "defects:BFLOAT16_AS_TF32", "defects:EIGHT_BITS_LATE", "defects:LOSS_OF_A_WINDOW", "defects:ACCURACY_ROUNDED_UP",
)  # fmt: skip
NO_METRICS = {"frauds:NO_METRICS": "trained parameters, metrics left out"}


class Checks:
    """Stages that were checked on one problem."""

    def __init__(self, folder: Path, **problem: object) -> None:
        self._bench = Bench(folder, 60.0)
        self._bench.scratch = folder
        self._bench.note = print
        self._checker = Checker(self._bench, small_problem(**problem), small_dataset(), ["float32"])

    def of(self, source: str) -> StageRun:
        stage_run = StageRun(load_entry(source), 1)
        self._checker.check(stage_run)
        assert sorted(path.name for path in self._bench.scratch.iterdir()) == ["dataset", "logs", "trained.npy"]
        return stage_run


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Checks:
    return Checks(tmp_path_factory.mktemp("first"), hidden=(16,), batch_size=16)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Checks:
    folder = tmp_path_factory.mktemp("later")
    return Checks(folder, hidden=(64,), batch_size=16, learning_rate=0.5, metrics_every=10)


def test_a_right_stage_passes_every_check_and_has_no_time(first: Checks, later: Checks) -> None:
    for stage_run in (first.of(NUMPY), later.of(NUMPY)):
        found = stage_run.result()
        assert (found.status, found.reason, found.timing, found.processes) == ("passed", None, None, [])
        assert {one.what.partition(",")[0] for one in found.checks} == {
            "first update", "first 3 updates", "first 17 updates", "3 epochs of 3 batches", "3 epochs of 17 batches",
            "trained parameters", "late epoch of 3 batches", "epoch from zeros", "accuracy",
        }  # fmt: skip
        assert "epoch from zeros, loss" in [one.what for one in found.checks]
        assert not [one for one in found.checks if "timer" in one.what or "clock" in one.what]


@pytest.mark.parametrize("name", FROM_THE_FIRST)
def test_a_wrong_stage_fails_the_check_that_is_meant(first: Checks, name: str) -> None:
    assert_failed_by(first.of(f"tests.cheats.{name}"), FAILED_BY[name])


@pytest.mark.parametrize("name", [*LATER_ON, *NO_METRICS])
def test_a_stage_that_is_wrong_later_on_fails_the_check_that_is_meant(later: Checks, name: str) -> None:
    assert_failed_by(later.of(f"tests.cheats.{name}"), {**LATER, **BEGIN_LATE, **NO_METRICS}[name])


def assert_failed_by(stage_run: StageRun, what: str) -> None:
    checks = stage_run.result().checks
    failed = [one for one in checks if not one.passed]
    assert stage_run.status == "failed"
    assert what in [one.what for one in failed]
    assert all(what_to_look_at(one, checks) for one in failed)
    assert (stage_run.reason or "").endswith(f"; {first_cause(checks) or what_to_look_at(failed[0], checks)}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("defects:GRADIENT", "every first update is 1.01 times the expected one: look at the learning rate"),
        ("defects:NO_OP", "no parameter is updated"),
        ("defects:NO_BIAS", "bias[0] and bias[1] are not updated"),
        ("defects:BIAS_AT_TWICE_THE_RATE", "bias[0] and bias[1] are updated 2 times as far as expected"),
        ("defects:LABELS", ""),
        ("defects:METRICS_AFTERWARDS", ""),
    ],
)
def test_the_reason_names_the_one_cause_where_there_is_one(first: Checks, name: str, said: str) -> None:
    stage_run = first.of(f"tests.cheats.{name}")
    assert first_cause(stage_run.result().checks).startswith(said)
    assert bool(first_cause(stage_run.result().checks)) == bool(said)
    if said:
        assert (stage_run.reason or "").startswith("first update, ")
        assert f"; {said}" in (stage_run.reason or "")


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        ("tests.planted:RAISES", "crashed", "RuntimeError: the kernel said no (planted.py, line "),
        ("tests.planted:KILLED", "crashed", "killed by SIGKILL"),
        ("tests.planted:MISFIT", "skipped", "This GPU cannot run a cluster of 16 blocks."),
        ("tests.accidents:OVERWRITES_THE_DATA", "failed", f"it {OVERWROTE}"),
    ],
)
def test_a_stage_that_ends_otherwise_is_told_why(first: Checks, source: str, status: str, reason: str) -> None:
    stage_run = first.of(source)
    assert stage_run.status == status
    assert (stage_run.reason or "").startswith(reason)


def test_the_data_is_whole_again_after_a_stage_that_overwrote_it(tmp_path: Path) -> None:
    checks = Checks(tmp_path, batch_size=16)
    statuses = [checks.of(source).status for source in ("tests.accidents:OVERWRITES_THE_DATA", NUMPY)]
    assert statuses == ["failed", "passed"]


def test_a_gpu_trains_what_stages_of_a_large_network_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jury, "LARGE", 0)
    monkeypatch.setattr(jury, "compute_in_gpus_process", compute_on_gpu)
    monkeypatch.setitem(sys.modules, "common.cuda.array_module", SimpleNamespace(ArrayModule=Device))
    checks, by_numpy, trained = Checks(tmp_path, hidden=(16,), batch_size=16), set[ShortRun](), ShortRun._trained

    def noted(run: ShortRun, oracle: Oracle) -> list[OracleEpoch]:
        by_numpy.add(run)
        return trained(run, oracle)

    monkeypatch.setattr(ShortRun, "_trained", noted)
    assert checks.of(NUMPY).status == "passed"
    assert len(by_numpy) == 1  # the late epoch, which no two stages share
    monkeypatch.setattr(Device, "product", lambda left, right: 1.001 * (left @ right))
    with pytest.raises(UsageError, match="is not NumPy's"):
        Checks(tmp_path / "wrong", hidden=(16,), batch_size=16)
