"""A run's figure of energy: joules per epoch of each stage, with its power and the idle GPU's share."""

from __future__ import annotations

from collections.abc import Sequence

from ladder.records.run import Results, StageResult
from reports.facts.energy import energy_of, joules, most_frugal, saving, taken
from reports.facts.run_table import headline_rungs
from reports.facts.stage_facts import regime_of
from reports.figures.canvas import Canvas
from reports.figures.chart import FILE, NARROW, ChartLayout, Heading, Mark, Row, RowChart
from reports.figures.ladder import COLOURS, by_regime
from reports.figures.style import PIXELS, subject

MOST_RUNGS = 15
WIDE = ChartLayout(PIXELS, 190, 630, 644, top=0, row=22)
NOTE = "W: the GPU's power while it trains, and at rest, where no kernel runs."


def energies(results: Results) -> list[StageResult]:
    """The rungs of the front picture and the references whose energy is known, in the order of the table."""
    rungs = {stage.name for stage in headline_rungs(results, MOST_RUNGS)}
    shown = [stage for stage in results.stages if stage.name in rungs or stage.group == "reference"]
    return [stage for stage in shown if stage.energy is not None and stage.timing is not None]


def drawn(results: Results, asked: ChartLayout = FILE, beside: Sequence[Results] = ()) -> Canvas:
    """The figure, on one axis with those of other runs; at least one stage's energy must be known."""
    layout = WIDE if asked.words is not None else NARROW
    stages = energies(results)
    values = [energy_of(stage).joules for run in (results, *beside) for stage in energies(run)]
    about = f"{subject(results)}, {_validation(results.problem.validate_every)}"
    chart = RowChart(
        by_regime((regime_of(stage), _row(stage, layout, stage is _best(results))) for stage in stages),
        "joules per epoch of the whole GPU, log scale (left is less)",
        [NOTE] * (layout is WIDE),
        [min(values) / 1.3, max(values) * 1.3],
        joules,
    )
    return chart.drawn(Heading(headline(results), about, layout.width, "bold"), layout)


def _validation(every: int) -> str:
    """Whether the epochs contain validations."""
    often = "each epoch" if every == 1 else f"every {every:,} epochs"
    return f"with validation after {often}" if every else "without validation"


def _row(stage: StageResult, layout: ChartLayout, is_best: bool) -> Row:
    """A stage's name and dot, and its energy, its power and the idle GPU's in words; in a narrow one the energy."""
    own = energy_of(stage)
    words = f"{joules(own.joules)}, {own.watts:.0f} W (at rest {own.idle_w:.0f} W)"
    mark = Mark(own.joules, COLOURS[regime_of(stage)], is_hollow=stage.group == "reference")
    value = joules(own.joules) if layout is NARROW else ""
    return Row(stage.name, value, mark, "", words, colour="ink", is_best=is_best)


def _best(results: Results) -> StageResult:
    """The most frugal rung; of references alone, of these."""
    return most_frugal(results)[0] or min(energies(results), key=lambda stage: energy_of(stage).joules)


def headline(results: Results) -> str:
    """The most frugal rung's energy, beside that of the most frugal reference; of references alone the least."""
    return (saving(results) or taken(_best(results))).replace("`", "")
