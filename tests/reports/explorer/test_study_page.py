"""The page of a study: its answer first, then the ladder of each point."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.foreign import read
from ladder.records.run import all_results, load
from ladder.records.study import Point
from reports.explorer.study_page import render_study_page
from reports.facts.study_points import StudyResults, load_results
from tests.browser import Open, violations
from tests.reports import study_sample
from tests.reports.explorer.test_page import HOSTILE, reveal

RECORDED = Path("results/reference/h200")
MOST_BYTES = 2_000_000
POINTS = 60


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the recorded study of hidden sizes."""
    page = tmp_path_factory.mktemp("study") / "report.html"
    page.write_text(render_study_page(load_results(RECORDED / "studies" / "hidden-size")), encoding="utf-8")
    return page


def sixty() -> StudyResults:
    """A study whose sixty points are the largest recorded runs."""
    paths = sorted(all_results(RECORDED, "**"), key=lambda path: len(read(path)))
    runs = [load(path) for path in paths[-POINTS:]]
    points = [Point(f"hidden-{index}", {"hidden": index}, {"hidden": index}, "measured") for index in range(POINTS)]
    by_name = {point.name: run for point, run in zip(points, runs, strict=True)}
    return StudyResults(study_sample.study("hidden", points), by_name)


def test_sixty_points_fit_into_two_megabytes() -> None:
    results = sixty()
    assert len(results.measured) == POINTS
    assert len(render_study_page(results).encode()) <= MOST_BYTES


def test_a_study_is_the_same_bytes_twice(recorded: Path) -> None:
    assert render_study_page(load_results(RECORDED / "studies" / "hidden-size")) == recorded.read_text(encoding="utf-8")


def test_the_answer_comes_first_and_each_point_has_its_ladder(recorded: Path, open_page: Open) -> None:
    opened = open_page(recorded)
    assert opened.page.url.endswith("#/study")
    assert "How the lead changes with the hidden size" in opened.text("h1:visible")
    points = load_results(RECORDED / "studies" / "hidden-size").measured
    assert opened.page.locator("#shown tbody tr").count() == len(points)
    opened.page.click("#shown >> text=hidden 256")
    opened.page.wait_for_selector("html[data-place='#hidden-256:/']")
    assert opened.ask("document.querySelector('#point').value") == "hidden-256"
    opened.page.click("#ladder .wide a[data-rung=cluster-fp16]")
    opened.page.wait_for_selector("article[data-rung=cluster-fp16]")
    assert opened.page.url.endswith("#hidden-256:cluster-fp16")
    opened.page.click("[data-always]")
    here = opened.text("article .number")
    opened.page.select_option("#point", "hidden-128")
    opened.page.wait_for_selector("html[data-place='#hidden-128:cluster-fp16']")
    assert opened.text("article .number") != here
    opened.go("#hidden-128:/details")
    assert opened.page.locator("#shown h2").all_text_contents().count("Terms") == 1


def test_every_figure_of_curves_is_shown(tmp_path: Path, open_page: Open) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_study_page(study_sample.curve_results()), encoding="utf-8")
    opened = open_page(page)
    assert opened.page.locator("#shown svg[aria-label*='throughout training']").count() == 2


def test_a_lesson_is_about_one_point(recorded: Path, open_page: Open) -> None:
    opened = open_page(recorded, "#hidden-128:lesson")
    assert "0 of " in opened.text("#lesson")
    opened.go("#hidden-128:persistent-grid")
    reveal(opened)
    assert "1 of " in opened.text("#lesson")
    assert opened.page.url.endswith("#hidden-128:lesson/persistent-grid")
    opened.go("#hidden-512:/")
    assert "0 of " in opened.text("#lesson")
    opened.go("#hidden-128:/")
    assert "1 of " in opened.text("#lesson")


def test_hostile_names_of_points_are_shown_as_text(tmp_path: Path, open_page: Open) -> None:
    results = study_sample.study_results()
    first, *others = results.study.points
    name = f"a:b/{HOSTILE}"
    points = [replace(first, name=name, values={"hidden": HOSTILE}), *others]
    study = replace(results.study, title=HOSTILE, question=HOSTILE, varied=[], points=points[:1])
    page = tmp_path / "report.html"
    page.write_text(render_study_page(StudyResults(study, {name: results.runs[first.name]})), encoding="utf-8")
    opened = open_page(page)
    assert opened.text("h1:visible") == HOSTILE
    opened.page.click("#shown tbody a")
    opened.page.wait_for_selector("#ladder", state="visible")
    assert opened.ask("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("results", [study_sample.study_results(), StudyResults(study_sample.study("hidden", []), {})])
def test_a_study_without_all_its_points_has_a_page(results: StudyResults, tmp_path: Path, open_page: Open) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_study_page(results), encoding="utf-8")
    opened = open_page(page)
    assert results.study.title in opened.text("h1:visible")


def test_the_study_has_no_accessibility_violations_and_fits_the_window(recorded: Path, open_page: Open) -> None:
    for theme, width in (("light", 1280), ("dark", 360)):
        opened = open_page(recorded, theme=theme, width=width)
        for place in ("#/study", "#hidden-128:/", "#hidden-128:/trust", "#hidden-8192:last-layer-bf16"):
            opened.go(place)
            assert opened.ask("document.documentElement.scrollWidth") <= width, place
            if not place.endswith(("trust", "bf16")):
                assert violations(opened, only_colours=theme == "dark") == []
