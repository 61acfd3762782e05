"""Stages that are profiled, in their process and under Nsight Systems."""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ladder.measure import measurement
from ladder.measure.profiled import OwnProfile
from ladder.profile import cupti
from ladder.profile.trace import Trace
from ladder.records.profile import Split
from ladder.records.run import Process, Results, StageResult, load
from ladder.run import orders, session
from ladder.run.bench import Bench
from ladder.run.stage_run import StageRun
from tests.ladder.harness import Watcher, prepare
from tests.ladder.in_process import judge_in_this_process
from tests.ladder.processes.test_held_workers import MARKING, overlap, spans
from tests.streams import is_running

# Runs a worker with a stand-in for CuPy, and copies a report.
PROGRAM = """#!/bin/sh
echo $$ >> HERE/processes
case "$1" in
profile)
    while [ "$1" != -o ]; do shift; done
    stage=$(basename "$2") report="$2.nsys-rep"; shift 2
    STAGE=$stage PYTHONPATH=HERE "$@" || exit $?
    FAULT
    cp HERE/report "$report" ;;
export) cp "$5" "${4#--output=}" ;;
esac
"""
CUPY = """
import os, time
begin = None
def start():
    global begin
    begin = time.monotonic()
    if os.environ["STAGE"] == os.environ.get("HANGS"):
        time.sleep(1000)
def stop():
    os.write(1, f"recorded {begin} {time.monotonic()}\\n".encode())
def RangePush(name): pass
def RangePop(): pass
"""
# No report is written before all four stages were recorded.
BESIDE = """touch HERE/recorded.$$
    for _ in $(seq 300); do [ $(ls HERE | grep -c recorded) = 4 ] && break; sleep 0.1; done
    [ $(ls HERE | grep -c recorded) = 4 ] || exit 3"""
Program = Callable[[str], None]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The program's folder."""
    there = tmp_path / "nsys"
    (there / "cupy" / "cuda").mkdir(parents=True)
    for module, text in {"": "", "cuda/": "", "cuda/nvtx": CUPY, "cuda/profiler": CUPY}.items():
        name = f"{module}__init__" if module in ("", "cuda/") else module
        (there / "cupy" / f"{name}.py").write_text(text)
    report(there, epochs=2)
    return there


@pytest.fixture
def program(here: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Makes the program, with something that happens before it writes a report; all stages seem to be on a GPU."""
    monkeypatch.setattr(StageRun, "needs_profile", lambda self, tool: self.status == "passed" and not self._profiles)
    monkeypatch.setattr(session, "side_by_side", lambda *_: 4)
    monkeypatch.setattr(Bench, "may_hold", lambda self, stage: True)
    monkeypatch.setattr("ladder.profile.nsys.find", lambda: here / "nsys")

    def write(fault: str) -> None:
        (here / "nsys").write_text(PROGRAM.replace("FAULT", fault or ":").replace("HERE", str(here)))
        (here / "nsys").chmod(0o755)

    write("")
    return write


def report(here: Path, epochs: int) -> None:
    """What the program exports."""
    (here / "report").unlink(missing_ok=True)
    with closing(sqlite3.connect(here / "report")) as database, database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT)")
        ranges = [(1000 * epoch, 1000 * epoch + 900, 59, f"epoch {epoch}") for epoch in range(epochs)]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL)", ranges)


def run(folder: Path, watcher: Watcher | None = None, **settings: Any) -> Results:
    return prepare(folder, *MARKING, profile=["nsys"], **settings).run(watcher or Watcher())


def assert_none_is_left(here: Path) -> None:
    assert not [pid for pid in (here / "processes").read_text().split() if is_running(int(pid))]


def test_stages_prepare_side_by_side_and_one_runs_at_a_time_while_reports_are_written(
    program: Program, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(BESIDE)
    monkeypatch.setenv("MEET", f"{tmp_path}")  # none goes on before all four prepare
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "marks.nsys-rep").write_text("an older run's")
    results = run(tmp_path)
    seen = {stage.name: spans(tmp_path, stage.name, "nsys") for stage in results.stages}
    prepared = [its[0] for its in seen.values()]
    assert all(overlap(one, other) for one in prepared for other in prepared)
    for name, its in seen.items():
        assert sorted(what for what, *_ in its if what != "chose") == ["prepared", "recorded", *["trained"] * 4]
        for span in its[1:]:
            others = [other for whose in seen if whose != name for other in seen[whose]]
            assert not any(overlap(span, other) for other in others)
    kept = {path.name for path in (tmp_path / "profiles").iterdir()}
    for stage in results.stages:
        (profile,) = stage.profiles
        assert (profile.tool, profile.epochs, stage.unprofiled) == ("nsys", [0, 1], {})
        assert f"{stage.name}.nsys-rep" in kept
    assert (tmp_path / "profiles" / "marks.nsys-rep").read_bytes() == (here / "report").read_bytes()
    assert load(tmp_path).stages == results.stages
    assert results.took_s["profiling by nsys"] > 0


LATE = "no answer within 8 s (--timeout)"


@pytest.mark.parametrize(
    ("faults", "hangs", "reasons"),
    [
        (("exit 7", "kill -9 $$", "exit 0"), "", ("exit code 7 after its result", "exit code 137 after its result",
                                                  "nsys left no report")),
        (("sleep 1000",), "marks-too", (LATE, LATE)),
    ],
)  # fmt: skip
def test_a_failure_costs_only_one_profile(
    program: Program, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: tuple[str, ...], hangs: str,
    reasons: tuple[str, ...],
) -> None:  # fmt: skip
    names = ("marks", "marks-too", "marks-as-well")
    program("\n".join(f'[ "$stage" != {name} ] || {fault}' for name, fault in zip(names, faults, strict=False)))
    monkeypatch.setenv("HANGS", hangs)  # in its turn
    stages = run(tmp_path, timeout_s=8.0).stages
    for stage, reason in zip(stages, reasons, strict=False):
        assert stage.unprofiled["nsys"].startswith(reason)
        assert (stage.status, stage.profiles) == ("passed", [])
    others = [(stage.status, len(stage.profiles), stage.unprofiled) for stage in stages[len(reasons) :]]
    assert others == [("passed", 1, {})] * (4 - len(reasons))
    assert_none_is_left(here)


def test_a_report_without_all_epochs_is_refused(program: Program, here: Path, tmp_path: Path) -> None:
    report(here, epochs=1)
    told = [stage.unprofiled for stage in run(tmp_path).stages]
    assert told == [{"nsys": "nsys recorded 1 whole epochs instead of 2"}] * 4


def test_ctrl_c_leaves_no_process_and_keeps_what_is_measured(program: Program, here: Path, tmp_path: Path) -> None:
    class Interrupts(Watcher):
        def finish(self, stage: str, status: str, text: str, *_: object, **__: object) -> None:
            if text.startswith("profiled"):
                raise KeyboardInterrupt

    program('[ "$stage" = marks ] || sleep 1000')
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Interrupts())
    assert_none_is_left(here)
    assert [len(stage.profiles) for stage in load(tmp_path).stages] == [1, 0, 0, 0]


def test_only_the_requested_stages_are_profiled(program: Program, tmp_path: Path) -> None:
    first = run(tmp_path, nsys_stages=["marks"])
    assert [len(stage.profiles) for stage in first.stages] == [1, 0, 0, 0]
    known = replace(first, settings=replace(first.settings, nsys_stages=None))
    watcher = Watcher()
    rest = prepare(tmp_path, *MARKING, known=known).run(watcher)
    assert [len(stage.profiles) for stage in rest.stages] == [1] * 4
    assert [name for name, *_ in watcher.tries] == [f"{stage.name} under nsys" for stage in rest.stages[1:]]


def profiled(folder: Path, name: str, rounds: int = 1, timeout_s: float = 60.0) -> StageResult:
    runner = prepare(folder, f"tests.planted:{name}", profile=["cupti"], rounds=rounds, timeout_s=timeout_s)
    (stage,) = runner.run(Watcher()).stages
    return stage


def own_step_us(stage: StageResult, process: Process) -> float:
    assert stage.timing is not None
    return statistics.median(process.runs_s) / stage.timing.epochs / stage.timing.steps_per_epoch * 1e6


def test_each_process_has_its_own_split_and_the_stage_has_their_mean(tmp_path: Path) -> None:
    stage = profiled(tmp_path, "PROFILED", rounds=3)
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
    assert load(tmp_path).stages == [stage]


def test_slow_profiling_covers_only_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "PROFILE_LIMIT_S", 0.0)
    stage = profiled(tmp_path, "PROFILED", rounds=3)
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
    stage = profiled(tmp_path, "PROFILED")
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
    stage = profiled(tmp_path, name, timeout_s=4.0 if "HANGS" in name else 60.0)
    assert (stage.status, stage.reason, stage.profile) == ("passed", None, None)
    assert stage.unprofiled == {"cupti": reason}
    assert stage.timing is not None
    assert any(check.what.startswith("first update") for check in stage.checks)


def test_a_stage_that_dies_after_its_profile_has_crashed(tmp_path: Path) -> None:
    stage = profiled(tmp_path, "DIES_ON_CLOSING")
    assert (stage.status, stage.reason) == (
        "crashed",
        "killed by SIGSEGV while closing; see logs/dies-on-closing.1.log",
    )
