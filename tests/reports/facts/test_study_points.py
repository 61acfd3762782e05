"""The files and the axis of a study; tests/golden/studies.txt has what studies say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.records.run import save
from ladder.records.study import Point, save_study
from reports.facts.study_points import load_results
from reports.figures.step_time import axis_of
from reports.render import print_study, render_study
from tests.reports.reporting import study_figures
from tests.reports.study_sample import study_results


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
