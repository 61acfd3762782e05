"""Studies of several GPUs point by point in one table, and how a command line names them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Results, StageResult, save
from ladder.records.study import Point, save_study
from reports.compare.run_lookup import named_studies
from reports.facts.many_runs import compare_studies
from reports.facts.study_points import StudyResults
from reports.facts.two_runs import CannotCompareError
from reports.screens.compare import machines_screen, orders
from reports.writers.markdown import markdown
from reports.writers.terminal import write_terminal
from run_ladder import main
from tests.reports.recorded import run, stage, times
from tests.reports.study_sample import study
from tests.reports.terminal.screens import screen

Points = Mapping[int, tuple[float, float]]


def point(size: int, gpu: str, *stages: StageResult) -> Results:
    results = run(*stages, gpu=gpu)
    return replace(results, problem=replace(results.problem, hidden=[size]))


def study_of(gpu: str, us: Points) -> StudyResults:
    """A study whose points have a time of `naive` and of `async`, beside a reference and a stage without a time."""
    points = [Point(f"hidden-{size}", {"hidden": size}, {"hidden": size}, "measured") for size in us]
    skipped = replace(stage("persistent", times(1.0)), status="skipped", timing=None, processes=[])
    runs = {
        f"hidden-{size}": point(
            size,
            gpu,
            stage("numpy", times(90.0), group="reference"),
            stage("naive", times(naive)),
            stage("async", times(other), below="naive"),
            skipped,
        )
        for size, (naive, other) in us.items()
    }
    return StudyResults(study("hidden", points), runs)


def two() -> list[tuple[str, StudyResults]]:
    """Of the points that both have, the rungs change order at one; each has a point of its own."""
    a100 = study_of("NVIDIA A100", {64: (50.0, 40.0), 128: (60.0, 55.0), 256: (99.0, 99.0)})
    h100 = study_of("NVIDIA H100", {64: (25.0, 20.0), 128: (30.0, 33.0), 512: (99.0, 99.0)})
    return [("runs/a100", a100), ("runs/h100", h100)]


def save_to(folder: Path, results: StudyResults) -> None:
    for name, one in results.runs.items():
        (folder / name).mkdir(parents=True)
        save(one, folder / name / "results.json")
    save_study(results.study, folder)


def test_every_common_point_has_the_timed_stages_and_its_fastest_rungs() -> None:
    found = compare_studies(two())
    assert (found.studies, found.machines) == (["runs/a100", "runs/h100"], ["NVIDIA A100", "NVIDIA H100"])
    assert [(one.point, one.fastest) for one in found.points] == [
        ("hidden 64", ["async", "async"]),
        ("hidden 128", ["async", "naive"]),
    ]
    for one in found.points:
        assert [row.name for row in one.machines.rows] == ["naive", "async", "numpy"]
    first, second = found.points[0].machines.rows[0].cells
    assert first.step_us == pytest.approx(50.0)
    assert first.ratio is None
    assert second.ratio == pytest.approx(0.5)
    assert second.verdict == "FASTER"


def test_changes_of_order_and_points_left_out_are_sentences() -> None:
    assert orders(compare_studies(two())) == [
        "hidden 128: async is faster than naive in runs/a100, slower in runs/h100.",
        "hidden 256: not timed in runs/h100.",
        "hidden 512: not timed in runs/a100.",
    ]


def test_all_forms_have_one_table() -> None:
    shown = machines_screen(compare_studies(two()))
    assert markdown(shown).startswith(
        "| us/step | runs/a100 (NVIDIA A100) | runs/h100 (NVIDIA H100) |\n"
        "| --- | ---: | ---: |\n"
        "| *hidden 64* |  |  |\n"
        "| fastest rung | async | async |\n"
        "| naive | 50.0 | 25.0 (0.500, FASTER) |\n"
    )
    wide = screen(lambda console: write_terminal(shown, console), 80).splitlines()
    assert [line.split() for line in wide[3:6]] == [
        ["hidden", "64"],
        ["fastest", "rung", "async", "async"],
        ["naive", "50.0", "25.0", "(0.500,", "FASTER)"],
    ]
    narrow = screen(lambda console: write_terminal(shown, console), 50).splitlines()
    assert ["naive", "50.0", "25.0"] in [line.split() for line in narrow]
    assert max(map(len, narrow)) <= 50
    assert "A wider terminal, and --format markdown, show" in " ".join(narrow)


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


def test_studies_without_a_common_point_are_refused() -> None:
    small, large = (("small", study_of("A", {64: (2.0, 1.0)})), ("large", study_of("B", {128: (2.0, 1.0)})))
    with pytest.raises(CannotCompareError, match="small and large: have no timed point in common"):
        compare_studies([small, large])
    _, other = large
    wrong = StudyResults(small[1].study, {"hidden-64": other.runs["hidden-128"]})
    with pytest.raises(CannotCompareError, match="hidden 64: small and wrong: different networks"):
        compare_studies([small, ("wrong", wrong)])
