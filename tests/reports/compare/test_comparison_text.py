"""The forms of a comparison; tests/golden has their exact text."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from reports.compare.comparison_text import conclusion, markdown_of_two, notes, orders, print_comparison
from reports.compare.many_runs import compare_machines
from reports.facts.two_runs import Comparison, compare
from tests.reports import recorded


@pytest.fixture
def found() -> Comparison:
    return compare(recorded.before(), recorded.after(), ("runs/old", "runs/a | b"))


def printed(comparison: object, form: str, *, terminal: bool = False, width: int = 80) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, force_terminal=terminal)
    print_comparison(comparison, form, console)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_json_is_whole_on_any_terminal(found: Comparison, terminal: bool) -> None:
    read = json.loads(printed(found, "json", terminal=terminal, width=20))
    assert (read["base"], read["new"], read["exit_code"], read["threshold"]) == ("runs/old", "runs/a | b", 1, 0.02)
    naive = read["stages"][0]
    assert naive["verdict"] == "SLOWER"
    assert naive["regression"] is True
    assert naive["low"] < naive["ratio"] < naive["high"]
    assert read["warnings"] == found.warnings
    several = json.loads(printed(compare_machines(recorded.machines()), "json"))
    assert several["runs"] == ["runs/h200", "runs/again", "runs/a | b"]


def test_markdown_is_not_wrapped(found: Comparison) -> None:
    assert printed(found, "markdown", width=20) == markdown_of_two(found)


def test_every_verdict_is_in_every_form(found: Comparison) -> None:
    for form in ("text", "markdown", "json"):
        text = printed(found, form)
        for word in ("SLOWER", "FASTER", "SAME", "AMBIGUOUS", "killed by SIGSEGV", "only in the new run"):
            assert word in text


def test_the_conclusion_names_regressions_or_counts_verdicts(found: Comparison) -> None:
    assert conclusion(found) == "Regression beyond 2%: naive and cuda-graph."
    same = compare(recorded.before(), recorded.before(), ("a", "b"))
    assert conclusion(same) == "No regression beyond 2% found: 6 SAME and 1 AMBIGUOUS. fused-head may hide one."


def test_stages_share_the_notes_that_hold_for_them(found: Comparison) -> None:
    assert notes(found) == [
        "cuda-graph: crashed in the new run (killed by SIGSEGV).",
        "fused-head: fewer than 8 processes in a run show only large differences.",
        "gone: only in the first run.",
        "new: only in the new run.",
    ]


def test_changes_of_order_are_sentences() -> None:
    assert orders(compare_machines(recorded.machines())) == [
        "cublas is faster than async in runs/h200, slower in runs/a | b."
    ]
    same = compare_machines([("a", recorded.before())] * 3)
    assert orders(same) == ["No pair of rungs certainly changes order."]
