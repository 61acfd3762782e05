"""The scheduler: interleaved rounds, faulty stages, and resuming a killed run."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from common.problem import Problem
from ladder.measure import measurement, timing
from ladder.measure.timing import TimedRun
from ladder.records.run import StageResult, load
from ladder.run import judge, jury, preflight
from ladder.verify import oracle_runs, short_runs
from ladder.verify.oracle_runs import SOONER, compute_all, compute_on_gpu, why_not_on_gpu
from ladder.verify.short_runs import ShortRun
from tests.common.strict_arrays import Device
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem

ROOT = Path(__file__).parents[3]


def line_of(text: str) -> str:
    """The line of tests/planted.py with this text, as a reason names it."""
    lines = (ROOT / "tests" / "planted.py").read_text().splitlines()
    return f"planted.py, line {next(number for number, line in enumerate(lines, 1) if text in line)}"


FAULTS = {
    "KILLED": "killed by SIGKILL; see logs/killed.1.log",
    "LEAVES": "exit code 7 and no result; see logs/leaves.1.log",
    "OUT_OF_MEMORY": f"out of memory: Unable to allocate 9 TiB ({line_of('9 TiB')}); see logs/out-of-memory.1.log",
    "RAISES": f"RuntimeError: the kernel said no ({line_of('said no')}); see logs/raises.1.log",
    "SHAPES": "its parameters cannot be checked: parameters of shapes (4, 36) and (4,); see logs/shapes.1.log",
}


@pytest.fixture(scope="module")
def after_faults(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, StageResult], Path]:
    folder = tmp_path_factory.mktemp("faults")
    sources = [f"tests.planted:{name}" for name in (*FAULTS, "PRINTS", "NEEDY")]
    results = prepare(folder, *sources, NUMPY).run(Watcher())
    return {stage.name.replace("-", "_").upper(): stage for stage in results.stages}, folder


def test_the_reason_of_a_wrong_stage_quotes_what_it_printed_and_it_is_not_measured_again(tmp_path: Path) -> None:
    watcher = Watcher()
    (stage,) = prepare(tmp_path, "tests.planted:PRINTS_AND_ERRS", rounds=2).run(watcher).stages
    assert len(watcher.finished) == 1
    assert stage.status == "failed"
    assert str(stage.reason).startswith("first update, ")
    assert str(stage.reason).endswith("; it printed: \\x1b[31m ** On entry to SGEMM an illegal value")


def test_a_faulty_stage_is_recorded_with_its_reason_and_the_run_continues(
    after_faults: tuple[dict[str, StageResult], Path],
) -> None:
    stages, folder = after_faults
    for name, reason in FAULTS.items():
        assert (stages[name].status, stages[name].reason, stages[name].timing) == ("crashed", reason, None)
    assert stages["NUMPY"].status == "passed"
    assert stages["PRINTS"].status == "passed"
    assert b"rubbish" in (folder / "logs" / "prints.1.log").read_bytes()
    assert stages["NEEDY"].status == "skipped"
    assert load(folder).stages == list(stages.values())


def test_the_runs_time_is_recorded_by_activity_and_where_its_oracle_was_trained(
    after_faults: tuple[dict[str, StageResult], Path],
) -> None:
    results = load(after_faults[1])
    assert results.oracle is not None
    assert results.oracle.device == ("cpu" if results.oracle.not_on_gpu else "gpu")
    assert results.oracle.not_on_gpu in (why_not_on_gpu(), SOONER)
    assert {"training the oracle", "importing libraries", "stages' processes", "checking"} == set(results.took_s)
    assert all(seconds > 0 for seconds in results.took_s.values())
    assert sum(results.took_s.values()) < results.seconds  # no time is counted twice
    each = [process.took_s["checking"] for stage in results.stages for process in stage.processes]
    assert 0 < sum(each) <= results.took_s["checking"]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_oracle_computes_the_first_updates_once_for_all_stages(
    on_gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(problem: Problem, batches: int, *rest: Any, **more: Any) -> ShortRun:
        if more.get("xp", np) is np:
            assert (more.get("trained") is not None) == (on_gpu and "xp" in more)
            made.append(batches)
        return ShortRun(problem, batches, *rest, **more)

    if on_gpu:
        monkeypatch.setattr(jury, "compute_all", compute_all)
        monkeypatch.setattr(oracle_runs, "compute_in_gpus_process", compute_on_gpu)
        monkeypatch.setitem(sys.modules, "common.cuda.array_module", SimpleNamespace(ArrayModule=Device))
    for module in (judge, short_runs):
        monkeypatch.setattr(module, "ShortRun", counted)
    stages = prepare(tmp_path, NUMPY, "tests.planted:PRINTS").run(Watcher()).stages
    assert [stage.status for stage in stages] == ["passed", "passed"]
    shared = [1, 3, 3, 3, 16, 16]  # an epoch has sixteen steps; repeated, and from trained parameters
    assert made == [*shared, 3, 16, 3]  # the epoch from zeros; and the late epochs, each of one stage


def test_a_slow_stage_is_measured_over_fewer_epochs_and_marked_as_shortened(tmp_path: Path) -> None:
    problem = small_problem(epochs=6, metrics_every=1)
    results = prepare(tmp_path, "tests.planted:SLOW", problem=problem, rounds=2, budget_s=2.0).run(Watcher())
    (stage,) = results.stages
    assert stage.status == "passed"
    assert stage.timing is not None
    assert stage.timing.shortened
    assert 2 <= stage.timing.epochs < 6  # each of two processes has 1 s, an epoch takes 0.2 s or more
    assert {len(process.runs_s) for process in stage.processes} == {1}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("second_s", "shortened"), [(0.29, False), (0.31, True)])
def test_one_late_epoch_does_not_cut_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second_s: float, shortened: bool
) -> None:
    seconds, begun_at = iter([9.0, second_s]), []  # of the cold epoch, and of the one from zeros

    def timed_run(*arguments: Any, **more: Any) -> TimedRun:
        begun_at.append(more.get("first_epoch"))
        return dataclasses.replace(timing.timed_run(*arguments, **more), seconds=next(seconds, 1e-4))

    monkeypatch.setattr(measurement, "timed_run", timed_run)
    problem = small_problem(epochs=6, metrics_every=3)
    (stage,) = prepare(tmp_path, NUMPY, problem=problem, budget_s=0.05).run(Watcher()).stages
    assert stage.timing is not None
    assert (stage.timing.shortened, begun_at[2] == 2) == (shortened, not shortened)  # metrics are due in the third


def test_rounds_are_interleaved_and_a_resumed_run_measures_only_missing_ones(tmp_path: Path) -> None:
    watcher = Watcher()
    whole = prepare(tmp_path, NUMPY, "tests.planted:PRINTS", rounds=2, repeats=3).run(watcher)
    assert [name for name, _, _ in watcher.finished] == ["numpy", "prints", "numpy", "prints"]
    assert watcher.jobs == 4
    numpy, prints = whole.stages
    timing = numpy.timing
    assert timing is not None
    assert (len(timing.runs_s), len(timing.warmups_s), timing.steps_per_epoch) == (6, 2, 16)
    assert not timing.shortened
    cut = replace(prints, processes=prints.processes[:1])
    watcher = Watcher()
    known = replace(whole, stages=[numpy, cut])
    again = prepare(tmp_path, NUMPY, "tests.planted:PRINTS", known=known).run(watcher)
    assert [name for name, _, _ in watcher.finished] == ["prints"]
    assert again.stages[0] == numpy
    assert [[process.round for process in stage.processes] for stage in again.stages] == [[0, 1]] * 2


def test_a_stage_that_does_not_fit_the_problem_is_skipped_with_an_alternative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "missing", lambda needs: None)  # a machine that lacks nothing
    deep = small_problem(hidden=(8,) * 5)
    (stage,) = prepare(tmp_path, "stages.persistent.persistent_cluster:STAGE", problem=deep).run(Watcher()).stages
    assert stage.status == "skipped"
    assert stage.reason == "5 hidden layers (8,8,8,8,8) exceed the limit of 4. Closest rung here: `persistent-grid`."


def test_whether_a_stage_takes_several_gpus_is_recorded_also_of_older_runs(tmp_path: Path) -> None:
    sources = "stages.devices.torch_ddp:FLOAT32", "stages.devices.ddp_peer:STAGE", NUMPY
    prepare(tmp_path, *sources).run(Watcher())
    recorded = load(tmp_path)
    assert [(stage.name, stage.takes_gpus) for stage in recorded.stages[:2]] == [
        ("torch-ddp", True),
        ("ddp-peer", True),
    ]
    assert not recorded.stages[2].takes_gpus
    raw = (tmp_path / "results.json").read_text().replace(',"takes_gpus":true', "")
    (tmp_path / "results.json").write_text(raw)
    assert [stage.takes_gpus for stage in load(tmp_path).stages] == [False, True, False]  # by the group of that time


@pytest.mark.parametrize(
    ("source", "instead"),
    [("tiles.dependent_launch", "fused-bias"), ("persistent.persistent_cluster", "cuda-graph")],
)
def test_a_rung_for_newer_gpus_is_skipped_with_the_rung_below(
    source: str, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_old = "needs sm_90 or newer, this GPU is sm_86"
    monkeypatch.setattr(preflight, "missing", lambda needs: too_old if "sm_90" in needs else None)
    (stage,) = prepare(tmp_path, f"stages.{source}:STAGE").run(Watcher()).stages
    assert (stage.status, stage.reason) == ("skipped", f"{too_old}; try {instead}")


def test_a_rung_that_also_lacks_a_package_names_only_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "missing", lambda needs: "CuPy is not installed" if "cuda" in needs else None)
    (stage,) = prepare(tmp_path, "stages.tiles.dependent_launch:STAGE").run(Watcher()).stages
    assert stage.reason == "CuPy is not installed"
