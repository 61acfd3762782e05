"""The picture of a run: a dot a rung on a log axis of us/step, and an arrow from the rung that it climbs from.

Above the rungs, a hollow dot a reference: the times of PyTorch and JAX that a reader knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from urllib.parse import quote

from ladder.records.exactness import precision_class
from ladder.records.run import MOST_LETTERS, Results, Spread, StageResult
from reports.facts import numbers
from reports.facts.baselines import Lead, host_times, lead, overall_winner, ratio, references
from reports.facts.grouped import grouped
from reports.facts.headline_rungs import MOST_RUNGS, headline_rungs, timed_rungs
from reports.facts.launch_regimes import HEADINGS, Regime, change_in_words, regime
from reports.facts.ratios import Ratio
from reports.facts.run_table import MARKS, disturbed_mark, name_of
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    EDGE,
    FILE,
    ONE_LINE,
    ROOM,
    ChartLayout,
    Heading,
    Key,
    Mark,
    Row,
    Scale,
    plate,
    text_width,
)
from reports.figures.style import Colour, subject

FARTHEST = 10  # times the slowest rung: a slower reference would squeeze the axis
HEADING, BOTTOM = 30, 62  # pixels
LABEL = 16  # pixels: the height of a reference line's words, and of a line of the caption
SAMPLE = 26  # pixels of a reference's line, before its words
AXIS = "microseconds a training step, log scale (left is faster)"
REFERENCES = "References: the same training in a framework"
DASHES = ("5 4", "2 3", "9 3 2 3")
# By regime; None: the stage is a reference.
COLOURS: dict[Regime | None, Colour] = {
    "host": "host", "graph": "kernels", "one kernel": "one-kernel", "CPU": "host", "unknown": "faint", None: "reference"
}  # fmt: skip


@dataclass(frozen=True)
class Dot:
    """A timed stage, its spread in us/step, and its parent's if that was timed too."""

    stage: StageResult
    step_us: Spread
    parent_us: Spread | None
    regime: Regime | None  # None for a reference
    over_parent: Ratio | None

    @property
    def is_noise(self) -> bool:
        """Whether the difference from the parent is within the noise."""
        return self.over_parent is not None and self.over_parent.is_noise

    def row(self) -> Row:
        """The stage as a row of the chart."""
        time = numbers.microseconds(self.step_us.median) + disturbed_mark(self.stage)
        start = self.parent_us.median if self.parent_us is not None else None
        mark = Mark(self.step_us, start, COLOURS[self.regime], is_noise=self.is_noise, is_hollow=self.regime is None)
        speedup = self.over_parent.over(self.stage.below or "") if self.over_parent is not None else ""
        return Row(name_of(self.stage), time, mark, speedup, _words(self))


def dots(results: Results, *, is_page: bool = False) -> list[Dot]:
    """The rungs that the picture shows, on a page every timed one; the references if no rung was timed."""
    rungs = timed_rungs(results) if is_page else headline_rungs(results, MOST_RUNGS)
    return _dots(results, rungs or references(results))


def reference_dots(results: Results, shown: Sequence[Dot]) -> list[Dot]:
    """The references above those rungs: on their kind of device, and not so slow that nothing else would be seen."""
    if not shown[0].regime:
        return []
    devices, slowest = {dot.stage.device for dot in shown}, max(dot.step_us.median for dot in shown)
    device = "gpu" if "gpu" in devices else "cpu"
    dots = _dots(results, [stage for stage in references(results) if stage.device == device])
    return [dot for dot in dots if dot.step_us.median <= FARTHEST * slowest]


def _dots(results: Results, shown: Sequence[StageResult]) -> list[Dot]:
    stages = {stage.name: stage for stage in results.stages}
    dots = []
    for stage in shown:
        parent = stages.get(stage.below or "")
        own = step_us(stage)
        if own is not None and own.min > 0:  # a log axis has no zero
            kind = regime(stage) if stage.group != "reference" else None
            dots.append(Dot(stage, own, step_us(parent), kind, ratio(parent, stage)))
    return dots


def drawn(results: Results, layout: ChartLayout = FILE) -> Canvas:
    """The picture in a layout; at least one stage must have a time."""
    shown = dots(results, is_page=layout.is_page)
    every = [*(reference_dots(results, shown) if layout.has_references else ()), *shown]
    lines = _reference_lines(results, shown, layout)
    heading = Heading(headline(shown, results), subject(results))
    folded = 0 if layout.is_page else heading.bottom - ONE_LINE
    layout = replace(layout, top=layout.top + LABEL * max(len(lines) - 1, 0) + folded)
    layout = layout.fitted(name_of(dot.stage) for dot in every)
    groups = [(name, list(members)) for name, members in groupby(every, key=lambda dot: dot.regime)]
    rows = {dot.stage.name: dot.row() for dot in every}
    bottom = layout.top + HEADING * len(groups) + sum(row.height(layout) for row in rows.values())
    # A page explains the marks of disturbed times in its own words.
    has_marks = not layout.is_page and any(disturbed_mark(dot.stage) for dot in every)
    height = bottom + BOTTOM + LABEL * has_marks
    canvas = Canvas(layout.width, height, f"{heading.title}: {heading.subject}", _description(results, every))
    room = ROOM if layout.words else EDGE  # for the fastest rung's time on its left
    ends = [end for dot in every for end in (dot.step_us.min, dot.step_us.max)]
    axis = Scale.with_room(ends, layout.left, layout.right, room)
    if not layout.is_page:
        heading.draw(canvas)
    axis.draw_below(canvas, layout.top - 6, bottom)
    at = (axis.place(winner.reference_us) for winner, _ in lines if axis.holds(winner.reference_us))
    layout = replace(layout, lines=tuple(at))
    for index, (winner, words) in enumerate(lines):
        above = layout.top - 14 - LABEL * (len(lines) - 1 - index)
        _reference_line(canvas, winner, words, axis, (above, bottom), layout, DASHES[index % len(DASHES)])
    top = float(layout.top)
    for name, members in groups:
        words = HEADINGS[name] if name else REFERENCES
        plate(canvas, layout.left, top + 19, words, "bold", lines=layout.lines)
        canvas.text(layout.left, top + 19, words, COLOURS[name], look="bold halo")
        top += HEADING
        for dot in members:
            with ExitStack() as within:
                row = rows[dot.stage.name]
                if layout.is_page and dot in shown:
                    _link(canvas, within, dot, results, (top, row.height(layout)), layout)
                row.draw(canvas, top, axis, layout)
            top += row.height(layout)
    canvas.text(layout.left, bottom + 34, AXIS, "faint", look="small")
    caption = " ".join(_caption(results, every, layout))
    canvas.text(layout.left if layout.is_page else 12, bottom + 52, caption, "faint", look="small")
    if has_marks:
        canvas.text(12, bottom + 52 + LABEL, MARKS, "faint", look="small")
    return canvas


def regime_keys(stages: Iterable[StageResult]) -> list[Key]:
    """What the colours of these stages mean: one entry for stages of the same colour."""
    there = {None if stage.group == "reference" else regime(stage) for stage in stages}
    named = grouped((COLOURS[name], words) for name, words in [*HEADINGS.items(), (None, REFERENCES)] if name in there)
    return [Key(" or ".join(words), colour, shape="dot") for colour, words in named.items()]


def _link(
    canvas: Canvas, within: ExitStack, dot: Dot, results: Results, where: tuple[float, float], layout: ChartLayout
) -> None:
    """Begin a link to the rung's place on the page, with a rectangle by its top and height that can be clicked.

    Its words name the reference that this rung is compared with, which another rung's class of precision may not have.
    """
    words = f"{name_of(dot.stage)}, {numbers.microseconds(dot.step_us.median)} us a step"
    if dot.regime and (own := lead(dot.stage, results)) is not None:
        words += f", {numbers.ratio(own.ratio.times)} as fast as {own.reference.name}, {_reference_time(own)}"
    within.enter_context(
        canvas.group(
            "a",
            href=f"{layout.page}#{quote(dot.stage.name)}",
            class_="row",
            data_rung=dot.stage.name,
            data_precision=precision_class(dot.stage),
            aria_label=words,
        )
    )
    if layout.words is not None:  # a telephone cannot point
        canvas.tip(words)
    top, height = where
    canvas.rectangle(0, top, layout.width, height, "idle", opacity=0)


def headline(shown: Sequence[Dot], results: Results) -> str:
    """The first and the fastest time, over the first rung and over the fastest reference.

    Such as `77.1 to 1.18 us a training step: 65.4x over naive, 7.16x over torch-graph`.
    """
    first, fastest = shown[0], min(shown, key=lambda dot: dot.step_us.median)
    ends = [numbers.microseconds(dot.step_us.median) for dot in (first, fastest)]
    if not first.regime:
        return f"{ends[1]} us a training step: no rung was timed in this run"
    if first is fastest:
        return f"{ends[0]} us a training step"
    precision = numbers.precision(fastest.stage.precision)
    aside = "" if fastest.stage.precision == first.stage.precision else f" in {precision}"
    over = [f"{numbers.ratio(first.step_us.median / fastest.step_us.median)} over {first.stage.name}"]
    if (best := lead(fastest.stage, results)) is not None:
        over.append(f"{best.ratio.over(best.reference.name)}{' in GPU time' * best.on_gpu_time}")
    return f"{ends[0]} to {ends[1]} us a training step{aside}: {', '.join(over)}"


def _description(results: Results, shown: Sequence[Dot]) -> str:
    """The picture in a sentence, for a reader who cannot see it."""
    times = [f"{dot.stage.name} {numbers.microseconds(dot.step_us.median)}" for dot in shown]
    winner = overall_winner(results)
    line = f" Fastest reference: {winner.reference.name} {_reference_time(winner)}." if winner else ""
    return f"Microseconds a training step: {', '.join(times)}.{line}"


def _reference_lines(results: Results, shown: Sequence[Dot], layout: ChartLayout) -> list[tuple[Lead, str]]:
    """Each reference that a shown rung's lead is taken over.

    With each, its words; those of several say for which precisions they count.
    """
    winner = overall_winner(results)
    leads = [best_lead for dot in shown if (best_lead := lead(dot.stage, results)) is not None]
    used = grouped(((lead.reference.name, lead.on_gpu_time), lead) for lead in leads)
    groups = list(used.values()) or [[winner]] if winner is not None else []
    return [(alike[0], _reference_words(alike, layout, is_alone=len(groups) == 1)) for alike in groups]


def _reference_words(alike: Sequence[Lead], layout: ChartLayout, *, is_alone: bool) -> str:
    used = alike[0]
    rungs = "" if is_alone else f" for {numbers.listing(dict.fromkeys(lead.precision for lead in alike))}"
    if not layout.words:
        return f"{used.reference.name} {numbers.microseconds(used.reference_us)} us{rungs}"
    precision = numbers.precision(used.reference.precision)
    return f"fastest reference{rungs}: {used.reference.name}, {precision}, {_reference_time(used)}"


def _reference_line(
    canvas: Canvas,
    winner: Lead,
    words: str,
    axis: Scale,
    ends: tuple[float, float],
    layout: ChartLayout,
    dash: str,
) -> None:
    """A dashed line at a reference's time, from its words down to the axis."""
    at, (above, bottom) = axis.place(winner.reference_us), ends
    if not axis.holds(winner.reference_us):
        words += f" ({'left' if at < layout.left else 'right'} of the axis)"
        canvas.text((layout.left + layout.right) / 2, above, words, "reference", anchor="middle")
        return
    canvas.line([(at, above + 6), (at, bottom)], "reference", width=1.5, dash=dash)
    width = SAMPLE + 6 + text_width(words)
    left = max(12, min(at - width / 2, layout.width - 12 - width))
    plate(canvas, left, above, words, room=SAMPLE + 6, lines=layout.lines)
    canvas.line([(left, above - 4), (left + SAMPLE, above - 4)], "reference", width=1.5, dash=dash)
    canvas.text(left + SAMPLE + 6, above, words, "reference")


def _words(dot: Dot) -> str:
    """The change in plain words, with the precision and whether the GPU was throttled."""
    precision = numbers.precision(dot.stage.precision)
    aside = "" if precision == "float32" or precision in dot.stage.name else f" ({precision})"
    if dot.stage.timing is not None and dot.stage.timing.throttled:
        aside += " (throttled)"
    return f"{change_in_words(dot.stage)[: MOST_LETTERS - len(aside)]}{aside}"


def _caption(results: Results, shown: Sequence[Dot], layout: ChartLayout) -> Iterator[str]:
    """How to read the picture, and how many rungs it leaves out."""
    rungs = [dot for dot in shown if dot.regime]
    if not rungs:
        yield "Dot: median; band: fastest to slowest run."
        return
    if layout.words is None:
        yield "Arrow: from the rung it climbs from, above."
        return
    yield "Arrow: from the rung it climbs from, dotted within noise. Band: fastest to slowest run."
    if not layout.is_page and (more := len(timed_rungs(results, with_ablations=False)) - len(rungs)):
        yield f"{numbers.count(more, 'more rung')} in the report."


def _reference_time(winner: Lead) -> str:
    reference_us = numbers.microseconds(winner.reference_us)
    if not winner.on_gpu_time:
        return f"{reference_us} us"
    timed_us = numbers.microseconds(host_times(winner.reference).median_us)
    return f"{reference_us} us of GPU time ({timed_us} with its waits)"
