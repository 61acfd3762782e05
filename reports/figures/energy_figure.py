"""A run's figure of energy: joules per epoch of each stage, with its power and the idle GPU's share."""

from __future__ import annotations

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.energy import joules, most_frugal
from reports.facts.run_table import headline_rungs
from reports.facts.stage_facts import regime_of
from reports.figures.canvas import Canvas
from reports.figures.chart import ChartLayout, Heading, Mark, Row, RowChart
from reports.figures.ladder import COLOURS, regime_keys
from reports.figures.style import PIXELS, subject

MOST_RUNGS = 15
LAYOUT = ChartLayout(PIXELS, 190, 630, 644, top=0, row=22)
NOTE = "W: the power while it trains. Idle: the share that the GPU would draw without work in the same time."


def energies(results: Results) -> list[StageResult]:
    """The rungs of the front picture and the references whose energy is known, in the order of the table."""
    rungs = {stage.name for stage in headline_rungs(results, MOST_RUNGS)}
    shown = [stage for stage in results.stages if stage.name in rungs or stage.group == "reference"]
    return [stage for stage in shown if stage.energy is not None and stage.timing is not None]


def drawn(results: Results) -> Canvas:
    """The figure; at least one stage's energy must be known."""
    stages = energies(results)
    values = [_drawn(stage) for stage in stages]
    told = ", ".join(f"{stage.name} {joules(_drawn(stage))}" for stage in stages)
    chart = RowChart(
        [("", "ink", list(map(_row, stages)))],
        "joules per epoch of the whole GPU, log scale",
        [NOTE],
        regime_keys(stages),
        [min(values) / 1.3, max(values) * 1.3],
        joules,
    )
    return chart.drawn(Heading(headline(results), subject(results), look="bold"), LAYOUT, f"{told}.")


def _row(stage: StageResult) -> Row:
    """A stage's name and dot, and its energy, its power and the idle GPU's share in words."""
    assert stage.energy is not None
    words = f"{joules(_drawn(stage))}, {stage.energy.watts:.0f} W, {_idle_share(stage):.0%} idle"
    return Row(stage.name, "", Mark(_drawn(stage), COLOURS[regime_of(stage)]), "", words, colour="ink")


def headline(results: Results) -> str:
    """The most frugal rung's energy, beside that of the most frugal reference; of references alone the least."""
    rung, reference = most_frugal(results)
    best = rung or min(energies(results), key=_drawn)
    told = f"{best.name} takes {joules(_drawn(best))} per epoch"
    if rung is None or reference is None:
        return f"{told}, {_idle_share(best):.0%} of it idle energy"
    times = numbers.ratio(_drawn(reference) / _drawn(rung))
    return f"{told}; {reference.name}, the most frugal reference as exact, {times} as much"


def _drawn(stage: StageResult) -> float:
    assert stage.energy is not None
    return stage.energy.joules


def _idle_share(stage: StageResult) -> float:
    """The share of its energy that the idle GPU would have drawn in the same time."""
    assert stage.energy is not None
    return stage.energy.idle_w / stage.energy.watts
