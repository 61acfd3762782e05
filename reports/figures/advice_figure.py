"""What `advise` expects of each way to train, by regime: a dot at the time of a step, and a band for its range."""

from __future__ import annotations

from pathlib import Path

from ladder.records.expectation import CAPTURED, Outlook, Outlooks
from ladder.records.program import atomic_write
from reports.facts import numbers
from reports.facts.advice import REFERENCES, deciding, expected_us, gain
from reports.figures.canvas import Canvas
from reports.figures.chart import FILE, Heading, Mark, Row, RowChart
from reports.figures.ladder import AXIS, COLOURS, by_regime

NOTE = (
    "Band: nine in ten should lie within it{}; a narrow one is behind its dot. {}Loading and compiling are not counted."
)
JUDGED = f" ({CAPTURED}'s is judged, not tested)"
BY_MODEL = "~: by a model{}. "
OTHERS = "; other times are recorded or measured"


def advice_figure(outlooks: Outlooks) -> Canvas:
    """The figure."""
    stages = deciding(outlooks)
    best, by_model = min(stages, key=expected_us), list(map(_is_by_model, stages))
    judged = JUDGED * any(one.name == CAPTURED for one in stages)
    chart = RowChart(
        by_regime((None if one.group == "reference" else one.regime, _row(one, one is best)) for one in stages),
        AXIS,
        [NOTE.format(judged, BY_MODEL.format(OTHERS * (not all(by_model))) * any(by_model))],
    )
    guess = f". {outlooks.guess}" if outlooks.guess else ""
    subject = f"{outlooks.network}, batch {outlooks.batch_size}, predicted for {outlooks.gpu}{guess}"
    return chart.drawn(Heading(_headline(stages, best), subject), FILE)


def draw_advice(outlooks: Outlooks, file: Path) -> None:
    """Write the figure into a file; OSError if that cannot be written."""
    atomic_write(file, advice_figure(outlooks).svg())


def _headline(stages: list[Outlook], best: Outlook) -> str:
    """The fastest way, over eager mode and over the fastest library, or which of them may be as fast."""
    precision = "" if best.precision == "float32" else f" in {numbers.precision(best.precision)}"
    told = f"{best.name} should take {numbers.microseconds(expected_us(best))} us per step{precision}"
    libraries = [one for one in stages if one.name in REFERENCES and one is not best]
    over = {one.name: one for one in (*libraries[:1], *sorted(libraries, key=expected_us)[:1])}
    said = [
        f"{gained.text} as fast as {name}" if (gained := gain(one, best)).is_sure else f"{name} may be as fast"
        for name, one in over.items()
    ]
    return ": ".join(filter(None, [told, ", ".join(said)]))


def _is_by_model(one: Outlook) -> bool:
    return not one.is_recorded and one.measured_us is None


def _row(one: Outlook, is_best: bool) -> Row:
    """A way to train as a row of the chart; a measured one has no range."""
    colour = COLOURS[None if one.group == "reference" else one.regime or "unknown"]
    is_hollow = one.group == "reference"
    mark = Mark(one.us, colour, band=(one.low_us, one.high_us), is_hollow=is_hollow)
    if one.measured_us is not None:
        mark = Mark(one.measured_us, colour, is_hollow=is_hollow)
    value = f"{'~' * _is_by_model(one)}{numbers.microseconds(mark.value)}"
    precision = "" if one.precision == "float32" else f" ({numbers.precision(one.precision)})"
    words = REFERENCES.get(one.name, one.words) + precision
    return Row(one.name, value, mark, "", words, is_best=is_best)
