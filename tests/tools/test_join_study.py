"""Points that were measured apart become one study, and nothing that is there already is lost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ladder.records.run import load, save
from ladder.records.study import Point, PointStatus, Study, load_study, save_study
from ladder.run.lock import alone_in
from tests.reports.sample import unprofiled_results
from tools.join_study import main


def part(folder: Path, *statuses: PointStatus, gpu: str = "NVIDIA H200", **settings: object) -> str:
    """A study whose points stand like this, each with a run that names its folder."""
    points = [Point(f"p-{i}", {"seed": i}, {"epochs": 1} | settings, status) for i, status in enumerate(statuses)]
    run = unprofiled_results()
    run = msgspec.structs.replace(run, command=folder.name, environment={**run.environment, "gpu": {"name": gpu}})
    for point in points:
        if point.status in ("begun", "measured"):
            (folder / point.name).mkdir(parents=True)
            save(run, folder / point.name / "results.json")
    folder.mkdir(exist_ok=True)
    save_study(Study("s", "S", "", "now", f"study --out {folder.name}", ["seed"], points), folder)
    return str(folder)


def held(folder: Path) -> dict[str, str]:
    return {path.parent.name: load(path).command for path in folder.glob("*/results.json")}


def test_each_point_comes_from_the_part_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = part(tmp_path / "a", "measured", "begun", "waiting", "waiting")
    b = part(tmp_path / "b", "measured", "measured", "skipped", "begun")
    whole = tmp_path / "whole"
    assert main([str(whole), a, b]) == 0
    assert held(whole) == {"p-0": "a", "p-1": "b"}
    assert [point.status for point in load_study(whole).points] == ["measured", "measured", "skipped", "waiting"]
    assert "3 of 4 points; waiting: p-3" in capsys.readouterr().out
    assert load_study(whole).command.splitlines() == ["study --out a", "study --out b"]
    assert held(tmp_path / "b") == {"p-0": "b", "p-1": "b", "p-3": "b"}


def test_a_file_may_ask_for_other_stages_by_now(tmp_path: Path) -> None:
    whole, b = (
        part(tmp_path / "whole", "measured", "waiting"),
        part(tmp_path / "b", "measured", "measured", stages="all"),
    )
    assert main([whole, b]) == 0
    assert [point.settings.get("stages") for point in load_study(tmp_path / "whole").points] == [None, "all"]


def test_what_one_part_skipped_another_may_have_measured(tmp_path: Path) -> None:
    a, b = part(tmp_path / "a", "skipped", "measured"), part(tmp_path / "b", "measured", "skipped")
    assert main([str(tmp_path / "whole"), a, b]) == 0
    assert held(tmp_path / "whole") == {"p-0": "b", "p-1": "a"}


def test_a_study_that_is_being_measured_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, b = part(tmp_path / "whole", "begun", "waiting"), part(tmp_path / "b", "measured", "measured")
    with alone_in(tmp_path / "whole"):
        assert main([whole, b]) == 2
    assert "another run is writing there" in capsys.readouterr().err
    assert held(tmp_path / "whole") == {"p-0": "whole"}


def test_what_is_there_stays_and_an_interrupted_run_makes_room(tmp_path: Path) -> None:
    whole, b = part(tmp_path / "whole", "measured", "begun"), part(tmp_path / "b", "measured", "measured")
    assert main([whole, b]) == 0
    assert held(tmp_path / "whole") == {"p-0": "whole", "p-1": "b"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["whole", "other"], "other: has other points or settings than whole"),
        (["whole", "nowhere"], "nowhere/study.json: cannot be read"),
        (
            ["whole", "h100"],
            "h100/p-1: measured on NVIDIA H100, whole/p-0 on NVIDIA H200; join parts of one kind of GPU",
        ),
        (["whole", "hollow"], "hollow/p-1/results.json: cannot be read"),
        (["file", "whole"], "file: File exists"),
        (["whole"], "usage: python -m tools.join_study FOLDER PART..."),
    ],
)
def test_what_cannot_be_joined_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    part(Path("whole"), "measured", "waiting")
    part(Path("other"), "measured", "measured", epochs=2)
    part(Path("h100"), "waiting", "measured", gpu="NVIDIA H100")
    part(Path("hollow"), "waiting", "measured")
    Path("hollow/p-1/results.json").unlink()
    Path("file").touch()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert held(Path("whole")) == {"p-0": "whole"}
