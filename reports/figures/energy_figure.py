"""A run's figure of energy: joules per epoch of each stage, with its power and the idle GPU's share in columns."""

from __future__ import annotations

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.energy import joules, most_frugal
from reports.facts.run_table import headline_rungs
from reports.facts.stage_facts import regime_of
from reports.figures.canvas import Canvas
from reports.figures.chart import KEY_LINE, RADIUS, Heading, Scale, key_lines, legend
from reports.figures.ladder import COLOURS, regime_keys
from reports.figures.style import PIXELS, subject

MOST_RUNGS = 15
LEFT, RIGHT, TOP, ROW = 190, PIXELS - 196, 96, 22  # pixels: the axis, and a stage's height
COLUMNS = (("J/epoch", 78), ("watts", 128), ("idle", 176))  # pixels from the axis to the end of a column


def energies(results: Results) -> list[StageResult]:
    """The rungs of the front picture and the references whose energy is known, in the order of the table."""
    rungs = {stage.name for stage in headline_rungs(results, MOST_RUNGS)}
    shown = [stage for stage in results.stages if stage.name in rungs or stage.group == "reference"]
    return [stage for stage in shown if stage.energy is not None and stage.timing is not None]


def drawn(results: Results) -> Canvas:
    """The figure; at least one stage's energy must be known."""
    stages = energies(results)
    title = headline(results)
    bottom, keys = TOP + ROW * len(stages), regime_keys(stages)
    drawn_j = ", ".join(f"{stage.name} {joules(_drawn(stage))}" for stage in stages)
    canvas = Canvas(
        PIXELS, bottom + 62 + KEY_LINE * len(key_lines(keys)), f"{title}: {subject(results)}", f"{drawn_j}."
    )
    Heading(title, subject(results)).draw(canvas)
    canvas.text(12, 70, "joules per epoch of the whole GPU, log scale", "faint", look="small")
    for words, end in COLUMNS:
        canvas.text(RIGHT + end, TOP - 12, words, "faint", anchor="end", look="small bold")
    values = [_drawn(stage) for stage in stages]
    scale = Scale.log([min(values) / 1.3, max(values) * 1.3], LEFT, RIGHT, joules)
    scale.draw_below(canvas, TOP - 8, bottom)
    for number, stage in enumerate(stages):
        y = TOP + ROW * (number + 0.5)
        canvas.text(LEFT - 12, y + 4, stage.name, anchor="end", look="mono")
        canvas.dot(scale.place(_drawn(stage)), y, RADIUS, COLOURS[regime_of(stage)])
        assert stage.energy is not None
        cells = joules(_drawn(stage)).removesuffix(" J"), f"{stage.energy.watts:.0f}", f"{_idle_share(stage):.0%}"
        for words, (_, end) in zip(cells, COLUMNS, strict=True):
            canvas.text(RIGHT + end, y + 4, words, anchor="end", look="small")
    words = "Watts: the power while it trains. Idle: the share that the GPU would draw without work in the same time."
    canvas.text(12, bottom + 40, words, "faint", look="small")
    legend(canvas, keys, bottom + 52)
    return canvas


def headline(results: Results) -> str:
    """The most frugal rung's energy, beside that of the most frugal reference; of references alone the least."""
    rung, reference = most_frugal(results)
    best = rung or min(energies(results), key=_drawn)
    told = f"{best.name} takes {joules(_drawn(best))} per epoch"
    if rung is None or reference is None:
        return f"{told}, {_idle_share(best):.0%} of it idle energy"
    return f"{told}, {reference.name} {numbers.ratio(_drawn(reference) / _drawn(rung))} as much"


def _drawn(stage: StageResult) -> float:
    assert stage.energy is not None
    return stage.energy.joules


def _idle_share(stage: StageResult) -> float:
    """The share of its energy that the idle GPU would have drawn in the same time."""
    assert stage.energy is not None
    return stage.energy.idle_w / stage.energy.watts
