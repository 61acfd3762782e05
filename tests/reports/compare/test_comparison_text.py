"""The forms of a comparison; tests/golden has their exact text."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from reports.compare.comparison_text import conclusion, markdown_of_two, orders, print_comparison
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


def test_a_run_against_itself_names_no_regression_and_markdown_is_not_wrapped(found: Comparison) -> None:
    same = compare(recorded.before(), recorded.before(), ("a", "b"))
    assert conclusion(same) == "No regression beyond 2% found: 6 SAME and 1 AMBIGUOUS. fused-head may hide one."
    assert orders(compare_machines([("a", recorded.before())] * 3)) == ["No pair of rungs certainly changes order."]
    assert printed(found, "markdown", width=20) == markdown_of_two(found)
