"""A comparison as plain data; tests/golden/comparisons.txt has what is said of runs."""

from __future__ import annotations

import json

import pytest

from reports.facts.many_runs import compare_machines
from reports.facts.two_runs import compare
from reports.screens.compare import comparison_screen, machines_screen
from reports.writers.write import write
from tests.reports import recorded


def test_json_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(recorded.before(), recorded.after(), ("runs/old", "runs/a | b"))
    write(comparison_screen(found), "json")
    read = json.loads(capsys.readouterr().out)
    assert (read["base"], read["new"], read["exit_code"], read["threshold"]) == ("runs/old", "runs/a | b", 1, 0.02)
    naive = read["stages"][0]
    assert (naive["verdict"], naive["regression"]) == ("SLOWER", True)
    assert naive["low"] < naive["ratio"] < naive["high"]
    assert read["warnings"] == found.warnings
    write(machines_screen(compare_machines(recorded.machines())), "json")
    assert json.loads(capsys.readouterr().out)["runs"] == ["runs/h200", "runs/again", "runs/a | b"]
