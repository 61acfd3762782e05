"""The picture of a ladder over a user's PyTorch model: a dot for each rung, and an arrow from its parent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ladder.records.torch_run import TorchResults
from reports.facts import numbers
from reports.facts.torch_rows import FUSED, TorchRow, machine, ratio, torch_rows
from reports.figures.canvas import Canvas
from reports.figures.chart import MARGIN, ChartLayout, Heading, Mark, Row, RowChart
from reports.figures.style import Colour

BOTTOM = 62  # pixels
AXIS = "microseconds per step, log scale (left is faster)"
CAPTION = "Arrow: from the parent, dotted within noise. Band: fastest to slowest run. Preparation is not counted."
PHONE_CAPTION = "Arrow: from the parent, dotted in noise. Band: runs."
INSTEAD = "instead"
HEADINGS: dict[str, tuple[str, Colour]] = {
    "CPU": ("The CPU runs every operation", "host"),
    "host": ("The host launches every kernel", "host"),
    "graph": ("CUDA graphs launch the kernels", "kernels"),
    INSTEAD: ("Common recipes, for comparison", "reference"),
}  # in the order of the picture


def shown(results: TorchResults) -> list[TorchRow]:
    """The timed rungs by what launches their kernels; common recipes are last, and no change is left out."""
    order = list(HEADINGS)
    timed = [row for row in torch_rows(results) if row.step_us is not None and row.rung.group != "left out"]
    return sorted(timed, key=lambda row: order.index(_kind(row)))


def _kind(row: TorchRow) -> str:
    return INSTEAD if row.rung.group == "instead" else row.regime


def headline(results: TorchResults) -> str:
    """The fastest time of a rung as exact, and its speedups.

    Such as `compiled-graph takes 100 us per step in float32: 26x over eager`.
    """
    rows = shown(results)
    own = [row for row in rows if row.rung.group != "instead"]
    exact = [row for row in own if row.is_exact]
    fastest = min(exact or rows, key=_median_us, default=None)
    if fastest is None:
        return "No rung was timed in this run"
    over = [row for row in rows if row is rows[0] or row.name == FUSED]
    known = [(row.name, ratio(row.rung, fastest.rung, results)) for row in over if row is not fastest]
    gains = [
        f"{numbers.ratio(gain.times)} over {name}" for name, gain in known if gain is not None and not gain.is_noise
    ]
    precision = " in float32" if exact else ""
    best = fastest if gains else rows[0]
    told = f"{best.name} takes {numbers.microseconds(_median_us(best))} us per step"
    return f"{told}{precision}: {', '.join(gains)}" if gains else told


def _median_us(row: TorchRow) -> float:
    """A timed rung's microseconds per step."""
    assert row.step_us is not None
    return row.step_us.median


def torch_ladder(results: TorchResults, layout: ChartLayout) -> Canvas:
    """The picture in a layout; at least one rung must have a time."""
    known = shown(results)
    layout = layout.fitted(row.name for row in known)
    chart = RowChart([(*HEADINGS[name], list(map(_row, rows))) for name, rows in groupby(known, key=_kind)])
    top = float(layout.top if layout.is_page else 62)
    bottom = top + chart.height(layout)
    subject = f"{results.model.file}, batch {results.model.batch_size}, {machine(results)}"
    canvas = Canvas(layout.width, bottom + BOTTOM, f"{headline(results)}: {subject}", _description(known))
    if not layout.is_page:
        Heading(headline(results), subject).draw(canvas)
    axis = chart.axis(layout)
    axis.draw_below(canvas, top - 6, bottom)
    chart.draw(canvas, top, axis, layout)
    canvas.text(layout.left, bottom + 34, AXIS, "faint", look="small")
    caption = CAPTION if layout.words is not None else PHONE_CAPTION
    canvas.text(layout.left if layout.is_page else MARGIN, bottom + 52, caption, "faint", look="small")
    return canvas


def _row(row: TorchRow) -> Row:
    """A rung as a row of the chart."""
    assert row.step_us is not None
    start = row.parent_us.median if row.parent_us is not None else None
    over = row.versus_parent
    speedup = over.over(row.rung.parent or "") if over is not None else ""
    is_noise = over is not None and over.is_noise
    mark = Mark(row.step_us, start, HEADINGS[_kind(row)][1], is_noise=is_noise, is_hollow=_kind(row) == INSTEAD)
    return Row(row.name, numbers.microseconds(row.step_us.median), mark, speedup, row.rung.words)


def _description(rows: Sequence[TorchRow]) -> str:
    """The picture in a sentence, for a reader who cannot see it."""
    times = [f"{row.name} {numbers.microseconds(_median_us(row))}" for row in rows]
    return f"Microseconds per step: {', '.join(times)}."
