"""A study's points, how times grow over them, and several studies beside each other."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Group, Process, Results, StageResult, Timing, save
from ladder.records.study import Point, save_study
from reports.compare.run_lookup import named_studies
from reports.facts.scaling import scalings
from reports.facts.study_points import StudyResults, load_results
from reports.figures.step_time import axis_of
from reports.render import print_study, render_study
from run_ladder import main
from tests.golden.studies import two
from tests.reports.reporting import study_figures
from tests.reports.study_sample import STEPS, run_at, study, study_results

# The files and the axis of a study; tests/golden/studies.txt has what studies say.


@pytest.mark.parametrize(
    ("values", "places", "is_log"),
    [
        ([64, 8192], [64, 8192], True),
        ([0, 1, 8], [0, 1, 8], False),
        ([1, 2, 3], [1, 2, 3], False),
        (["tf32", "float32"], [0, 1], False),
        ([[8, 8], [64, 64]], [8, 64], True),
        ([[], [8], [8, 4]], [0, 1, 2], False),
    ],
)
def test_the_axis_has_numbers_where_there_are_some(values: list[object], places: list[float], is_log: bool) -> None:
    points = [Point(f"hidden-{index}", {"hidden": value}, {}, "measured") for index, value in enumerate(values)]
    axis = axis_of(["hidden"], points)
    assert (list(axis.places.values()), axis.is_log) == (places, is_log)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the sample study."""
    results = study_results([64, 128, 256])
    save_study(results.study, tmp_path)
    for name, run in results.runs.items():
        (tmp_path / name).mkdir()
        save(run, tmp_path / name / "results.json")
    return tmp_path


def test_rendering_removes_older_figures_and_draws_byte_for_byte(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "figures").mkdir()
    (folder / "figures" / "step_time-older.svg").write_text("")
    shown = render_study(folder)
    assert {path.name for path in (folder / "figures").iterdir()} == {"step_time.svg"}
    assert shown == load_results(folder)
    assert (folder / "figures" / "step_time.svg").read_text() == study_figures(shown)["step_time.svg"]
    print_study(shown, folder)
    assert "Report  " in capsys.readouterr().out


# What two GPUs gain over one, where the batch stays and where each GPU's share stays.


TOOK_US = {  # by batch size
    "naive": {32: 100.0, 64: 160.0, 96: 210.0},
    "cublas": {32: 40.0, 64: 80.0, 96: 70.0},
    "ddp": {32: 125.0, 64: 80.0, 96: 140.0},
    "ddp-again": {32: 125.0, 64: 100.0},
    "torch-ddp": {64: 160.0},
}
DEVICES = {"ddp": "naive", "ddp-again": "ddp", "torch-ddp": None}
GROUPS: dict[str, Group] = {"ddp": "devices", "ddp-again": "devices", "torch-ddp": "reference"}


def timed(stage: StageResult, us: float) -> StageResult:
    process: Process = replace(stage.processes[0], runs_s=[us * STEPS * 20 / 1e6], gpu_states=[])
    timing = Timing.of([process], epochs=20, steps_per_epoch=STEPS, shortened=False)
    return replace(stage, timing=timing, processes=[process])


def run_of(batch: int) -> Results:
    run = run_at(64, batch)
    known = {stage.name: stage for stage in run.stages}
    several = [
        replace(known["naive"], name=name, group=GROUPS[name], below=below, precision="float32", takes_gpus=True)
        for name, below in DEVICES.items()
    ]
    stages = [known["naive"], known["cublas"], *several]
    timings = [timed(one, TOOK_US[one.name][batch]) for one in stages if batch in TOOK_US[one.name]]
    return replace(run, problem=replace(run.problem, gpus=2), stages=timings)


def results() -> StudyResults:
    points = [Point(f"batch-{size}", {"batch_size": size}, {}, "measured") for size in (32, 64, 96)]
    return StudyResults(study("batch_size", points), {f"batch-{size}": run_of(size) for size in (32, 64, 96)})


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)


def test_efficiency_is_a_share_of_all_gpus() -> None:
    found = {(one.stage.name, one.point.values["batch_size"]): one for one in scalings(results())}
    gains = {at: (rounded(of.strong), rounded(of.weak), of.best.name, round(of.best_us)) for at, of in found.items()}
    assert gains == {
        ("ddp", 32): (0.4, None, "cublas", 40),
        ("ddp", 64): (1.0, 1.25, "cublas", 80),
        ("ddp", 96): (0.75, None, "cublas", 70),
        ("ddp-again", 32): (0.4, None, "cublas", 40),
        ("ddp-again", 64): (0.8, 1.0, "cublas", 80),
        ("torch-ddp", 64): (None, None, "cublas", 80),
    }


# How a command line names studies; tests/golden/studies.txt has what it shows of several.


def save_to(folder: Path, results: StudyResults) -> None:
    for name, one in results.runs.items():
        (folder / name).mkdir(parents=True)
        save(one, folder / name / "results.json")
    save_study(results.study, folder)


def test_a_folder_of_studies_stands_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, results in two():
        save_to(Path(name), results)
    assert [name for name, _ in named_studies(["runs"])] == ["runs/a100", "runs/h100"]
    assert [name for name, _ in named_studies(["runs/h100/study.json", "runs/a100"])] == ["runs/h100", "runs/a100"]
    assert named_studies(["reference:h200", "runs/a100/hidden-64"]) == []
    for names in (["runs"], ["runs/a100", "runs/h100"]):
        assert main(["compare", *names, "--format", "markdown"]) == 0
        assert "| fastest rung | async | naive |" in capsys.readouterr().out
    assert main(["compare", "runs", "--csv"]) == 0
    first, second = list(csv.DictReader(capsys.readouterr().out.splitlines()))[:2]
    for row, run_, verdict in ((first, "runs/a100", ""), (second, "runs/h100", "FASTER")):
        named = [row[column] for column in ("point", "name", "run", "verdict")]
        assert named == ["hidden 64", "naive", run_, verdict]
    assert float(second["ratio"]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["runs/a100"], "compare runs/a100: only one study; name a second one"),
        (
            ["runs/a100", "runs/h100/hidden-64"],
            "runs/h100/hidden-64: is no study, but runs/a100 is one; name studies alone, or runs alone",
        ),
        (["runs", "--strict"], "--strict and --threshold: judge two runs, not 2 studies; name two"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(
    names: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, results in two():
        save_to(Path(name), results)
    assert main(["compare", *names]) == 2
    assert capsys.readouterr().err == f"run_ladder.py: {said}\n"
