from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ladder.records.run import load, save
from reports.figures.run_figures import drawings
from reports.render import render_all
from tests.golden import FOLDER, renderings
from tests.reports import sample


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def names() -> set[str]:
    """The paths of the figures, as a report links them."""
    return {f"figures/{name}" for name in drawings(sample.results())}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rendered")
    save(sample.results(), folder / "results.json")
    render_all(load(folder), folder)
    return folder


@pytest.fixture
def rendered(once: Path, tmp_path: Path) -> Path:
    """A folder with a run and its report."""
    return shutil.copytree(once, tmp_path / "run")


def test_a_saved_run_is_rendered_beside_its_results(rendered: Path, names: set[str]) -> None:
    assert files(rendered) == {"results.json", "report.md", "report.html", *names}
    first = {name: (rendered / name).read_bytes() for name in files(rendered)}
    render_all(load(rendered), rendered)
    assert first == {name: (rendered / name).read_bytes() for name in files(rendered)}


def test_every_link_of_the_report_leads_to_a_file(rendered: Path, names: set[str]) -> None:
    text = (rendered / "report.md").read_text()
    links = set(re.findall(r"\]\((.*?)\)", text))
    assert links == {f"figures/{name}.svg" for name in ("ladder", "waterfall")}
    named = set(re.findall(r"`(figures/[a-z_]+\.svg)`", text))
    assert links | named == {name for name in names if "timeline-" not in name}
    assert all((rendered / link).is_file() for link in links | named)


def test_the_timeline_of_a_stage_that_has_none_any_more_goes_and_other_files_stay(rendered: Path) -> None:
    (rendered / "figures" / "mine.svg").write_text("<svg/>")
    render_all(sample.replace_stage(sample.results(), "async", profiles=[]), rendered)
    assert "figures/timeline-async.svg" not in files(rendered)
    assert {"figures/timeline-naive.svg", "figures/mine.svg"} <= files(rendered)


def test_figures_of_an_older_rendering_go_when_nothing_passed(rendered: Path) -> None:
    render_all(sample.nothing_passed(), rendered)
    assert files(rendered) == {"results.json", "report.md", "report.html"}


def test_a_folder_that_cannot_be_written_to_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="figures"):
        render_all(sample.results(), tmp_path)


# By their files: to render them takes seconds, which each process of a test run would spend on collecting.
GOLDEN = {path.name for path in FOLDER.iterdir() if path.suffix in {".txt", ".md", ".html", ".csv"}} - {"refusals.txt"}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_rendering_is_as_recorded(name: str) -> None:
    assert renderings()[name] == (FOLDER / name).read_text(encoding="utf-8"), "see this test's docstring"


def test_every_rendering_has_a_golden_file_and_none_is_left_over() -> None:
    assert {*renderings()} == GOLDEN  # test_command_line compares refusals.txt
