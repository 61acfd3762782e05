"""Every check as a cell."""

from __future__ import annotations

import re

import pytest

from ladder.records.run import Check
from reports.explorer.trust_page import kind, trust_view
from reports.views.rung_view import cell
from tests.reports import sample

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
    assert (cell(check).look, cell(check).verdict) == (look, verdict)


def test_checks_of_all_tensors_are_one_kind() -> None:
    assert {kind(Check(what, 0.0, 1.0, passed=True)) for what in ("first update, a", "first update, b")} == {
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
