"""A study's figure: microseconds a step over the varied setting, and below it the lead of the fastest rung."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ladder.records.run import Spread, StageResult
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import HEADINGS, Regime, regime
from reports.facts.provenance import gpus_name
from reports.facts.ratios import WITHIN_NOISE
from reports.facts.run_table import dataset_name, name_of
from reports.facts.study_points import PointLead, StudyResults, is_disturbed, point_winners, setting, value_text
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    KEY_LINE,
    ONE_LINE,
    Heading,
    Key,
    Room,
    Scale,
    folded,
    key_lines,
    legend,
    number,
    spread_apart,
    text_width,
)
from reports.figures.ladder import COLOURS
from reports.figures.style import PIXELS, Colour

LEFT, RIGHT, LABELS = 66, 575, 596  # pixels: the axes, and the labels on their right
TOP, GAP, BOTTOM, LABEL, NOTE = 84, 44, 80, 14, 13  # pixels
DASHED = "6 4"  # a reference
TIMES, LEADS = 270, 130  # pixels: the least height of a panel
MOST_LINES = 9  # with a name; of more, those that no lead is taken of or over stay faint and unnamed
OTHERS = Key("other rungs and references: in the table", "step", shape="line")
NETWORKS = "networks"  # the setting whose figure shows a network's share of a step
WIDE_RANGE = 8.0  # largest by smallest value; from here on the axis is logarithmic
LEAD_LOOKS: dict[str, tuple[Colour, float]] = {
    "float32": ("ink", 2.2),
    "tf32": ("faint", 1.0),
    "bf16/fp16": ("faint", 2.2),
}  # by class of precision


@dataclass(frozen=True)
class Axis:
    """The horizontal axis: a setting and the place of each of its values."""

    key: str
    places: dict[str, float]  # by value in words, in drawing order
    is_log: bool

    def place(self, point: Point) -> float:
        """The place of a study's point, in pixels."""
        at = [math.log(place) if self.is_log else place for place in self.places.values()]
        own = at[list(self.places).index(value_text(point.values[self.key]))]
        return LEFT + 16 + (own - min(at)) / ((max(at) - min(at)) or 1.0) * (RIGHT - LEFT - 32)


@dataclass(frozen=True)
class Trend:
    """A line of a panel: a spread at each place, None where a time is missing, and places to draw as rings."""

    name: str
    colour: Colour
    spreads: list[tuple[float, Spread | None]]
    rings: frozenset[float] = frozenset()
    dash: str = ""
    width: float = 1.4
    is_named: bool = True
    regime: Regime | None = None  # of a rung's line
    aside: str = ""  # behind its last value
    notes: tuple[str, ...] = ()  # below its name

    @property
    def last(self) -> tuple[float, float]:
        """The last place with a value, and the value."""
        return [(place, spread.median) for place, spread in self.spreads if spread][-1]


def step_time(results: StudyResults, axis: Axis, points: Sequence[Point], where: str = "") -> Canvas:
    """The figure: times of all stages, and the lead of each precision's fastest rung.

    References have broken lines. A missing time interrupts a line; a point that was measured without the stage does
    not. Whiskers reach from the fastest to the slowest run. A ring marks a time that was taken while disturbed, and a
    lead that may be smaller because a reference is missing.
    """
    stages = [stage for stage in results.stages() if any(step_us(results.at(point, stage.name)) for point in points)]
    winners = [winner for winner in point_winners(results) if winner.point in points]
    times, leads = _times(results, axis, points, stages, winners), _leads(axis, winners)
    step = "step"
    if axis.key == NETWORKS:
        step = "network-step"
        times += _limit(results, axis, points)
    run = results.runs[points[0].name]
    gpus = dict.fromkeys(gpus_name(results.runs[point.name]) for point in points)
    about = ", ".join(filter(None, (where, _fixed(results, points), dataset_name(run.problem), *gpus)))
    found = _found(axis, winners)
    heading = Heading(found or results.study.title, f"{results.study.title}: {about}" if found else about)
    keys = _keys(times)
    top = heading.bottom + TOP - ONE_LINE
    upper = max(TIMES, LABEL * sum(line.is_named for line in times))
    lower = max(LEADS, sum(NOTE * (1 + len(line.notes)) for line in leads)) if leads else 0
    bottom = top + upper + (GAP + lower if leads else 0)
    height = bottom + BOTTOM + KEY_LINE * len(key_lines(keys))
    canvas = Canvas(PIXELS, height, f"{results.study.title}: {about}", _description(step, times, leads))
    heading.draw(canvas)
    _panel(canvas, times, top, upper, f"us/{step}, log scale", axis, points)
    if leads:
        words = "lead of the fastest rung over the fastest reference at least as exact, log scale"
        _panel(canvas, leads, top + upper + GAP, lower, words, axis, points)
    _bottom(canvas, [*times, *leads], axis, points, bottom)
    legend(canvas, keys, bottom + 56)
    return canvas


def _found(axis: Axis, winners: Sequence[PointLead]) -> str:
    """The first and the last lead of the first class of precision: `float32 rungs: 4.93x at hidden 64, 2.26x at 8192`.

    Empty with fewer than two.
    """
    own = [winner for winner in winners if winner.lead.precision == winners[0].lead.precision]
    if len(own) < 2:
        return ""
    first, last = (
        f"{numbers.ratio(one.lead.ratio.times)}{f' ({WITHIN_NOISE})' * one.lead.ratio.is_noise}"
        for one in (own[0], own[-1])
    )
    ends = f"{first} at {setting(axis.key)} {_value(axis, own[0].point)}, {last} at {_value(axis, own[-1].point)}"
    return f"Lead of {own[0].lead.precision} rungs: {ends}"


def _value(axis: Axis, point: Point) -> str:
    return value_text(point.values[axis.key])


def _times(
    results: StudyResults,
    axis: Axis,
    points: Sequence[Point],
    stages: Sequence[StageResult],
    winners: Sequence[PointLead],
) -> list[Trend]:
    """A line a stage: rungs in the colour of their regime, references broken.

    Of many lines, those that no lead needs are faint.
    """
    needed = {stage.name for winner in winners for stage in (winner.lead.stage, winner.lead.reference)}
    times = []
    for stage in stages:
        asked = [(axis.place(point), results.at(point, stage.name)) for point in points]
        shares = [results.runs[point.name].problem.networks if axis.key == NETWORKS else 1 for point in points]
        spreads = [
            (place, _share(step_us(stage), networks))
            for (place, stage), networks in zip(asked, shares, strict=True)
            if stage is not None
        ]
        dash = DASHED if stage.group == "reference" else ""
        if needed and len(stages) > MOST_LINES and stage.name not in needed:
            times.append(Trend(name_of(stage), "step", spreads, dash=dash, width=1, is_named=False))
            continue
        rings = frozenset(place for place, stage in asked if is_disturbed(stage))
        way = None if stage.group == "reference" else regime(stage)
        times.append(Trend(name_of(stage), COLOURS[way], spreads, rings, dash, regime=way))
    return sorted(times, key=lambda line: line.is_named)


def _share(spread: Spread | None, networks: int) -> Spread | None:
    """A network's share of a step's time."""
    return Spread(spread.median / networks, spread.min / networks, spread.max / networks) if spread else None


def _limit(results: StudyResults, axis: Axis, points: Sequence[Point]) -> list[Trend]:
    """The time of a network's products at the GPU's highest rate, with all multiprocessors; none without limits."""
    limits: list[tuple[float, Spread | None]] = []
    for point in points:
        run = results.runs[point.name]
        rates = [limit.best for limit in run.limits.limits if limit.unit == "TFLOP/s"] if run.limits else []
        if rates:
            least_us = run.problem.product_operations / run.problem.networks / max(rates) / 1e6
            limits.append((axis.place(point), Spread(least_us, least_us, least_us)))
    return [Trend("products at the highest rate", "faint", limits, dash="1 3")] if limits else []


def _leads(axis: Axis, winners: Sequence[PointLead]) -> list[Trend]:
    """A line a class of precision, which names the stages of its last point."""
    leads = []
    for precision, ones in grouped((winner.lead.precision, winner) for winner in winners).items():
        last = ones[-1].lead
        colour, width = LEAD_LOOKS[precision]
        own_us, reference_us = last.reference_us / last.ratio.times, last.reference_us
        clock = "of GPU time" if last.on_gpu_time else "a step"
        quotient = f"{numbers.microseconds(reference_us)} / {numbers.microseconds(own_us)} us {clock}"
        leads.append(
            Trend(
                f"{precision} rungs",
                colour,
                [
                    (axis.place(winner.point), Spread((over := winner.lead.ratio).times, over.low, over.high))
                    for winner in ones
                ],
                frozenset(axis.place(winner.point) for winner in ones if winner.missing),
                width=width,
                aside=f", {WITHIN_NOISE}" * last.ratio.is_noise,
                notes=(*folded(f"{last.stage.name} over {last.reference.name}:", PIXELS - LABELS, "small"), quotient),
            )
        )
    return leads


def _panel(
    canvas: Canvas, lines: Sequence[Trend], top: float, height: float, heading: str, axis: Axis, points: Sequence[Point]
) -> None:
    """Lines with whiskers on a log axis, each with its name and its last value: at its end, or on the right."""
    is_lead = "lead" in heading
    spreads = [spread for line in lines for _, spread in line.spreads if spread]
    ends = [end for spread in spreads for end in (spread.min, spread.max)] + ([1.0] if is_lead else [])
    ends = [min(ends) / 1.15, max(ends) * 1.15]
    scale = Scale.log(ends, top + height, top, (lambda value: f"{number(value)}x") if is_lead else number)
    place = scale.place
    canvas.text(12, top - 12, heading, "faint", look="small")
    scale.draw_beside(canvas, LEFT, RIGHT)
    for point in points:
        canvas.line([(axis.place(point), top), (axis.place(point), top + height)], "grid")
    if is_lead:
        canvas.line([(LEFT, place(1.0)), (RIGHT, place(1.0))], "faint", width=1.5)
    values_at = {axis.place(point): _value(axis, point) for point in points}
    room = Room((LEFT, top, RIGHT, top + height + 8))
    for line in lines:
        _line(canvas, line, scale, room)
    beside = []
    for line in lines:
        last, value = line.last
        text = f"{line.name}  {numbers.ratio(value) if is_lead else numbers.microseconds(value)}{line.aside}"
        if not line.is_named or (last < max(values_at) and _at_its_end(canvas, room, line, text, place(value))):
            continue
        beside.append((line, text + f" at {values_at[last]}" * (last < max(values_at))))
    spacing = NOTE * (1 + max(len(line.notes) for line in lines)) + 2 if is_lead else LABEL
    wanted = [place(line.last[1]) for line, _ in beside]
    for (line, text), at in zip(beside, spread_apart(wanted, top, height, spacing), strict=True):
        last, value = line.last
        canvas.line([(last + 5, place(value)), (RIGHT + 4, place(value)), (LABELS - 4, at)], "faint", width=0.5)
        canvas.text(LABELS, at + 4, text, line.colour, look=f"small{' bold' * is_lead}")
        for row, note in enumerate(line.notes, start=1):
            canvas.text(LABELS, at + 4 + NOTE * row, note, "faint", look="small")


def _at_its_end(canvas: Canvas, room: Room, line: Trend, words: str, height: float) -> bool:
    """Write beside the end of a line that ends early, if there is room."""
    last, width = line.last[0], text_width(words, "small")
    for below in (0, 10, -10):
        box = (last + 7, height + below - 7, last + 7 + width, height + below + 7)
        if room.is_free(box):
            room.words.append(box)
            canvas.text(last + 7, height + below + 4, words, line.colour, look="small halo")
            return True
    return False


def _line(canvas: Canvas, line: Trend, scale: Scale, room: Room) -> None:
    """The line, its whiskers and dots, which labels keep free unless it is unnamed."""
    place = scale.place
    for is_there, piece in groupby(line.spreads, key=lambda point: point[1] is not None):
        known = [(at, spread) for at, spread in piece if spread is not None]
        ends = [(at, place(spread.median)) for at, spread in known]
        if is_there and len(known) > 1:
            canvas.line(ends, line.colour, width=line.width, dash=line.dash)
            for begin, end in pairwise(ends) if line.is_named else ():
                room.keep_free(begin, end)
        for at, spread in known if line.is_named else ():
            low, high = place(spread.min), place(spread.max)
            if low - high > 3:
                canvas.line([(at, low), (at, high)], line.colour)
                for height in (low, high):
                    canvas.line([(at - 3, height), (at + 3, height)], line.colour)
            canvas.dot(at, place(spread.median), 3, line.colour, hollow=at in line.rings)
            room.keep_free((at, low + 3), (at, high - 3))


def _keys(times: Sequence[Trend]) -> list[Key]:
    """What the colours and dashes of the times mean."""
    shown = grouped((COLOURS[way], words) for way, words in HEADINGS.items() if way in {one.regime for one in times})
    keys = [Key(" or ".join(words), colour, shape="line") for colour, words in shown.items()]
    references = any(line.colour == "reference" for line in times)
    return [*keys, *[Key("a reference", "reference", shape="dashes")] * references, *_unnamed(times)]


def _unnamed(times: Sequence[Trend]) -> list[Key]:
    return [] if all(line.is_named for line in times) else [OTHERS]


def _bottom(canvas: Canvas, lines: Sequence[Trend], axis: Axis, points: Sequence[Point], bottom: float) -> None:
    """The values of the setting, on two lines if they would touch, and how to read the marks."""
    texts = [(axis.place(point), _value(axis, point)) for point in points]
    width = max(len(text) for _, text in texts) * 6.6 + 6
    crowded = any(right - left < width for (left, _), (right, _) in pairwise(sorted(texts)))
    for index, (at, text) in enumerate(sorted(texts)):
        canvas.text(at, bottom + 16 + (12 if crowded and index % 2 else 0), text, anchor="middle", look="small")
    name = setting(axis.key) + (", log scale" if axis.is_log else "")
    canvas.text((LEFT + RIGHT) / 2, bottom + 43, name, "faint", anchor="middle", look="small")
    rings = " Ring: disturbed by other work; in a lead, a reference has no time." * any(line.rings for line in lines)
    canvas.text(12, canvas.height - 12, f"Whiskers: fastest to slowest run.{rings}", "faint", look="small")


def _description(step: str, times: Sequence[Trend], leads: Sequence[Trend]) -> str:
    """The figure in words, for a reader who cannot see it."""
    last = [f"{line.name} {numbers.microseconds(line.last[1])}" for line in times]
    ahead = [f"{line.name} {numbers.ratio(line.last[1])}" for line in leads]
    lead = f" Lead over the fastest reference there: {', '.join(ahead)}." if ahead else ""
    return f"Microseconds a {step} at each stage's last point: {', '.join(last)}.{lead}"


def axis_of(varied: Sequence[str], points: Sequence[Point]) -> Axis:
    """The axis of a study: the varied setting with the most values, placed by value if they are numbers."""
    key = max(varied, key=lambda name: len({value_text(point.values[name]) for point in points}))
    values = {value_text(point.values[key]): _number(point.values[key]) for point in points}
    numbers = [number for number in values.values() if number is not None]
    if len(set(numbers)) < len(values):  # words, or layers of different sizes: side by side
        return Axis(key, {text: float(index) for index, text in enumerate(values)}, is_log=False)
    places = {text: number for text, number in values.items() if number is not None}
    return Axis(key, places, is_log=min(numbers) > 0 and max(numbers) >= WIDE_RANGE * min(numbers))


def _number(value: object) -> float | None:
    """A value as a number: for hidden layers their common size; None for words or different sizes."""
    if isinstance(value, list):
        return float(value[0]) if len(set(value)) == 1 else None
    return float(value) if isinstance(value, int | float) else None


def _fixed(results: StudyResults, points: Sequence[Point]) -> str:
    """The network and batch size, as far as all points have the same."""
    varied, problems = results.study.varied, [results.runs[point.name].problem for point in points]
    first, batches = problems[0], {problem.batch_size for problem in problems}
    parts = [] if {"hidden", "depth"} & set(varied) else [first.network]
    if "hidden" in varied and "depth" not in varied and len(first.hidden) > 1 and len(set(first.hidden)) == 1:
        parts.append(numbers.count(len(first.hidden), "hidden layer"))
    widths = {width for problem in problems for width in problem.hidden}
    if "depth" in varied and "hidden" not in varied and len(widths) == 1:
        parts.append(f"hidden layers of {widths.pop()}")
    if "batch_size" not in varied and len(batches) == 1:
        parts.append(f"batch {batches.pop()}")
    return ", ".join(parts)
