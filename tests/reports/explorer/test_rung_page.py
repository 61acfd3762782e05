"""The view of a rung: what it counts, and names in sentences between backticks; every check as a cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Check, Results, load
from reports.explorer.page import data_of
from reports.explorer.rung_page import rung_html
from reports.explorer.trust_page import cell, kind_of_check, trust_view
from reports.screens.rung import MOST_KERNELS_IN_FULL, judged
from tests.reports import sample

CPU = Path("results/reference/amd-epyc-2-cores/logistic")


def view(run: Results, name: str) -> str:
    return rung_html(next(stage for stage in run.stages if stage.name == name), run)


def launching(count: int) -> Results:
    """A run whose `naive` launches this many kernels per step."""
    run = sample.results()
    profiles = next(stage for stage in run.stages if stage.name == "naive").profiles
    kernels = (profiles[0].kernels * count)[:count]
    changed = [replace(profile, kernels=kernels) for profile in profiles]
    return sample.replace_stage(run, "naive", profiles=changed)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "1 kernel of a step"),
        (MOST_KERNELS_IN_FULL, f"{MOST_KERNELS_IN_FULL} kernels of a step"),
        (MOST_KERNELS_IN_FULL + 9, f"The first {MOST_KERNELS_IN_FULL} of {MOST_KERNELS_IN_FULL + 9} kernels of a step"),
    ],
)
def test_the_table_of_kernels_says_how_many_there_are_and_how_many_it_has(count: int, words: str) -> None:
    html = view(launching(count), "naive")
    assert f"<summary>{words}" in html
    table = html.partition(f"<summary>{words}")[2].partition("</table>")[0]
    assert table.count("<tr>") - 1 == min(count, MOST_KERNELS_IN_FULL)


def test_names_between_backticks_are_code_wherever_a_reason_is_shown() -> None:
    run = sample.replace_stage(sample.results(), "async", status="skipped", reason="try `a<b>` there")
    data = data_of(run)
    shown = [data["ladder"], trust_view(run), view(run, "async")]
    assert all("ry <code>a&lt;b&gt;</code> there" in html and "`" not in html for html in shown)


def test_no_recorded_page_shows_a_backtick_outside_of_code() -> None:
    data = data_of(load(CPU))
    assert not any("`" in html for html in (data["ladder"], *data["views"].values(), *data["rungs"].values()))


OPEN = Check("loss curve", None, 0.0, passed=True, judged=False, note="chance decides")


@pytest.mark.parametrize(
    ("check", "look", "verdict"),
    [
        (Check("a", 1e-7, 1e-5, passed=True), "far", "passed"),
        (Check("a", 9e-6, 1e-5, passed=True), "near", "passed"),
        (Check("a", 0.0, 0.0, passed=True), "far", "passed"),
        (Check("a", 2e-5, 1e-5, passed=False), "broken", "failed"),
        (Check("a", None, 1e-5, passed=False), "broken", "failed"),
        (OPEN, "open", "not judged: chance decides"),
    ],
)
def test_a_cell_tells_how_near_a_check_came_to_its_limit(check: Check, look: str, verdict: str) -> None:
    assert (cell(check)["look"], judged(check)) == (look, verdict)


def test_checks_of_all_tensors_are_one_kind() -> None:
    assert {kind_of_check(Check(what, 0.0, 1.0, passed=True)) for what in ("first update, a", "first update, b")} == {
        "first update"
    }


def test_the_verdict_counts_what_was_judged_and_every_check_has_a_cell() -> None:
    run = sample.results()
    before = sum(len(stage.checks) for stage in run.stages)
    (checks,) = (stage.checks for stage in run.stages if stage.name == "async")
    html = trust_view(sample.replace_stage(run, "async", checks=[*checks, OPEN]))
    failed = sum(not check.passed for stage in run.stages for check in stage.checks)
    assert failed == 2
    assert f"<h1>{before - failed} of {before} checks passed</h1>" in html
    table = html.partition("<table")[2]
    assert len(re.findall(r'<span class="cell ', table)) == before + 1
    assert table.count('class="cell open"') == 1
    assert "1 not judged" in table
