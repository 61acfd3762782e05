"""The picture of a ladder over a user's PyTorch model: a dot for each rung, and an arrow from its parent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ladder.records.torch_run import TorchResults
from reports.facts import numbers
from reports.facts.torch_rows import FUSED, TorchRow, machine, ratio, torch_rows
from reports.figures.canvas import Canvas
from reports.figures.chart import BESIDE, ROOM, LogAxis, Mark, draw_mark
from reports.figures.ladder import LadderLayout
from reports.figures.style import Colour

HEADING, BOTTOM = 30, 62  # pixels
ROW, PHONE_ROW = 36, 58  # pixels: the height of a rung with two lines of words, and below its name
KEY = 7  # pixels between a heading and the dot of its colour
AXIS = "microseconds per step, log scale (left is faster)"
CAPTION = "Arrow: from the parent, dotted within noise. Band: fastest to slowest run."
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
    """The first time, the fastest of a rung as exact, and its speedups: `2,600 to 100 us per step: 26x over eager`."""
    rows = shown(results)
    own = [row for row in rows if row.rung.group != "instead"]
    exact = [row for row in own if row.rung.status == "passed" and row.rung.precision == "float32"]
    fastest = min(exact or rows, key=_median_us, default=None)
    if fastest is None:
        return "No rung was timed in this run"
    first, best = (numbers.microseconds(_median_us(row)) for row in (rows[0], fastest))
    over = [row for row in rows if row is rows[0] or row.name == FUSED]
    known = [(row.name, ratio(row.rung, fastest.rung, results)) for row in over if row is not fastest]
    gains = [
        f"{numbers.ratio(gain.times)} over {name}" for name, gain in known if gain is not None and not gain.is_noise
    ]
    return f"{first} to {best} us per step: {', '.join(gains)}" if gains else f"{first} us per step"


def _median_us(row: TorchRow) -> float:
    """A timed rung's microseconds per step."""
    assert row.step_us is not None
    return row.step_us.median


def torch_ladder(results: TorchResults, layout: LadderLayout) -> Canvas:
    """The picture in a layout; at least one rung must have a time."""
    rows = shown(results)
    height = ROW if layout.words is not None else PHONE_ROW
    groups = [(name, list(members)) for name, members in groupby(rows, key=_kind)]
    top = float(layout.top if layout.is_page else 62)
    bottom = top + sum(HEADING + height * len(members) for _, members in groups)
    subject = f"{results.model.file}, batch {results.model.batch_size}, {machine(results)}"
    canvas = Canvas(layout.width, bottom + BOTTOM, f"{headline(results)}: {subject}", _description(rows))
    spreads = [row.step_us for row in rows if row.step_us is not None]
    room = ROOM if layout.words is not None else BESIDE / 2
    axis = LogAxis.of([end for one in spreads for end in (one.min, one.max)], layout.left, layout.right, room)
    if not layout.is_page:
        canvas.text(12, 24, headline(results), look="bold large")
        canvas.text(12, 44, subject, "faint")
    axis.draw(canvas, top - 6, bottom)
    for name, members in groups:
        words, colour = HEADINGS[name]
        canvas.dot(layout.left + KEY, top + 15, 4.5, colour, hollow=name == INSTEAD)
        canvas.text(layout.left + 3 * KEY, top + 19, words, colour, look="bold halo")
        top += HEADING
        for row in members:
            _draw_row(canvas, row, top + height / 2, axis, layout, colour)
            top += height
    canvas.text(layout.left, bottom + 34, AXIS, "faint", look="small")
    caption = CAPTION if layout.words is not None else PHONE_CAPTION
    canvas.text(layout.left if layout.is_page else 12, bottom + 52, caption, "faint", look="small")
    return canvas


def _draw_row(
    canvas: Canvas, row: TorchRow, middle: float, axis: LogAxis, layout: LadderLayout, colour: Colour
) -> None:
    """A rung: its name, arrow, spread, dot and time, and its speedup above the words on its change."""
    assert row.step_us is not None
    time = numbers.microseconds(row.step_us.median)
    start = row.parent_us.median if row.parent_us is not None else None
    is_noise = row.versus_parent is not None and row.versus_parent.is_noise
    mark = Mark(row.step_us, start, colour, is_noise=is_noise, is_hollow=_kind(row) == INSTEAD)
    if layout.words is None:
        canvas.text(layout.left, middle - 12, row.name, look="mono halo")
        canvas.text(layout.right, middle - 12, time, anchor="end", look="bold halo")
        draw_mark(canvas, mark, middle, axis)
        if told := speedup(row):
            canvas.text(layout.left, middle + 18, told, "faint", look="small halo")
        return
    canvas.text(layout.left - 14, middle + 4, row.name, anchor="end", look="mono")
    low, _ = draw_mark(canvas, mark, middle, axis)
    canvas.text(low - 5, middle + 4, time, anchor="end", look="bold halo")  # spreads leave no room on the right
    lines = [line for line in (speedup(row), row.rung.words) if line]
    for number, line in enumerate(lines):
        canvas.text(layout.words, middle + 4 - 7 * (len(lines) - 1) + 14 * number, line, "faint", look="small")


def speedup(row: TorchRow) -> str:
    """The speedup with the name of the parent: `1.42x over step-graph`; empty without one."""
    if row.versus_parent is None:
        return ""
    if row.versus_parent.is_noise:
        return f"as fast as {row.rung.parent}, within noise"
    return f"{numbers.ratio(row.versus_parent.times)} over {row.rung.parent}"


def _description(rows: Sequence[TorchRow]) -> str:
    """The picture in a sentence, for a reader who cannot see it."""
    times = [f"{row.name} {numbers.microseconds(_median_us(row))}" for row in rows]
    return f"Microseconds per step: {', '.join(times)}."
