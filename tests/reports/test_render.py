from __future__ import annotations

from pathlib import Path

import pytest

from ladder.results import load, save
from reports.figures import figures
from reports.render import render_all
from tests.reports import sample


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_saved_run_is_rendered_beside_its_results(tmp_path: Path) -> None:
    save(sample.results(), tmp_path / "results.json")
    render_all(load(tmp_path), tmp_path)
    assert files(tmp_path) == {"results.json", "report.md", *(f"figures/{name}" for name in figures(sample.results()))}
    first = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    render_all(load(tmp_path), tmp_path)
    assert first == {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}


def test_every_link_of_the_report_leads_to_a_file(tmp_path: Path) -> None:
    render_all(sample.results(), tmp_path)
    links = [part.split(")")[0] for part in (tmp_path / "report.md").read_text().split("](")[1:]]
    assert set(links) == {f"figures/{name}" for name in figures(sample.results())}
    assert all((tmp_path / link).is_file() for link in links)


def test_the_timeline_of_a_stage_that_has_none_any_more_goes_and_other_files_stay(tmp_path: Path) -> None:
    render_all(sample.results(), tmp_path)
    (tmp_path / "figures" / "mine.svg").write_text("<svg/>")
    render_all(sample.replace_stage(sample.results(), "async", profiles=[]), tmp_path)
    assert "figures/timeline-async.svg" not in files(tmp_path)
    assert {"figures/timeline-naive.svg", "figures/timelines.svg", "figures/mine.svg"} <= files(tmp_path)


def test_figures_of_an_older_rendering_go_when_nothing_passed(tmp_path: Path) -> None:
    render_all(sample.results(), tmp_path)
    render_all(sample.nothing_passed(), tmp_path)
    assert files(tmp_path) == {"report.md"}


def test_a_folder_that_cannot_be_written_to_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="figures"):
        render_all(sample.results(), tmp_path)
