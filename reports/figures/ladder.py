"""The picture of a run: a dot a rung on a log axis of us/step, and an arrow from the rung that it climbs from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ladder.records.run import Results, Spread, StageResult
from reports.facts import numbers
from reports.facts.baselines import Lead, epoch_s, host_times, overall_winner, ratio, references
from reports.facts.headline_rungs import headline_rungs
from reports.facts.regimes import HEADINGS, MOST_LETTERS, Regime, change_in_words, regime
from reports.facts.study import step_us
from reports.facts.summary import ABLATIONS, name_of
from reports.figures.canvas import Canvas
from reports.figures.style import PIXELS, Colour, subject

MOST_RUNGS = 16
LEFT, RIGHT, WORDS = 160, 530, 542  # pixels: the axis, and the words on its right
TOP, ROW, HEADING, BOTTOM = 84, 22, 30, 62
ROOM = 74  # pixels on the left of the fastest dot, for its time
MOST_TICKS = 9
BESIDE = 44  # pixels on the right of a dot, for its time
HEAD = 7  # pixels: the length of an arrow's head
# By regime; None: the stage is a reference.
COLOURS: dict[Regime | None, Colour] = {
    "host": "host", "graph": "kernels", "one kernel": "one-kernel", None: "reference",
}  # fmt: skip


@dataclass(frozen=True)
class Dot:
    """A timed stage, its spread in us/step, and its parent's if that was timed too."""

    stage: StageResult
    step_us: Spread
    parent_us: Spread | None
    regime: Regime | None  # None for a reference
    is_noise: bool  # the difference from the parent is within the noise


def dots(results: Results) -> list[Dot]:
    """The rungs that the picture shows; the references if no rung was timed."""
    rungs = headline_rungs(results, MOST_RUNGS)
    shown = rungs or [stage for stage in references(results) if epoch_s(stage) is not None]
    stages = {stage.name: stage for stage in results.stages}
    found = []
    for stage in shown:
        parent = stages.get(stage.below or "")
        factor, own = ratio(parent, stage), step_us(stage)
        if own is not None:
            kind = regime(stage) if rungs else None
            found.append(Dot(stage, own, step_us(parent), kind, factor is not None and factor.is_noise))
    return found


def ladder(results: Results) -> str:
    """The picture as SVG text; at least one stage must have a time."""
    shown = dots(results)
    groups = [(name, list(members)) for name, members in groupby(shown, key=lambda dot: dot.regime)]
    bottom = TOP + sum(HEADING + ROW * len(members) for _, members in groups)
    title, description = headline(shown), _description(results, shown)
    canvas = Canvas(PIXELS, bottom + BOTTOM, f"{title}: {subject(results)}", description)
    place = _scale([end for dot in shown for end in (dot.step_us.min, dot.step_us.max)])
    canvas.text(12, 24, title, look="bold large")
    canvas.text(12, 44, subject(results), "faint")
    for value in _ticks(place):
        canvas.line([(place(value), TOP - 6), (place(value), bottom)], "grid")
        canvas.text(place(value), bottom + 16, f"{value:,g}", "faint", anchor="middle", look="small")
    canvas.line([(LEFT, bottom), (RIGHT, bottom)], "faint")
    winner = overall_winner(results)
    if winner is not None:
        _reference_line(canvas, winner, place, bottom)
    top = float(TOP)
    for name, members in groups:
        canvas.text(LEFT, top + 19, HEADINGS[name] if name else "References", COLOURS[name], look="bold halo")
        top += HEADING
        for dot in members:
            _row(canvas, dot, top + ROW / 2, place)
            top += ROW
    canvas.text(LEFT, bottom + 34, "microseconds a training step, log scale (left is faster)", "faint", look="small")
    canvas.text(12, bottom + 52, " ".join(_caption(results, shown)), "faint", look="small")
    return canvas.svg()


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


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """From us/step to pixels, with room for the fastest rung's time on its left."""
    low, high = math.log(min(values)), math.log(max(values) * 1.12)
    share = ROOM / (RIGHT - LEFT)
    low -= (high - low) * share / (1 - share)
    return lambda value: LEFT + (math.log(value) - low) / (high - low) * (RIGHT - LEFT)


def _ticks(place: Callable[[float], float]) -> list[float]:
    """Round numbers on the axis, at most nine: as fine as there is room for."""
    for factors in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1,)):
        values = [factor * 10.0**power for power in range(-3, 9) for factor in factors]
        found = [value for value in values if LEFT <= place(value) <= RIGHT]
        if len(found) <= MOST_TICKS:
            break
    return found


def _reference_line(canvas: Canvas, winner: Lead, place: Callable[[float], float], bottom: float) -> None:
    """A line at the time of the reference that the fastest rung's lead is taken over."""
    at, precision = place(winner.reference_us), numbers.precision(winner.reference.precision)
    words = f"fastest reference: {winner.reference.name}, {precision}, {_reference_time(winner)}"
    if not LEFT <= at <= RIGHT:
        side = "left" if at < LEFT else "right"
        canvas.text((LEFT + RIGHT) / 2, TOP - 14, f"{words} ({side} of the axis)", "reference", anchor="middle")
        return
    canvas.line([(at, TOP - 8), (at, bottom)], "reference", width=1.5, dash="5 4")
    half = 3.4 * len(words)
    canvas.text(max(12 + half, min(at, PIXELS - 12 - half)), TOP - 14, words, "reference", anchor="middle")


def _row(canvas: Canvas, dot: Dot, middle: float, place: Callable[[float], float]) -> None:
    """A rung: name, arrow, spread, dot, time and words."""
    colour, own = COLOURS[dot.regime], dot.step_us
    at = place(own.median)
    canvas.text(LEFT - 14, middle + 4, name_of(dot.stage), anchor="end", look="mono")
    begin, end = place(own.min), place(own.max)
    reach = [begin, at - 4.5, end, at + 4.5]  # what the time must not cover
    if dot.parent_us is not None:
        start = max(LEFT, min(place(dot.parent_us.median), RIGHT))
        _arrow(canvas, start, at, middle, colour, is_noise=dot.is_noise)
        reach.append(start)
    canvas.rectangle(begin, middle - 4, end - begin, 8, colour, opacity=0.35)
    canvas.dot(at, middle, 4.5, colour)
    time = numbers.microseconds(own.median)
    on_the_right = min(reach) < at - 6 and max(reach) + BESIDE < WORDS
    beside = max(reach) + 5 if on_the_right else min(reach) - 5
    canvas.text(beside, middle + 4, time, anchor="start" if on_the_right else "end", look="bold halo")
    precision = numbers.precision(dot.stage.precision)
    aside = "" if precision == "float32" or precision in dot.stage.name else f" ({precision})"
    if dot.stage.timing is not None and dot.stage.timing.throttled:
        aside += " (throttled)"
    words = change_in_words(dot.stage) if dot.regime else dot.stage.title
    canvas.text(WORDS, middle + 4, f"{words[: MOST_LETTERS - len(aside)]}{aside}", "faint", look="small")


def _arrow(canvas: Canvas, start: float, end: float, middle: float, colour: Colour, *, is_noise: bool) -> None:
    """An arrow that ends at the dot; dotted if the difference is within the noise, without a head if too short."""
    canvas.line([(start, middle), (end, middle)], colour, width=2, dash="2 3" if is_noise else "")
    way = 1 if end > start else -1
    tip = end - way * 5
    if not is_noise and abs(tip - start) > HEAD:
        canvas.polygon([(tip, middle), (tip - way * HEAD, middle - 4), (tip - way * HEAD, middle + 4)], colour)


def _caption(results: Results, shown: Sequence[Dot]) -> Iterator[str]:
    """How to read the picture, and how many rungs it leaves out."""
    if not shown[0].regime:
        yield "Dot: median; band: fastest to slowest run."
        return
    yield "Arrow: from the rung it climbs from, dotted within noise. Band: fastest to slowest run."
    timed = [stage for stage in results.stages if stage.group not in ("reference", *ABLATIONS) and step_us(stage)]
    if more := len(timed) - len(shown):
        yield f"{numbers.count(more, 'more rung')} in the report."


def _reference_time(winner: Lead) -> str:
    reference_us = numbers.microseconds(winner.reference_us)
    if not winner.on_gpu_time:
        return f"{reference_us} us"
    timed_us = numbers.microseconds(host_times(winner.reference).median_us)
    return f"{reference_us} us of GPU time ({timed_us} with its waits)"
