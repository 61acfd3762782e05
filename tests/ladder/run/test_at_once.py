"""Stages side by side, verified as usual and never timed; and stages that train on several ranks, on the CPU."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from common.blas import blas_threads
from common.errors import UsageError
from common.ranks import RankError
from ladder.measure.protocol import RESULT, Job, JobResult, decoded, write_result
from ladder.measure.timing import Plan
from ladder.measure.worker import leave_loss
from ladder.options.run_options import RunOptions
from ladder.processes import worker_pool
from ladder.processes.worker_pool import WorkerPool
from ladder.records.run import load
from ladder.run import runner
from tests.ladder.harness import NUMPY, Watcher, prepare, small_dataset, small_problem
from tests.ladder.processes.test_compilers import COMPILES, builds, most_at_once
from tests.ladder.run.test_runner import FAULTS


@pytest.mark.parametrize("at_once", [2])
def test_stages_run_side_by_side_and_none_is_timed(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "cores_usable", lambda: 1)  # so that the stages compile themselves
    (tmp_path / "compiled").mkdir()
    monkeypatch.setenv("COMPILED", str(tmp_path / "compiled"))
    watcher = Watcher()
    results = prepare(tmp_path, *COMPILES, rounds=2, at_once=at_once, remeasure=2).run(watcher)
    names = [stage.name for stage in results.stages]
    assert most_at_once({name: builds(tmp_path, f"{name}.1")[0][1:] for name in names}) == at_once
    assert sorted(watcher.finished) == sorted((name, "passed", "not timed") for name in names * 2)
    for stage in results.stages:
        assert (stage.status, stage.timing, stage.set_aside) == ("passed", None, [])
        assert [(process.beside, process.pace_s) for process in stage.processes] == [(at_once - 1, None)] * 2
        assert not [check for check in stage.checks if "timer" in check.what]
    assert load(tmp_path) == results


def test_the_budget_does_not_cut_untimed_runs(tmp_path: Path) -> None:
    (stage,) = prepare(tmp_path, NUMPY, at_once=2, repeats=3, budget_s=1e-6).run(Watcher()).stages
    assert (stage.status, [len(process.runs_s) for process in stage.processes]) == ("passed", [3])


def test_each_process_has_its_share_of_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = blas_threads(), list[int | None]()
    monkeypatch.setattr(runner, "cores_usable", lambda: 3)

    class Sees(Watcher):
        def finish(
            self, stage: str, status: str, text: str, step_us: float | None = None, *, disturbed: bool = False
        ) -> None:
            super().finish(stage, status, text)
            seen.append(blas_threads())

    stages = prepare(tmp_path, NUMPY, "tests.planted:PRINTS", at_once=2).run(Sees()).stages
    assert all(stage.detail.endswith("1 thread") for stage in stages)  # not chosen by the stages themselves
    assert seen == [1, 1]
    assert blas_threads() == before


def test_faults_and_wrong_gradients_are_caught_side_by_side(tmp_path: Path) -> None:
    sources = [f"tests.planted:{name}" for name in FAULTS]
    stages = prepare(tmp_path, *sources, "tests.cheats.defects:GRADIENT", NUMPY, at_once=4).run(Watcher()).stages
    assert [stage.reason for stage in stages[: len(FAULTS)]] == list(FAULTS.values())
    assert [stage.status for stage in stages[len(FAULTS) :]] == ["failed", "passed"]
    assert not list(tmp_path.glob("scratch-*"))


def test_a_hanging_stage_is_killed_while_others_continue(tmp_path: Path) -> None:
    watcher = Watcher()
    stages = prepare(tmp_path, "tests.planted:HANGS", NUMPY, at_once=2, timeout_s=8.0).run(watcher).stages
    assert [stage.reason for stage in stages] == ["no answer within 8 s (--timeout); see logs/hangs.1.log", None]
    assert watcher.notes.count("hangs.1: no answer for 1.6 s; it is ended after 8 s (--timeout)") == 1


def test_a_resumed_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    first.mkdir()
    again.mkdir()
    whole = prepare(first, NUMPY, "tests.planted:PRINTS", rounds=2, at_once=2).run(Watcher())
    one = replace(whole.stages[0], processes=whole.stages[0].processes[:1])
    cut = replace(whole, stages=[one, whole.stages[1]])
    watcher = Watcher()
    stages = prepare(again, NUMPY, "tests.planted:PRINTS", known=cut).run(watcher).stages
    assert watcher.finished == [("numpy", "passed", "not timed")]
    assert [len(stage.processes) for stage in stages] == [2, 2]


def test_leaving_the_pool_kills_running_workers(tmp_path: Path) -> None:
    small_dataset().save(tmp_path / "dataset")
    plan = Plan(1, 1, 0)
    job = Job("tests.planted:HANGS", small_problem(), str(tmp_path / "dataset"), 0, [], plan, None, None)
    with WorkerPool({"one": job, "two": job, "three": job}, 2, tmp_path, tmp_path / "logs", 60.0) as workers:
        running = [one.process for one in workers._running]
        assert [process.has_ended() for process in running] == [False, False]
    assert all(process.has_ended() for process in running)
    assert list(workers) == []


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"precision": 0.01}, "--precision"),
        ({"profile": ["cupti"]}, "--profile"),
        ({"lock_clocks": 1500}, "--lock-clocks"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, object], option: str) -> None:
    with pytest.raises(UsageError, match=f"--at-once 2: measures no times, which {option} needs"):
        RunOptions(at_once=2, **settings)  # type: ignore[arg-type]


def test_a_fault_of_a_rank_ends_all_and_costs_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARTED_BY", str(tmp_path))  # all processes of the run inherit it
    sources = [f"tests.planted_ranks:{name}" for name in ("RIGHT", "FAILS", "DIES", "STOPS")]
    problem = small_problem(batch_size=31, gpus=2)
    right, fails, dies, stops, numpy = prepare(tmp_path, *sources, NUMPY, problem=problem).run(Watcher()).stages
    (hangs,) = prepare(tmp_path, "tests.planted_ranks:HANGS", problem=problem, timeout_s=6.0).run(Watcher()).stages
    assert (right.status, right.reason, right.detail) == ("passed", None, "2 GPUs")
    assert (numpy.status, numpy.reason) == ("passed", None)
    assert {fails.status, dies.status, stops.status, hangs.status} == {"crashed"}
    assert fails.retries == dies.retries == stops.retries == []  # no fork server is to blame
    assert stops.reason == "RankError: rank 1 was stopped by SIGSTOP; see logs/rank-stops.1.log"
    assert str(fails.reason).startswith("RankError: rank 1: ValueError: the kernel said no (")
    assert str(dies.reason).startswith("RankError: rank 1 has ended (")
    assert str(hangs.reason).startswith("no answer within 6 s (--timeout)")
    assert not [command for command in left_of(tmp_path) if "common.ranks" in command]


def test_a_rank_that_is_lost_after_all_is_measured_costs_nothing(tmp_path: Path) -> None:
    leave_loss(tmp_path, RankError("gone"))
    assert decoded((tmp_path / RESULT).read_bytes()).error == "RankError: gone"
    write_result(tmp_path, JobResult(profiling=True))
    leave_loss(tmp_path, RankError("gone"))
    assert decoded((tmp_path / RESULT).read_bytes()).profiling


def left_of(folder: Path) -> list[str]:
    """The commands of processes that still run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"STARTED_BY={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found
