"""Profiling stages after their timed runs: what the results record, and what a failing profiler costs."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.measure import measurement
from ladder.measure.profiled import OwnProfile
from ladder.profile import cupti
from ladder.profile.trace import Trace
from ladder.records.profile import Split
from ladder.records.run import Process, StageResult, load
from ladder.run import orders
from tests.ladder.harness import Watcher, prepare
from tests.ladder.in_process import judge_in_this_process


def run(folder: Path, name: str, rounds: int = 1, timeout_s: float = 60.0) -> StageResult:
    runner = prepare(folder, f"tests.planted:{name}", profile=["cupti"], rounds=rounds, timeout_s=timeout_s)
    (stage,) = runner.run(Watcher()).stages
    return stage


def own_step_us(stage: StageResult, process: Process) -> float:
    assert stage.timing is not None
    return statistics.median(process.runs_s) / stage.timing.epochs / stage.timing.steps_per_epoch * 1e6


def test_each_process_has_its_own_split_and_the_stage_has_their_mean(tmp_path: Path) -> None:
    stage = run(tmp_path, "PROFILED", rounds=3)
    assert (stage.status, stage.unprofiled) == ("passed", {})
    splits = []
    for process in stage.processes:
        assert process.seen is not None
        assert process.split is not None
        assert process.split.total_us == pytest.approx(own_step_us(stage, process))
        splits.append(process.split)
    assert len({split.total_us for split in splits}) == 3
    profile = stage.profile
    assert profile is not None
    assert profile.processes == 3
    assert profile.split.kernels_us == pytest.approx(statistics.mean(split.kernels_us for split in splits))
    assert profile.split.total_us == pytest.approx(profile.plain_step_us)
    assert profile.plain_step_us == pytest.approx(statistics.mean(own_step_us(stage, one) for one in stage.processes))
    assert profile.seen.total_us == pytest.approx(profile.step_us)
    assert [kernel.name for kernel in profile.kernels] == ["gemm_naive"]
    assert [path.name for path in (tmp_path / "profiles").iterdir()] == ["profiled.cupti.trace.json.gz"]
    assert load(tmp_path).stages == [stage]


def test_slow_profiling_covers_only_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "PROFILE_LIMIT_S", 0.0)
    stage = run(tmp_path, "PROFILED", rounds=3)
    assert [process.seen is None for process in stage.processes] == [False, True, True]
    assert stage.unprofiled == {}
    assert stage.profile is not None
    assert stage.profile.processes == 1


def test_a_resumed_run_keeps_the_profiles_of_its_first_rounds(tmp_path: Path) -> None:
    whole = prepare(tmp_path, "tests.planted:PROFILED", profile=["cupti"], rounds=2).run(Watcher())
    (stage,) = whole.stages
    cut = replace(whole, stages=[replace(stage, processes=stage.processes[:1])])
    (again,) = prepare(tmp_path, "tests.planted:PROFILED", known=cut).run(Watcher()).stages
    splits = [process.split for process in again.processes]
    assert splits[0] == stage.processes[0].split
    assert again.profile is not None
    assert again.profile.split == Split.mean([split for split in splits if split is not None])
    assert again.profile.processes == 2


@pytest.mark.parametrize(("limit_s", "seen"), [(60.0, ((0, 1), True)), (0.0, ((0,), False))])
def test_a_long_epoch_is_profiled_alone_and_without_a_warm_up(
    limit_s: float, seen: tuple[tuple[int, ...], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[tuple[int, ...], bool]] = []
    genuine = OwnProfile.record

    def record(self: OwnProfile, *, warm_up: bool) -> Trace:
        asked.append((self.sample.epochs, warm_up))
        return genuine(self, warm_up=warm_up)

    judge_in_this_process(monkeypatch)
    monkeypatch.setattr(OwnProfile, "record", record)
    monkeypatch.setattr(measurement, "PROFILED_S", {"gpu": limit_s})
    monkeypatch.setattr(measurement, "WARM_UP_S", limit_s)
    for kept in ("available", "record"):  # the stage replaces them
        monkeypatch.setattr(cupti, kept, getattr(cupti, kept))
    stage = run(tmp_path, "PROFILED")
    assert stage.profile is not None
    assert (asked, stage.profile.epochs) == ([seen], list(seen[0]))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("PROFILER_DIES", "CUPTI: killed by SIGSEGV"),
        ("PROFILER_REFUSES", "PermissionError: not for you"),
        ("PROFILER_HANGS", "CUPTI: no answer within 4 s (--timeout)"),
    ],
)
def test_a_failing_profiler_costs_only_the_profile(tmp_path: Path, name: str, reason: str) -> None:
    stage = run(tmp_path, name, timeout_s=4.0 if "HANGS" in name else 60.0)
    assert (stage.status, stage.reason, stage.profile) == ("passed", None, None)
    assert stage.unprofiled == {"cupti": reason}
    assert stage.timing is not None
    assert any(check.what.startswith("first update") for check in stage.checks)


def test_a_stage_that_dies_after_its_profile_has_crashed(tmp_path: Path) -> None:
    stage = run(tmp_path, "DIES_ON_CLOSING")
    assert (stage.status, stage.reason) == (
        "crashed",
        "killed by SIGSEGV while closing; see logs/dies-on-closing.1.log",
    )
