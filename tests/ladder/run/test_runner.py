"""The scheduler: interleaved rounds, faulty stages, and resuming a killed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.problem import Problem
from ladder.records.run import StageResult, load
from ladder.run import judge, preflight
from ladder.verify.oracle_runs import why_not_on_gpu
from ladder.verify.short_runs import ShortRun
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


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_stage_is_recorded_with_its_reason(
    after_faults: tuple[dict[str, StageResult], Path], name: str
) -> None:
    stage = after_faults[0][name]
    assert (stage.status, stage.reason, stage.timing) == ("crashed", FAULTS[name], None)


def test_a_hanging_stage_is_killed_and_recorded_with_its_reason(tmp_path: Path) -> None:
    (stage,) = prepare(tmp_path, "tests.planted:HANGS", timeout_s=2.0).run(Watcher()).stages
    told = "no answer within 2 s (--timeout); see logs/hangs.1.log"
    assert (stage.status, stage.reason, stage.timing) == ("crashed", told, None)


def test_the_reason_of_a_wrong_stage_quotes_what_it_printed(tmp_path: Path) -> None:
    (stage,) = prepare(tmp_path, "tests.planted:PRINTS_AND_ERRS", rounds=2).run(Watcher()).stages
    assert stage.status == "failed"
    assert str(stage.reason).startswith("first update, ")
    assert str(stage.reason).endswith("; it printed: \\x1b[31m ** On entry to SGEMM an illegal value")


def test_the_run_continues_after_faults(after_faults: tuple[dict[str, StageResult], Path]) -> None:
    stages, folder = after_faults
    assert stages["NUMPY"].status == "passed"
    assert stages["PRINTS"].status == "passed"
    assert b"rubbish" in (folder / "logs" / "prints.1.log").read_bytes()
    assert stages["NEEDY"].status == "skipped"
    assert load(folder).stages == list(stages.values())


def test_a_run_records_where_its_oracle_was_trained(after_faults: tuple[dict[str, StageResult], Path]) -> None:
    oracle = load(after_faults[1]).oracle
    assert oracle is not None
    assert oracle.device == ("cpu" if oracle.not_on_gpu else "gpu")
    assert oracle.not_on_gpu == why_not_on_gpu()


def test_the_runs_time_is_recorded_by_activity(after_faults: tuple[dict[str, StageResult], Path]) -> None:
    results = load(after_faults[1])
    assert {"training the oracle", "importing libraries", "stages' processes", "checking"} == set(results.took_s)
    assert all(seconds > 0 for seconds in results.took_s.values())
    assert sum(results.took_s.values()) < results.seconds  # no time is counted twice
    each = [process.took_s["checking"] for stage in results.stages for process in stage.processes]
    assert 0 < sum(each) <= results.took_s["checking"]


def test_rounds_are_interleaved_and_every_one_has_its_own_processes(tmp_path: Path) -> None:
    watcher = Watcher()
    results = prepare(tmp_path, NUMPY, "tests.planted:PRINTS", rounds=2, repeats=3).run(watcher)
    assert [name for name, _, _ in watcher.finished] == ["numpy", "prints", "numpy", "prints"]
    assert watcher.jobs == 4
    timing = results.stages[0].timing
    assert timing is not None
    assert (len(timing.runs_s), len(timing.warmups_s), timing.steps_per_epoch) == (6, 2, 16)
    assert not timing.shortened
    assert [process.round for process in results.stages[0].processes] == [0, 1]


def test_the_oracle_computes_the_first_updates_once_for_all_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(problem: Problem, batches: int, *rest: Any, **more: Any) -> ShortRun:
        made.append(batches)
        return ShortRun(problem, batches, *rest, **more)

    monkeypatch.setattr(judge, "ShortRun", counted)
    stages = prepare(tmp_path, NUMPY, "tests.planted:PRINTS").run(Watcher()).stages
    assert [stage.status for stage in stages] == ["passed", "passed"]
    shared = [1, 3, 3, 3, 16, 16]  # an epoch has sixteen steps; repeated, and from trained parameters
    assert made == [*shared, 3, 3]  # each stage's late epoch is its own


def test_a_slow_stage_is_measured_over_fewer_epochs_and_marked_as_shortened(tmp_path: Path) -> None:
    problem = small_problem(epochs=6, metrics_every=1)
    results = prepare(tmp_path, "tests.planted:SLOW", problem=problem, rounds=2, budget_s=2.0).run(Watcher())
    (stage,) = results.stages
    assert stage.status == "passed"
    assert stage.timing is not None
    assert stage.timing.shortened
    assert 2 <= stage.timing.epochs < 6  # each of two processes has 1 s, an epoch takes 0.2 s or more
    assert {len(process.runs_s) for process in stage.processes} == {1}


def test_a_failed_stage_is_not_measured_again(tmp_path: Path) -> None:
    watcher = Watcher()
    prepare(tmp_path, "tests.cheats.defects:NAN", rounds=3).run(watcher)
    assert len(watcher.finished) == 1


def test_a_resumed_run_measures_only_missing_rounds(tmp_path: Path) -> None:
    whole = prepare(tmp_path, NUMPY, "tests.planted:PRINTS", rounds=2).run(Watcher())
    numpy, prints = whole.stages
    cut = msgspec.structs.replace(
        whole, stages=[numpy, msgspec.structs.replace(prints, processes=prints.processes[:1])]
    )
    watcher = Watcher()
    again = prepare(tmp_path, NUMPY, "tests.planted:PRINTS", known=cut).run(watcher)
    assert [name for name, _, _ in watcher.finished] == ["prints"]
    assert again.stages[0] == numpy
    assert [process.round for process in again.stages[1].processes] == [0, 1]


SCRIPT = """
import sys
from pathlib import Path
from tests.ladder.harness import NUMPY, Watcher, prepare
if __name__ == "__main__":
    prepare(Path(sys.argv[1]), NUMPY, "tests.planted:SLOW", rounds=3).run(Watcher())
"""


def test_a_killed_run_leaves_whole_results_and_can_be_resumed(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    runner = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (tmp_path / "results.json").exists() and any(stage.timing for stage in load(tmp_path).stages):
            break
        time.sleep(0.05)
    runner.send_signal(signal.SIGKILL)
    runner.wait()

    left = load(tmp_path)
    measured = {stage.name: len(stage.processes) for stage in left.stages}
    assert 1 <= sum(measured.values()) < 6
    watcher = Watcher()
    again = prepare(tmp_path, NUMPY, "tests.planted:SLOW", known=left).run(watcher)
    assert watcher.jobs == 6 - sum(measured.values())
    assert [len(stage.processes) for stage in again.stages] == [3, 3]
    first, was = again.stages[0].processes[0], left.stages[0].processes[0]
    assert msgspec.structs.replace(first, disturbed=was.disturbed) == was  # depends on the later processes as well
    assert all(stage.status == "passed" for stage in again.stages)


def test_a_stage_that_does_not_fit_the_problem_is_skipped_with_an_alternative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "missing", lambda needs: None)  # a machine that lacks nothing
    deep = small_problem(hidden=(8,) * 5)
    (stage,) = prepare(tmp_path, "stages.persistent.r1_persistent_cluster:STAGE", problem=deep).run(Watcher()).stages
    assert stage.status == "skipped"
    assert stage.reason == "5 hidden layers (8,8,8,8,8) exceed the limit of 4. Closest rung here: `persistent-grid`."


@pytest.mark.parametrize(
    ("source", "instead"),
    [("tiles.r3_dependent_launch", "fused-bias"), ("persistent.r1_persistent_cluster", "cuda-graph")],
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
    (stage,) = prepare(tmp_path, "stages.tiles.r3_dependent_launch:STAGE").run(Watcher()).stages
    assert stage.reason == "CuPy is not installed"
