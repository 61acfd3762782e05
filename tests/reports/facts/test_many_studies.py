"""How a command line names studies; tests/golden/studies.txt has what it shows of several."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ladder.records.run import save
from ladder.records.study import save_study
from reports.compare.run_lookup import named_studies
from reports.facts.study_points import StudyResults
from run_ladder import main
from tests.golden.studies import two


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
