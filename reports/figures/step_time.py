"""A study's figure: microseconds a step over the varied setting, and below it the lead of the fastest rung."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ladder.records.run import Results, Spread, StageResult
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.baselines import fastest
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import HEADINGS, Regime, regime
from reports.facts.provenance import gpus_name
from reports.facts.run_table import dataset_name, name_of
from reports.facts.study_points import StudyResults, is_disturbed, point_winners, setting, value_text
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import Heading, Scale, number, spread_apart
from reports.figures.ladder import COLOURS
from reports.figures.style import PIXELS, Colour

LEFT, RIGHT, LABELS = 66, 575, 596  # pixels: the axes, and the labels on their right
TOP, GAP, BOTTOM, LABEL = 84, 44, 92, 14
LETTER = 6.3  # pixels, of small text
TIMES, LEADS = 270, 130  # pixels: the least height of a panel
NETWORKS = "networks"  # the setting whose figure shows a network's share of a step
WIDE_RANGE = 8.0  # largest by smallest value; from here on the axis is logarithmic
LEAD_DASHES = {"float32": "", "tf32": "2 3", "bf16/fp16": "9 3"}  # by class of precision


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
    is_thick: bool = False
    regime: Regime | None = None  # of a rung's line

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
    times, leads = _times(results, axis, points, stages), _leads(results, axis, points)
    step = "step"
    if axis.key == NETWORKS:
        step = "network-step"
        times += _limit(results, axis, points)
    upper = max(TIMES, LABEL * len(times))
    lower = max(LEADS, LABEL * len(leads)) if leads else 0
    bottom = TOP + upper + (GAP + lower if leads else 0)
    run = results.runs[points[0].name]
    about = ", ".join(part for part in (where, _fixed(results, points), dataset_name(run), gpus_name(run)) if part)
    canvas = Canvas(PIXELS, bottom + BOTTOM, f"{results.study.title}: {about}", _description(step, times, leads))
    Heading(results.study.title, about).draw(canvas)
    _panel(canvas, times, TOP, upper, f"us/{step}, log scale", axis, points)
    if leads:
        _panel(
            canvas, leads, TOP + upper + GAP, lower, "lead of the fastest rung over the fastest reference", axis, points
        )
    on_gpu_time = any(winner.lead.on_gpu_time for winner in point_winners(results) if winner.point in points)
    _bottom(canvas, [*times, *leads], axis, points, bottom, on_gpu_time=on_gpu_time)
    return canvas


def _times(results: StudyResults, axis: Axis, points: Sequence[Point], stages: Iterable[StageResult]) -> list[Trend]:
    """A line a stage: rungs in the colour of their regime, references broken; the winners are thick."""
    winners = {name for point in points for name in _fastest(results.runs[point.name])}
    times = []
    for stage in stages:
        asked = [(axis.place(point), results.at(point, stage.name)) for point in points]
        shares = [results.runs[point.name].problem.networks if axis.key == NETWORKS else 1 for point in points]
        spreads = [
            (place, _share(step_us(stage), networks))
            for (place, stage), networks in zip(asked, shares, strict=True)
            if stage is not None
        ]
        is_reference = stage.group == "reference"
        way = None if is_reference else regime(stage)
        times.append(
            Trend(
                name_of(stage),
                COLOURS[way],
                spreads,
                frozenset(place for place, stage in asked if is_disturbed(stage)),
                "6 4" if is_reference else "",
                stage.name in winners,
                way,
            )
        )
    return times


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


def _fastest(run: Results) -> list[str]:
    """The fastest rung and the fastest reference of a run."""
    rungs = fastest(stage for stage in run.stages if stage.group != "reference")
    references = fastest(stage for stage in run.stages if stage.group == "reference")
    return [stage.name for stage in (rungs, references) if stage is not None]


def _leads(results: StudyResults, axis: Axis, points: Sequence[Point]) -> list[Trend]:
    """A line a class of precision."""
    by_precision = grouped(
        (winner.lead.precision, winner) for winner in point_winners(results) if winner.point in points
    )
    return [
        Trend(
            f"{precision} rungs",
            "ink",
            [
                (axis.place(winner.point), Spread((over := winner.lead.ratio).times, over.low, over.high))
                for winner in ones
            ],
            frozenset(axis.place(winner.point) for winner in ones if winner.missing),
            LEAD_DASHES[precision],
            is_thick=True,
        )
        for precision, ones in by_precision.items()
    ]


def _panel(
    canvas: Canvas, lines: Sequence[Trend], top: float, height: float, heading: str, axis: Axis, points: Sequence[Point]
) -> None:
    """Lines with whiskers on a log axis, each with its name and its last value on the right."""
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
    values_at = {axis.place(point): value_text(point.values[axis.key]) for point in points}
    for line in sorted(lines, key=lambda line: line.is_thick):
        _line(canvas, line, scale)
    for line, at in zip(lines, spread_apart([place(line.last[1]) for line in lines], top, height, LABEL), strict=True):
        last, value = line.last
        canvas.line([(last + 5, place(value)), (RIGHT + 4, place(value)), (LABELS - 4, at)], line.colour, dash="1 3")
        text = numbers.ratio(value) if is_lead else numbers.microseconds(value)
        if last < max(values_at):
            text += f" at {values_at[last]}"
        canvas.text(
            LABELS, at + 4, f"{line.name}  {text}", line.colour, look=f"small{' bold' if line.is_thick else ''}"
        )


def _line(canvas: Canvas, line: Trend, scale: Scale) -> None:
    place = scale.place
    width = 2.2 if line.is_thick else 1.1
    for is_there, piece in groupby(line.spreads, key=lambda point: point[1] is not None):
        known = [(at, spread) for at, spread in piece if spread is not None]
        if is_there and len(known) > 1:
            canvas.line([(at, place(spread.median)) for at, spread in known], line.colour, width=width, dash=line.dash)
        for at, spread in known:
            low, high = place(spread.min), place(spread.max)
            if low - high > 3:
                canvas.line([(at, low), (at, high)], line.colour)
                for end in (low, high):
                    canvas.line([(at - 3, end), (at + 3, end)], line.colour)
            canvas.dot(at, place(spread.median), 3.5 if line.is_thick else 2.5, line.colour, hollow=at in line.rings)


def _bottom(
    canvas: Canvas, lines: Sequence[Trend], axis: Axis, points: Sequence[Point], bottom: float, *, on_gpu_time: bool
) -> None:
    """The values of the setting, on two lines if they would touch, and how to read the figure."""
    texts = [(axis.place(point), value_text(point.values[axis.key])) for point in points]
    width = max(len(text) for _, text in texts) * 6.6 + 6
    crowded = any(right - left < width for (left, _), (right, _) in pairwise(sorted(texts)))
    for index, (at, text) in enumerate(sorted(texts)):
        canvas.text(at, bottom + 16 + (12 if crowded and index % 2 else 0), text, anchor="middle", look="small")
    name = setting(axis.key) + (", log scale" if axis.is_log else "")
    canvas.text((LEFT + RIGHT) / 2, bottom + 43, name, "faint", anchor="middle", look="small")
    shown = {line.regime for line in lines}
    at = 12.0
    for each, text in HEADINGS.items():
        if each in shown:
            canvas.text(at, bottom + 64, text, COLOURS[each], look="small")
            at += LETTER * len(text) + 16
    references = "Dashed grey: a reference. " if any(line.colour == "reference" for line in lines) else ""
    rings = "Ring: disturbed; in a lead, a reference has no time. "
    waits = "Leads use GPU time if a reference waits. " if on_gpu_time else ""
    canvas.text(
        12,
        bottom + 80,
        f"{references}{rings if any(line.rings for line in lines) else ''}{waits}Whiskers: range of runs.",
        "faint",
        look="small",
    )


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
