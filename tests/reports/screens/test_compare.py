"""Several runs side by side, and the forms of a comparison; tests/golden has their exact text."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from reports.facts.many_runs import MachineCell, OrderChange, compare_machines
from reports.facts.two_runs import CannotCompareError, Comparison, compare
from reports.screens.compare import comparison_screen, conclusion, machines_screen, orders
from reports.writers.write import write
from tests.reports import recorded
from tests.reports.facts.test_two_runs import on_cpu
from tests.reports.recorded import run, stage, times


def test_every_stage_of_any_run_has_a_row_and_rungs_that_certainly_change_order_are_named() -> None:
    found = compare_machines(recorded.machines())
    rows = {row.name: row.cells for row in found.rows}  # the others: tests/golden/machines.txt
    assert rows["gone"][1:] == [MachineCell(), MachineCell()]
    assert (rows["naive"][0].ratio, rows["naive"][0].verdict) == (None, None)
    assert found.order_changes == [OrderChange("cublas", "async", ["runs/h200"], ["runs/a | b"])]
    assert found.within_noise == 0


def test_rungs_that_may_have_changed_order_are_counted() -> None:
    one = run(stage("naive", times(50.0, scatter=0.2)), stage("async", times(49.0, scatter=0.2)))
    two = run(stage("naive", times(50.0)), stage("async", times(51.0)))
    found = compare_machines([("one", one), ("two", two), ("three", two)])
    assert (found.order_changes, found.within_noise) == ([], 1)


def test_references_are_no_rungs() -> None:
    one = run(stage("naive", times(50.0)), stage("numpy", times(60.0), group="reference"))
    two = run(stage("naive", times(50.0)), stage("numpy", times(40.0), group="reference"))
    assert compare_machines([("one", one), ("two", two), ("two again", two)]).order_changes == []


def test_a_stage_that_the_first_run_lacks_is_shown_without_a_ratio() -> None:
    found = compare_machines([("a", run(stage("x", times(1.0)))), ("b", run(stage("y", times(2.0)))), ("c", run())])
    assert [cell.ratio for row in found.rows for cell in row.cells] == [None] * 6
    assert found.rows[1].cells[1].step_us == pytest.approx(2.0)


def test_a_difference_that_the_cpu_speed_explains_is_ambiguous_here_too() -> None:
    runs = [("a", on_cpu(100.0, 1.0)), ("b", on_cpu(130.0, 1.3)), ("c", on_cpu(130.0, 1.3, cpu="another CPU"))]
    (row,) = compare_machines(runs).rows
    assert [cell.verdict for cell in row.cells] == [None, "AMBIGUOUS", "SLOWER"]


def test_a_run_named_twice_is_the_same_whatever_its_noise() -> None:
    noisy, other = (run(stage("naive", times(us, scatter=0.3))) for us in (50.0, 50.1))
    (row,) = compare_machines([("a", noisy), ("a again", noisy), ("b", other)]).rows
    assert [(cell.ratio, cell.verdict) for cell in row.cells[:2]] == [(None, None), (1.0, "SAME")]
    assert row.cells[2].verdict == "AMBIGUOUS"


def test_incomparable_runs_are_refused() -> None:
    one = run(stage("naive", times(50.0)))
    other = replace(one, problem=replace(one.problem, batch_size=64))
    with pytest.raises(CannotCompareError, match="a and c: different batch sizes"):
        compare_machines([("a", one), ("b", one), ("c", other)])
    with pytest.raises(CannotCompareError, match="a, b, c: no stage was timed"):
        compare_machines([("a", run()), ("b", run()), ("c", run())])


@pytest.fixture
def found() -> Comparison:
    return compare(recorded.before(), recorded.after(), ("runs/old", "runs/a | b"))


def test_json_is_whole(found: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    write(comparison_screen(found), "json")
    read = json.loads(capsys.readouterr().out)
    assert (read["base"], read["new"], read["exit_code"], read["threshold"]) == ("runs/old", "runs/a | b", 1, 0.02)
    naive = read["stages"][0]
    assert naive["verdict"] == "SLOWER"
    assert naive["regression"] is True
    assert naive["low"] < naive["ratio"] < naive["high"]
    assert read["warnings"] == found.warnings
    write(machines_screen(compare_machines(recorded.machines())), "json")
    assert json.loads(capsys.readouterr().out)["runs"] == ["runs/h200", "runs/again", "runs/a | b"]


def test_a_run_against_itself_names_no_regression() -> None:
    same = compare(recorded.before(), recorded.before(), ("a", "b"))
    assert conclusion(same) == "No regression beyond 2% found: 6 SAME and 1 AMBIGUOUS. fused-head may hide one."
    assert orders(compare_machines([("a", recorded.before())] * 3)) == ["No pair of rungs certainly changes order."]
