"""What a run tells of energy, and of the time to an accuracy."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.run import Energy, LossPoint, Results
from reports.facts.energy import above_idle, has_energy, how_to_read_energy, saving, to_accuracy, why_none
from reports.figures.energy_figure import drawn, energies, headline
from reports.screens.details import details, energy
from reports.screens.run import run_screen
from tests.reports import sample
from tests.reports.figures.svg import assert_texts_apart, words
from tests.reports.reporting import report, rows_of, table_below

DRAWN = Energy(joules=0.4, watts=300.0, idle_w=120.0, seconds=5.1)
TARGET = 0.9


def measured() -> Results:
    """A run whose `async` and `cublas` were measured, and reach 90% after the third epoch and never."""
    run = sample.results()
    settings = replace(run.settings, energy=True, target_accuracy=TARGET)
    for name, best in (("async", 0.93), ("cublas", 0.89)):
        stage = next(stage for stage in run.stages if stage.name == name)
        first, *others = stage.processes
        assert stage.metrics is not None
        points = [LossPoint(epoch, 0.3, best - 0.1 / epoch) for epoch in range(1, 6)]
        run = sample.replace_stage(
            run,
            name,
            processes=[replace(first, energy=DRAWN), *others],
            metrics=replace(stage.metrics, validation=points),
        )
    return replace(run, settings=settings)


def test_the_way_to_an_accuracy_is_epochs_times_an_epoch() -> None:
    run = measured()
    stages = {stage.name: stage for stage in run.stages}
    found = to_accuracy(stages["async"], TARGET)
    assert found is not None
    timing = stages["async"].timing
    assert timing is not None
    assert (found.epochs, found.seconds) == (4, 4 * timing.epoch_s.median)
    assert found.joules == pytest.approx(4 * DRAWN.joules)
    assert found.text.startswith("4 epochs, ")
    assert found.text.endswith(", 1.6 J")
    never = to_accuracy(stages["cublas"], TARGET)
    assert never is not None
    assert (never.is_reached, never.text) == (False, f"not in {timing.epochs} epochs")
    assert to_accuracy(stages["naive"], TARGET) is None  # it did not validate
    assert to_accuracy(stages["async"], None) is None


def test_tables_have_energy_where_it_was_measured() -> None:
    run = measured()
    table = table_below(details(run), "Energy")
    headers = [column.header for column in table.columns]
    assert headers == [
        "Stage",
        "J/epoch",
        "x less than",
        "Above idle",
        "ms",
        "W",
        "Idle W",
        "To 90%",
    ]
    lines = [list(row.values()) for row in rows_of(table)]
    assert [line[0] for line in lines] == ["`async`", "`cublas`"]
    assert lines[1][1:] == ["0.4 J", "1.00x async", "0.24 J", "1.33", "300", "120", "not in 20 epochs"]
    assert "climbs from, over its own. To an accuracy: epochs" in how_to_read_energy(run)
    assert "| `cublas` | 0.4 J | 1.00x async | 0.24 J | 1.33 | 300 | 120 | not in 20 epochs |" in report(run)
    assert [above_idle(replace(DRAWN, watts=watts)) for watts in (123.0, 125.0)] == ["-", "0.016 J"]
    facts = {stage["name"]: stage for stage in run_screen(run).facts["stages"]}
    assert (facts["async"]["energy"], facts["naive"]["energy"]) == (DRAWN, None)


def test_a_rung_s_energy_is_told_beside_the_most_frugal_reference_s() -> None:
    run = measured()
    assert saving(run) == ""
    for name, spent in (("jax-scan", 1.2), ("torch-eager", 0.9)):
        (first,) = next(stage for stage in run.stages if stage.name == name).processes
        run = sample.replace_stage(run, name, processes=[replace(first, energy=replace(DRAWN, joules=spent))])
    run = sample.replace_stage(run, "torch-eager", precision="bfloat16")  # less exact, and so no reference of `async`
    said = "`async` takes 0.4 J per epoch, 40% of it idle energy; `jax-scan`, the most frugal reference at least as "
    assert saving(run) == f"{said}exact, takes 3.00 times as much"
    assert headline(run) == "async takes 0.4 J per epoch, jax-scan 3.00x as much"


def test_a_run_without_energy_says_nothing_of_it_or_why_there_is_none() -> None:
    run = sample.results()
    assert energy(run) == []
    assert (has_energy(run), how_to_read_energy(run), why_none(run), energies(run)) == (False, "", "", [])
    (first, *others) = next(stage for stage in run.stages if stage.name == "async").processes
    asked = replace(first, no_energy="it stands still")
    assert why_none(sample.replace_stage(run, "async", processes=[asked, *others])) == "it stands still"


def test_the_figure_names_the_most_frugal_rung() -> None:
    run = measured()
    assert headline(run) == "async takes 0.4 J per epoch, 40% of it idle energy"
    drawing = drawn(run).svg()
    assert {"async", "cublas", "J/epoch", "0.4", "watts", "300", "idle", "40%"} <= set(words(drawing))
    assert_texts_apart(drawing)
