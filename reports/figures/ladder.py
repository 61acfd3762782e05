"""The picture of a run: a dot a rung on a log axis of us/step, and an arrow from the rung that it climbs from.

Above the rungs, a hollow dot a reference: the times of PyTorch and JAX that a reader knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
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
from reports.facts.run_table import MARKS, disturbed_mark, name_of
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import BESIDE, ROOM, LogAxis, Mark, draw_label, draw_mark
from reports.figures.style import PIXELS, Colour, subject

FARTHEST = 10  # times the slowest rung: a slower reference would squeeze the axis
HEADING, BOTTOM = 30, 62  # pixels
LABEL = 16  # pixels: the height of a reference line's words, and of a line of the caption
AXIS = "microseconds a training step, log scale (left is faster)"
REFERENCES = "References: the same training in a framework"
DASHES = ("5 4", "2 3", "9 3 2 3")
# By regime; None: the stage is a reference.
COLOURS: dict[Regime | None, Colour] = {
    "host": "host", "graph": "kernels", "one kernel": "one-kernel", "CPU": "host", "unknown": "faint", None: "reference"
}  # fmt: skip


@dataclass(frozen=True)
class LadderLayout:
    """The picture's places in pixels, and what it shows."""

    width: float
    left: float  # where the axis begins
    right: float  # where it ends
    words: float | None  # where the words on its right begin; None: each name stands above its rung, without words
    top: float
    row: float  # the height of a rung
    is_page: bool = False  # every rung, each a link to its place on the page, under a title of the page's own
    has_references: bool = True  # above the rungs
    page: str = ""  # the address of that page, unless the picture is in it


FILE = LadderLayout(PIXELS, 160, 530, 542, top=84, row=22)
PAGE = LadderLayout(1000, 168, 650, 668, top=36, row=25, is_page=True)
PHONE = LadderLayout(344, 8, 336, None, top=36, row=42, is_page=True)


@dataclass(frozen=True)
class Dot:
    """A timed stage, its spread in us/step, and its parent's if that was timed too."""

    stage: StageResult
    step_us: Spread
    parent_us: Spread | None
    regime: Regime | None  # None for a reference
    is_noise: bool  # the difference from the parent is within the noise


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
        factor, own = ratio(parent, stage), step_us(stage)
        if own is not None and own.min > 0:  # a log axis has no zero
            kind = regime(stage) if stage.group != "reference" else None
            dots.append(Dot(stage, own, step_us(parent), kind, factor is not None and factor.is_noise))
    return dots


def drawn(results: Results, layout: LadderLayout = FILE) -> Canvas:
    """The picture in a layout; at least one stage must have a time."""
    shown = dots(results, is_page=layout.is_page)
    every = [*(reference_dots(results, shown) if layout.has_references else ()), *shown]
    lines = _reference_lines(results, shown, layout)
    layout = replace(layout, top=layout.top + LABEL * max(len(lines) - 1, 0))
    groups = [(name, list(members)) for name, members in groupby(every, key=lambda dot: dot.regime)]
    bottom = layout.top + sum(HEADING + layout.row * len(members) for _, members in groups)
    title, description = headline(shown), _description(results, every)
    # A page explains the marks of disturbed times in its own words.
    has_marks = not layout.is_page and any(disturbed_mark(dot.stage) for dot in every)
    height = bottom + BOTTOM + LABEL * has_marks
    canvas = Canvas(layout.width, height, f"{title}: {subject(results)}", description)
    axis = _axis([end for dot in every for end in (dot.step_us.min, dot.step_us.max)], layout)
    if not layout.is_page:
        canvas.text(12, 24, title, look="bold large")
        canvas.text(12, 44, subject(results), "faint")
    axis.draw(canvas, layout.top - 6, bottom)
    for index, (winner, words) in enumerate(lines):
        above = layout.top - 14 - LABEL * (len(lines) - 1 - index)
        _reference_line(canvas, winner, words, axis.place, (above, bottom), layout, DASHES[index % len(DASHES)])
    top = float(layout.top)
    for name, members in groups:
        canvas.text(layout.left, top + 19, HEADINGS[name] if name else REFERENCES, COLOURS[name], look="bold halo")
        top += HEADING
        for dot in members:
            with ExitStack() as within:
                if layout.is_page and dot in shown:
                    _link(canvas, within, dot, results, top, layout)
                _draw_rung(canvas, dot, top + layout.row / 2, axis, layout)
            top += layout.row
    canvas.text(layout.left, bottom + 34, AXIS, "faint", look="small")
    caption = " ".join(_caption(results, every, layout))
    canvas.text(layout.left if layout.is_page else 12, bottom + 52, caption, "faint", look="small")
    if has_marks:
        canvas.text(12, bottom + 52 + LABEL, MARKS, "faint", look="small")
    return canvas


def _link(canvas: Canvas, within: ExitStack, dot: Dot, results: Results, top: float, layout: LadderLayout) -> None:
    """Begin a link to the rung's place on the page, with a rectangle that shows where it can be clicked.

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
    canvas.tip(words)
    canvas.rectangle(0, top, layout.width, layout.row, "idle", opacity=0)


def headline(shown: Sequence[Dot]) -> str:
    """The first and the fastest time: `77.1 to 1.18 us a training step: 65.4x, rung by rung`."""
    first, fastest = shown[0], min(shown, key=lambda dot: dot.step_us.median)
    ends = [numbers.microseconds(dot.step_us.median) for dot in (first, fastest)]
    if not first.regime:
        return f"{ends[1]} us a training step: no rung was timed in this run"
    if first is fastest:
        return f"{ends[0]} us a training step"
    precision = numbers.precision(fastest.stage.precision)
    aside = "" if fastest.stage.precision == first.stage.precision else f" in {precision}"
    factor = numbers.ratio(first.step_us.median / fastest.step_us.median)
    return f"{ends[0]} to {ends[1]} us a training step{aside}: {factor}, rung by rung"


def _description(results: Results, shown: Sequence[Dot]) -> str:
    """The picture in a sentence, for a reader who cannot see it."""
    times = [f"{dot.stage.name} {numbers.microseconds(dot.step_us.median)}" for dot in shown]
    winner = overall_winner(results)
    line = f" Fastest reference: {winner.reference.name} {_reference_time(winner)}." if winner else ""
    return f"Microseconds a training step: {', '.join(times)}.{line}"


def _axis(values: Sequence[float], layout: LadderLayout) -> LogAxis:
    """The axis of us/step, with room for the fastest rung's time on its left."""
    return LogAxis.of(values, layout.left, layout.right, ROOM if layout.words else BESIDE / 2)


def _reference_lines(results: Results, shown: Sequence[Dot], layout: LadderLayout) -> list[tuple[Lead, str]]:
    """Each reference that a shown rung's lead is taken over.

    With each, its words; those of several say for which precisions they count.
    """
    winner = overall_winner(results)
    leads = [best_lead for dot in shown if (best_lead := lead(dot.stage, results)) is not None]
    used = grouped(((lead.reference.name, lead.on_gpu_time), lead) for lead in leads)
    groups = list(used.values()) or [[winner]] if winner is not None else []
    return [(alike[0], _reference_words(alike, layout, is_alone=len(groups) == 1)) for alike in groups]


def _reference_words(alike: Sequence[Lead], layout: LadderLayout, *, is_alone: bool) -> str:
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
    place: Callable[[float], float],
    ends: tuple[float, float],
    layout: LadderLayout,
    dash: str,
) -> None:
    """A dashed line at a reference's time, from its words down to the axis."""
    at, (above, bottom) = place(winner.reference_us), ends
    if not layout.left <= at <= layout.right:
        words += f" ({'left' if at < layout.left else 'right'} of the axis)"
        canvas.text((layout.left + layout.right) / 2, above, words, "reference", anchor="middle")
        return
    canvas.line([(at, above + 6), (at, bottom)], "reference", width=1.5, dash=dash)
    half = 3.4 * len(words)
    middle = max(12 + half, min(at, layout.width - 12 - half))
    canvas.text(middle, above, words, "reference", anchor="middle", look="halo")


def _draw_rung(canvas: Canvas, dot: Dot, middle: float, axis: LogAxis, layout: LadderLayout) -> None:
    """A rung: name, arrow, spread, dot, time and words."""
    time = numbers.microseconds(dot.step_us.median) + disturbed_mark(dot.stage)
    if layout.words is None:
        canvas.text(layout.left, middle - 6, name_of(dot.stage), look="mono halo")
        middle += 8
    else:
        canvas.text(layout.left - 14, middle + 4, name_of(dot.stage), anchor="end", look="mono")
    with canvas.group(class_="measured") if layout.is_page else nullcontext():
        start = dot.parent_us.median if dot.parent_us is not None else None
        mark = Mark(dot.step_us, start, COLOURS[dot.regime], is_noise=dot.is_noise, is_hollow=dot.regime is None)
        covered = draw_mark(canvas, mark, middle, axis)
        if layout.words is None:
            canvas.text(layout.right, middle - 14, time, anchor="end", look="bold halo")
        else:
            draw_label(canvas, time, middle, axis.place(dot.step_us.median), covered, layout.words)
    if layout.words is not None:
        canvas.text(layout.words, middle + 4, _words(dot), "faint", look="small")


def _words(dot: Dot) -> str:
    """The change in plain words, with the precision and whether the GPU was throttled."""
    precision = numbers.precision(dot.stage.precision)
    aside = "" if precision == "float32" or precision in dot.stage.name else f" ({precision})"
    if dot.stage.timing is not None and dot.stage.timing.throttled:
        aside += " (throttled)"
    return f"{change_in_words(dot.stage)[: MOST_LETTERS - len(aside)]}{aside}"


def _caption(results: Results, shown: Sequence[Dot], layout: LadderLayout) -> Iterator[str]:
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
