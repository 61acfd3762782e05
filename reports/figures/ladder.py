"""The picture of a run: a dot a rung on a log axis of us/step, and an arrow from its parent.

Above the rungs, a hollow dot a reference: the times of PyTorch and JAX that a reader knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from urllib.parse import quote

from ladder.records.exactness import precision_class
from ladder.records.run import MOST_LETTERS, Results, StageResult
from ladder.records.statistics import VERDICT_CONFIDENCE
from reports.facts import numbers
from reports.facts.baselines import Lead, overall_winner, ratio, references
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import HEADINGS, Regime, change_in_words
from reports.facts.ratios import NOISE, Ratio
from reports.facts.run_table import ALL_DISTURBED, MARKS, MOST_RUNGS, headline_rungs, name_of, timed_rungs
from reports.facts.stage_facts import StageFacts, regime_of
from reports.facts.times import median_us, step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    FILE,
    MARGIN,
    ONE_LINE,
    ChartLayout,
    Heading,
    Key,
    Mark,
    Row,
    RowChart,
    Scale,
    plate,
    text_width,
)
from reports.figures.style import Colour, subject

ALIKE = 1.1  # times the fastest of several references: they share a line
FARTHEST = 10  # times the slowest rung: a slower reference would squeeze the axis
LABEL = 16  # pixels: the height of a reference line's words
AXIS = "microseconds per step, log scale (left is faster)"
READING = (
    f"Band: what counts as equal to the parent, by the {100 * VERDICT_CONFIDENCE:g}% interval, at least "
    f"{numbers.share(NOISE)} to each side; where it holds the parent's time, the arrow is dotted. "
    "Arrow: from the parent, the rung of which this one changes one choice."
)
PARENT = " In grey: a parent that is not the row above."
REFERENCES = "References: the same training in a framework"
DASHES = ("5 4", "2 3", "9 3 2 3")
# By regime; None: the stage is a reference.
COLOURS: dict[Regime | None, Colour] = {
    "host": "host", "graph": "kernels", "one kernel": "one-kernel", "CPU": "host", "unknown": "faint", None: "reference"
}  # fmt: skip


def dots(results: Results, *, is_page: bool = False) -> list[StageFacts]:
    """The rungs that the picture shows, on a page every timed one; the references if no rung was timed."""
    rungs = timed_rungs(results) if is_page else headline_rungs(results, MOST_RUNGS)
    return _drawn(results, rungs or references(results))


def reference_dots(results: Results, shown: Sequence[StageFacts]) -> list[StageFacts]:
    """The references above those rungs: on their kind of device, and not so slow that nothing else would be seen."""
    if shown[0].is_reference:
        return []
    device = "gpu" if any(one.stage.device == "gpu" for one in shown) else "cpu"
    dots = _drawn(results, [stage for stage in references(results) if stage.device == device])
    return [one for one in dots if _us(one) <= FARTHEST * max(map(_us, shown))]


def _drawn(results: Results, stages: Iterable[StageResult]) -> list[StageFacts]:
    """Those with a time that a log axis has a place for."""
    return [StageFacts(stage, results) for stage in stages if (own := step_us(stage)) is not None and own.min > 0]


def _us(one: StageFacts) -> float:
    """A timed stage's microseconds per step."""
    assert one.step_us is not None
    return one.step_us


def drawn(results: Results, layout: ChartLayout = FILE) -> Canvas:
    """The picture in a layout; at least one stage must have a time."""
    shown = dots(results, is_page=layout.is_page)
    every = [*(reference_dots(results, shown) if layout.has_references else ()), *shown]
    lines = _reference_lines(results, shown, layout)
    fastest = min(shown, key=_us)
    aside = ", disturbed by other work" * (fastest.disturbed == ALL_DISTURBED)
    heading = Heading(headline(shown), f"{subject(results)}{aside}", layout.width)
    folded = 0 if layout.is_page else heading.bottom - ONE_LINE
    layout = replace(layout, top=layout.top + LABEL * max(len(lines) - 1, 0) + folded)
    layout = layout.fitted(name_of(one.stage) for one in every)
    rows = [_row(one, layout, one in shown, one is fastest) for one in every]
    rows = with_parents(rows, [one.stage.below for one in every])
    groups = by_regime((one.regime, row) for one, row in zip(every, rows, strict=True))
    chart = RowChart(groups, AXIS, list(_notes(results, every, rows, layout)))
    canvas = chart.canvas(heading, chart.bottom(layout.top, layout), layout)
    axis = chart.axis(layout)
    if not layout.is_page:
        heading.draw(canvas)
    at = (axis.place(winner.reference_us) for winner, _ in lines if axis.holds(winner.reference_us))
    layout = replace(layout, lines=tuple(at))
    for index, (winner, words) in enumerate(lines):
        above = layout.top - 14 - LABEL * (len(lines) - 1 - index)
        ends = above, layout.top + chart.height(layout)
        _reference_line(canvas, winner, words, axis, ends, layout, DASHES[index % len(DASHES)])
    chart.draw(canvas, layout.top, axis, layout)
    return canvas


def with_parents(rows: Sequence[Row], parents: Iterable[str | None]) -> list[Row]:
    """The rows, each with the name of the parent that it is compared with, unless that is the row above."""
    told = zip(rows, parents, ["", *(row.name for row in rows)], strict=False)
    return [
        replace(row, parent=(parent or "") * (row.mark.start is not None and parent != above))
        for row, parent, above in told
    ]


def reading(rows: Sequence[Row], layout: ChartLayout) -> str:
    """How to read bands, arrows and, where a layout has no words, the names of parents."""
    return READING + PARENT * (not layout.has_words and any(row.parent for row in rows))


def by_regime(rows: Iterable[tuple[Regime | None, Row]]) -> list[tuple[str, Colour, list[Row]]]:
    """The groups of a chart: rows that follow each other in one regime, below its name."""
    return [
        (HEADINGS[name] if name else REFERENCES, COLOURS[name], [row for _, row in members])
        for name, members in groupby(rows, key=lambda row: row[0])
    ]


def _row(one: StageFacts, layout: ChartLayout, is_linked: bool, is_best: bool) -> Row:
    """A timed stage as a row of the chart; on a page, a rung leads to its place there."""
    over = one.versus_parent
    mark = compared(_us(one), over, median_us(one.parent), COLOURS[one.regime], is_hollow=one.is_reference)
    speedup = over.over(one.stage.below or "") if over is not None else ""
    link = _link(one, layout) if layout.is_page and is_linked else {}
    tip = link["aria_label"] if link and layout.words is not None else ""  # a telephone cannot point
    return Row(name_of(one.stage), f"{one.us}{one.disturbed}", mark, speedup, _words(one), link, tip, is_best=is_best)


def compared(us: float, over: Ratio | None, parent_us: float | None, colour: Colour, *, is_hollow: bool) -> Mark:
    """A time beside its parent's, with the band that decides whether they differ."""
    if over is None or parent_us is None:
        return Mark(us, colour, is_hollow=is_hollow)
    low, high = over.interval
    return Mark(us, colour, parent_us, (parent_us / high, parent_us / low), is_hollow)


def regime_keys(stages: Iterable[StageResult]) -> list[Key]:
    """What the colours of these stages mean: one entry for stages of the same colour."""
    there = set(map(regime_of, stages))
    named = grouped((COLOURS[name], words) for name, words in [*HEADINGS.items(), (None, REFERENCES)] if name in there)
    return [Key(" or ".join(words), colour, shape="dot") for colour, words in named.items()]


def _link(one: StageFacts, layout: ChartLayout) -> dict[str, str]:
    """A link to the rung's place on the page.

    Its words name the reference that this rung is compared with, which another rung's class of precision may not have.
    """
    words = f"{name_of(one.stage)}, {one.us} us per step"
    if not one.is_reference and (own := one.lead) is not None:
        words += f", {numbers.ratio(own.ratio.times)} as fast as {own.reference.name}, {_reference_time(own)}"
    return {
        "href": f"{layout.page}#{quote(one.name)}",
        "class_": "row",
        "data_rung": one.name,
        "data_precision": precision_class(one.stage),
        "aria_label": words,
    }


def headline(shown: Sequence[StageFacts]) -> str:
    """The fastest rung's time, over the fastest reference and over the first rung, whose own time scatters most.

    A title has one clock: over a reference in GPU time, it leaves the first rung out.
    Such as `persistent-cluster takes 1.21 us per step: 7.16x as fast as torch-graph, 66.3x as fast as naive`.
    """
    first, fastest = shown[0], min(shown, key=_us)
    precision = fastest.stage.precision
    aside = "" if precision == first.stage.precision else f" in {numbers.precision(precision)}"
    told = f"{fastest.name} takes {fastest.us} us per step{aside}"
    if first.is_reference:
        return f"No rung was timed; {told}"
    best, whole = fastest.lead, None if first is fastest else ratio(first.stage, fastest.stage)
    over = [f"{best.ratio.over(best.reference.name)}{' in GPU time' * best.on_gpu_time}"] if best else []
    over += [whole.over(first.name)] if whole and not (best and best.on_gpu_time) else []
    return ": ".join(filter(None, [told, ", ".join(over)]))


def _reference_lines(results: Results, shown: Sequence[StageFacts], layout: ChartLayout) -> list[tuple[Lead, str]]:
    """The references that the shown rungs' leads are taken over; with the fastest of those alike, the words of all."""
    winner = overall_winner(results)
    leads = [one.lead for one in shown if one.lead is not None] or ([winner] if winner is not None else [])
    groups: list[list[Lead]] = []
    for lead in sorted(leads, key=lambda lead: lead.reference_us):  # no line crosses the words of another
        if not groups or lead.reference_us > ALIKE * groups[-1][0].reference_us:
            groups.append([])
        groups[-1].append(lead)
    return [(alike[0], _reference_words(alike, layout)) for alike in groups]


def _reference_words(alike: Sequence[Lead], layout: ChartLayout) -> str:
    """The references of a line with the precisions for which they count; in a narrow picture the fastest alone."""
    is_narrow, words = not layout.words or not layout.has_words, []
    for name, leads in grouped((lead.reference.name, lead) for lead in alike).items():
        classes = numbers.listing(dict.fromkeys(lead.precision for lead in leads))
        if is_narrow:
            return f"{name}, {classes}: {numbers.microseconds(leads[0].reference_us)} us"
        words.append(f"as exact as {classes}: {name}, {_reference_time(leads[0])}")
    return f"fastest reference {'; '.join(words)}"


def _reference_line(
    canvas: Canvas, winner: Lead, words: str, axis: Scale, ends: tuple[float, float], layout: ChartLayout, dash: str
) -> None:
    """A dashed line at a reference's time, down to the axis from its words, which stand beside its upper end."""
    at, (above, bottom) = axis.place(winner.reference_us), ends
    if not axis.holds(winner.reference_us):
        words += f" ({'left' if at < layout.left else 'right'} of the axis)"
        canvas.text((layout.left + layout.right) / 2, above, words, "reference", anchor="middle", look="small")
        return
    left = max(MARGIN, min(at + 7, layout.width - MARGIN - text_width(words, "small")))
    top = above - 9 if left > at else above + 6  # words without room beside the line stand over its end
    canvas.line([(at, top), (at, bottom)], "reference", width=1.5, dash=dash)
    plate(canvas, left, above, words, "small", lines=layout.lines)
    canvas.text(left, above, words, "reference", look="small")


def _words(one: StageFacts) -> str:
    """The change in plain words, with the precision and whether the GPU was throttled."""
    precision = numbers.precision(one.stage.precision)
    aside = "" if precision == "float32" or precision in one.name else f" ({precision})"
    aside += " (throttled)" * one.throttled
    return f"{change_in_words(one.stage, one.results.problem)[: MOST_LETTERS - len(aside)]}{aside}"


def _notes(results: Results, shown: Sequence[StageFacts], rows: Sequence[Row], layout: ChartLayout) -> Iterator[str]:
    """How to read the picture, and how its rows are picked; a page has every rung, and explains marks itself."""
    rungs = [one for one in shown if not one.is_reference]
    yield reading(rows, layout) if rungs else "Dot: the median of all runs."
    more = len(timed_rungs(results, with_ablations=False)) - len(rungs)
    if rungs and more and not layout.is_page:
        yield (
            "Rungs: the fastest, then those that differ most from their parents, with all parents. "
            f"The report's table has {more} more."
        )
    if not layout.is_page and any(one.disturbed for one in shown):
        yield MARKS


def _reference_time(winner: Lead) -> str:
    return f"{numbers.microseconds(winner.reference_us)} us{' of GPU time' * winner.on_gpu_time}"
