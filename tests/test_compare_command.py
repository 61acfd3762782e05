"""`run_ladder.py compare`, as a CI uses it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from ladder.records.run import save
from run_ladder import main
from tests.reports.recorded import run, stage, times


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with runs in it."""
    monkeypatch.chdir(tmp_path)
    for name, results in {
        "base": run(stage("naive", times(50.0))),
        "same": run(stage("naive", times(50.1))),
        "faster": run(stage("naive", times(45.0))),
        "slower": run(stage("naive", times(51.5))),
        "scattered": run(stage("naive", times(50.0, scatter=0.3))),
    }.items():
        (tmp_path / name).mkdir()
        save(results, tmp_path / name / "results.json")
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        ("base same", 0, "No regression beyond 2% found: 1 SAME."),
        ("base faster", 0, "No regression beyond 2% found: 1 FASTER."),
        ("base slower", 1, "Regression beyond 2%: naive."),
        ("base slower --threshold 5%", 0, "No regression beyond 5% found: 1 SLOWER."),
        ("base slower --threshold 0.029", 1, "Regression beyond 2.9%: naive."),
        ("base scattered", 0, "naive may hide one."),
        ("base scattered --strict", 2, "naive may hide one."),
        ("base same slower", 0, "No pair of rungs certainly changes order."),
    ],
)
def test_the_exit_status_is_the_verdict(argv: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *argv.split()]) == code
    told = capsys.readouterr()
    assert said in told.out
    assert told.err == ""


def test_a_gate_reads_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "base", "slower", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["exit_code"], found["stages"][0]["verdict"]) == (1, "SLOWER")


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["base", "slower"], [("naive", None, "SLOWER")]),
        (["base", "same", "slower"], [("naive", "base", ""), ("naive", "same", "SAME"), ("naive", "slower", "SLOWER")]),
    ],
)
def test_a_spreadsheet_reads_csv(
    names: list[str], rows: list[tuple[str, str | None, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *names, "--csv"]) == (1 if len(names) == 2 else 0)
    found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["name"], row.get("run"), row["verdict"]) for row in found] == rows
    assert all(float(row["ratio"]) > 1 for row in found if row["verdict"])


def test_recorded_runs_are_compared_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["reference:h200/hidden-256", "reference:h200", "reference:h200/hidden-256"]
    assert main(["compare", *names, "--format", "markdown"]) == 0
    assert capsys.readouterr().out.count("reference:h200/hidden-256 (NVIDIA H200)") == 3


@pytest.mark.parametrize(
    ("names", "more", "said"),
    [
        (["reference:h200", "reference:h200/logistic"], ["--strict"], "reference:h200/logistic"),
        (["base", "base/results.json"], ["--format=markdown"], "base and base/results.json"),
    ],
)
def test_a_run_and_itself_are_told_in_a_line(
    names: list[str], more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *names, *more]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == (f"{said}: the same run, so nothing to compare; name two runs.\n", "")
    assert main(["compare", *names, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["same_run"], found["exit_code"], found["stages"]) == (True, 0, [])
    for form in (["--csv"], ["--format", "csv"]):
        assert main(["compare", *names, *form]) == 2
        refused = f"run_ladder.py: {said}: the same run, so nothing to compare; name two runs\n"
        assert tuple(capsys.readouterr()) == ("", refused)
