"""A run's figure of energy: joules an epoch of each rung, and what the idle GPU draws in the same time."""

from __future__ import annotations

from collections.abc import Sequence

from ladder.records.run import Results, StageResult
from reports.facts.energy import joules
from reports.facts.headline_rungs import headline_rungs
from reports.facts.launch_regimes import regime
from reports.figures.canvas import Canvas
from reports.figures.chart import KEY_LINE, RADIUS, Heading, Scale, key_lines, legend
from reports.figures.ladder import COLOURS, regime_keys
from reports.figures.style import PIXELS, Colour, subject

MOST_RUNGS = 15
LEFT, RIGHT, TOP, ROW = 190, PIXELS - 170, 96, 22  # pixels: the axis, and a stage's height


def energies(results: Results) -> list[StageResult]:
    """The rungs of the front picture and the references whose energy is known, in the order of the table."""
    rungs = {stage.name for stage in headline_rungs(results, MOST_RUNGS)}
    shown = [stage for stage in results.stages if stage.name in rungs or stage.group == "reference"]
    return [stage for stage in shown if stage.energy is not None and stage.timing is not None]


def drawn(results: Results) -> Canvas:
    """The figure; at least one stage's energy must be known."""
    stages = energies(results)
    title = headline(stages)
    bottom, keys = TOP + ROW * len(stages), regime_keys(stages)
    drawn_j = ", ".join(f"{stage.name} {joules(_drawn(stage))}" for stage in stages)
    canvas = Canvas(
        PIXELS, bottom + 62 + KEY_LINE * len(key_lines(keys)), f"{title}: {subject(results)}", f"{drawn_j}."
    )
    Heading(title, subject(results)).draw(canvas)
    canvas.text(12, 70, "joules an epoch of the whole GPU, log scale", "faint", look="small")
    values = [value for stage in stages for value in (_drawn(stage), _idle(stage)) if value > 0]
    low, high = min(values) / 1.3, max(values) * 1.3
    scale = Scale.log([low, high], LEFT, RIGHT, joules)
    scale.draw_below(canvas, TOP - 8, bottom)
    for number, stage in enumerate(stages):
        y = TOP + ROW * (number + 0.5)
        colour: Colour = "reference" if stage.group == "reference" else COLOURS[regime(stage)]
        canvas.text(LEFT - 12, y + 4, stage.name, anchor="end", look="mono")
        idle, at = scale.place(max(_idle(stage), low)), scale.place(_drawn(stage))
        canvas.line([(idle, y), (at, y)], colour)
        canvas.dot(idle, y, RADIUS, colour, hollow=True)
        canvas.dot(at, y, RADIUS, colour)
        assert stage.energy is not None
        canvas.text(RIGHT + 14, y + 4, f"{joules(_drawn(stage))}, {stage.energy.watts:.0f} W", look="small")
    words = "Dot: drawn while training. Ring: what the GPU draws without work in the same time."
    canvas.text(12, bottom + 40, words, "faint", look="small")
    legend(canvas, keys, bottom + 52)
    return canvas


def headline(stages: Sequence[StageResult]) -> str:
    """The most frugal stage, and the share of its energy that an idle GPU would draw."""
    best = min(stages, key=_drawn)
    return f"{best.name}: {joules(_drawn(best))} an epoch, {_idle(best) / _drawn(best):.0%} of it idle power"


def _drawn(stage: StageResult) -> float:
    assert stage.energy is not None
    return stage.energy.joules


def _idle(stage: StageResult) -> float:
    """Joules of the idle GPU in the time of an epoch, as the loop that measured it took it."""
    assert stage.energy is not None
    return stage.energy.idle_w * stage.energy.joules / stage.energy.watts
