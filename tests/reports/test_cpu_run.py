"""A run of rungs on the CPU alone: its profiles in the record, the report, the page and `explain`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.records.run import Results, load
from reports.explorer.floor_page import floor_view
from reports.explorer.rung_page import rung_html
from reports.facts.time_breakdown import changes
from reports.render import report_again
from reports.screens.details import details
from tests.ladder.harness import Watcher, prepare
from tests.reports.reporting import explanation

SOURCES = ("stages.cpu.one_call:STAGE", "stages.cpu.tiles:STAGE", "stages.cpu.cores:STAGE")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three rungs, rendered."""
    target = tmp_path_factory.mktemp("run")
    prepare(target, *SOURCES, profile=["cupti", "stamps"]).run(Watcher())
    report_again(target, Path("results/reference"))
    return target


@pytest.fixture
def results(folder: Path) -> Results:
    return load(folder)


def test_every_rung_has_a_profile(results: Results) -> None:
    for stage in results.stages:
        assert stage.status == "passed", stage.reason
        assert stage.timing is not None
        assert stage.unprofiled == {}
        assert [profile.tool for profile in stage.profiles] == ["stamps"]
        profile = stage.profiles[0]
        assert profile.split.total_us == pytest.approx(profile.plain_step_us)
        assert all(kernel.kind != "other" for kernel in profile.kernels)


def test_no_rung_has_a_floor_not_even_a_recorded_one(results: Results) -> None:
    for run in (results, load(Path("results/reference/amd-epyc-2-cores/hidden-256"))):
        assert "only rungs on a GPU have a floor" in floor_view(run)


def test_a_change_is_told_by_operation(results: Results) -> None:
    (change,) = (one for one in changes(results) if one.rung.stage.name == "cpu-tiles")
    assert {"products", "softmax, loss", "Python between kernels"} <= set(change.detailed_us)
    assert sum(change.detailed_us.values()) == pytest.approx(change.timed_us - change.rest_us)


def test_explain_names_operations(results: Results) -> None:
    text = " ".join(explanation(results, "cpu-tiles").split())
    for words in ("Profiled by time stamps", "rows_by_columns", "add_outer", "products", "vs cpu-one-call"):
        assert words in text
    assert "GPU" not in text


def test_the_report_and_the_page_show_them(folder: Path) -> None:
    results = load(folder)
    assert "Waiting at barriers" in str(details(results))
    rung = rung_html(results.stages[-1], results)
    for words in ('data-row="cpu 0"', "waits at a barrier", "threads</th>", "time stamps"):
        assert words in rung
    assert {path.name for path in (folder / "figures").iterdir()} >= {"waterfall.svg"}
