"""The figures of a study as SVG: the time of a step over the varied setting, and below it the rungs' lead."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ladder.records.run import Results, StageResult
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.provenance import gpu_name
from reports.facts.study import PointLead, StudyResults, point_winners, setting, step_us, value_text
from reports.facts.summary import dataset_name, name_of
from reports.figures.curves import curves, has_curves
from reports.figures.ladder import ladder
from reports.figures.style import BACKGROUND, FAINT, INK, PALETTE, STYLE, WIDTH, log_y, svg, tidy

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
WIDE_RANGE = 8.0  # largest by smallest value; from here on the axis is logarithmic


@dataclass(frozen=True)
class Axis:
    """The horizontal axis: a setting and the place of each of its values."""

    key: str
    places: dict[str, float]  # by value in words, in drawing order
    is_log: bool

    def place(self, point: Point) -> float:
        """The place of a study's point."""
        return self.places[value_text(point.values[self.key])]


def study_figures(results: StudyResults) -> dict[str, str]:
    """Every figure that the study has numbers for, as SVG text by file name."""
    return dict(_drawings(results))


def seeds_of(results: StudyResults) -> dict[str, list[Point]]:
    """The points with curves, grouped by their settings in words; points of a group differ only in their seed."""
    found: dict[str, list[Point]] = {}
    for point in results.measured:
        if has_curves(results.runs[point.name]):
            same = {key: value for key, value in point.values.items() if key != "seed"}
            name = ".".join(f"{key.replace('_', '-')}-{value_text(value)}" for key, value in same.items())
            found.setdefault(name, []).append(point)
    return found


def _drawings(results: StudyResults) -> Iterator[tuple[str, str]]:
    if seeded := seeds_of(results):
        for name, points in seeded.items():
            runs = [results.runs[point.name] for point in points]
            yield f"curves{'-' if name else ''}{name}.svg", svg(curves(runs))
        return  # a study of curves times short runs only
    timed = [point for point in results.measured if any(map(step_us, results.runs[point.name].stages))]
    if not timed:
        return
    if len(timed) == 1:  # one point makes no line
        yield "ladder.svg", ladder(results.runs[timed[0].name])
        return
    axis = axis_of(results.study.varied, timed)
    for name, where, points in _slices(results.study.varied, axis, timed):
        yield f"step_time{name}.svg", svg(step_time(results, axis, points, where))


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


def _slices(varied: Sequence[str], axis: Axis, points: Sequence[Point]) -> Iterator[tuple[str, str, list[Point]]]:
    """The points of each figure, with its name and title part: one figure for each value of the other setting."""
    others = [key for key in varied if key != axis.key]
    if not others:
        yield "", "", list(points)
        return
    (other,) = others
    for text in dict.fromkeys(value_text(point.values[other]) for point in points):
        here = [point for point in points if value_text(point.values[other]) == text]
        yield f"-{other.replace('_', '-')}-{text}", f"{setting(other)} {text}", here


def step_time(results: StudyResults, axis: Axis, points: Sequence[Point], where: str = "") -> Figure:
    """Microseconds a step of every stage over the axis, and below it the lead of each precision's fastest rung.

    Rungs have solid lines and full markers, references broken lines and hollow markers. Bars reach from the fastest to
    the slowest run. A missing time interrupts the line; a point that was measured without the stage does not.
    """
    stages = [stage for stage in results.stages() if any(step_us(results.at(point, stage.name)) for point in points)]
    ahead: dict[str, list[PointLead]] = {}  # by class of precision
    for one in point_winners(results):
        if one.point in points:
            ahead.setdefault(one.lead.precision, []).append(one)
    columns = 2 if max(len(name_of(stage)) for stage in stages) <= 50 else 1
    rows = -(-len(stages) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(
            figsize=(WIDTH, 3.9 + (2.7 if ahead else 0) + 0.23 * rows), layout="constrained", facecolor=BACKGROUND
        )
        ratios = [1.45, 1] if ahead else [1]
        panels = figure.subplots(len(ratios), sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        for index, stage in enumerate(stages):
            asked = [number for number, point in enumerate(points) if results.at(point, stage.name)]
            places = [axis.place(points[number]) for number in asked]
            spreads = [step_us(results.at(points[number], stage.name)) for number in asked]
            look = _look(index, stage)
            _line(panels[0], places, [spread.median if spread else None for spread in spreads], name_of(stage), **look)
            for place, spread in zip(places, spreads, strict=True):
                if spread:
                    reach = [[spread.median - spread.min], [spread.max - spread.median]]
                    panels[0].errorbar(place, spread.median, yerr=reach, color=look["color"], capsize=3.5, linewidth=1)
        panels[0].set_ylabel("us/step, log scale")
        if ahead:
            panels[1].axhline(1.0, color=FAINT, linewidth=1.2)
            panels[1].set_ylabel("fastest rung: x of the\nfastest reference, log scale")
        for index, (precision, leads) in enumerate(ahead.items()):
            _lead_line(panels[1], axis, leads, f"lead of the fastest {precision} rung", MARKERS[index])
        for panel in panels:
            log_y(panel)
            tidy(panel, "both")
        _bottom(panels[-1], axis)
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, handlelength=3)
        _title(figure, results, results.runs[points[0].name], where)
    return figure


def _look(index: int, stage: StageResult) -> dict[str, Any]:
    """The style of one stage's line: each has its own colour or marker."""
    reference = stage.group == "reference"
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 4.5,
        "markerfacecolor": BACKGROUND if reference else PALETTE[index % len(PALETTE)],
        "linestyle": (0, (4, 2)) if reference else "-",
        "linewidth": 1.4,
    }


def _line(axes: Axes, places: Sequence[float], values: Sequence[float | None], name: str, **look: Any) -> None:
    """A line through the values; a missing one interrupts it."""
    axes.plot(places, [float("nan") if value is None else value for value in values], label=name or None, **look)


def _lead_line(axes: Axes, axis: Axis, leads: Sequence[PointLead], name: str, marker: str) -> None:
    """The leads with their spread over processes; a hollow marker for one that a missing reference may lower."""
    places, ratios = [axis.place(one.point) for one in leads], [one.lead.ratio for one in leads]
    reach = [[one.times - one.low for one in ratios], [one.high - one.times for one in ratios]]
    times = [one.times for one in ratios]
    axes.errorbar(places, times, yerr=reach, fmt=f"-{marker}", color=INK, linewidth=1.2, capsize=3.5, label=name)
    for place, one in zip(places, leads, strict=True):
        full = BACKGROUND if one.missing else INK
        axes.plot(place, one.lead.ratio.times, marker, color=INK, markersize=5, markerfacecolor=full)


def _bottom(axes: Axes, axis: Axis) -> None:
    """Label the axis at every value, slanted if the labels would touch."""
    if axis.is_log:
        axes.set_xscale("log")
    places, texts = list(axis.places.values()), list(axis.places)
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(texts, rotation=30 if _crowded(axis) else 0, ha="right" if _crowded(axis) else "center")
    axes.set_xlabel(setting(axis.key) + (", log scale" if axis.is_log else ""))


def _crowded(axis: Axis) -> bool:
    """Whether two neighbouring labels would touch; a character takes about a hundredth of the axis."""
    at = [math.log(place) if axis.is_log else place for place in axis.places.values()]
    reach = max(at) - min(at)
    texts = list(axis.places)
    return any(
        (right - left) / reach < 0.006 * (len(first) + len(second) + 2)
        for (left, right), (first, second) in zip(pairwise(at), pairwise(texts), strict=True)
    )


def _title(figure: Figure, results: StudyResults, run: Results, where: str) -> None:
    """Set the study's title, with its fixed settings, data and GPU."""
    parts = (where, _fixed(results, run), dataset_name(run), gpu_name(run))
    text = f"{results.study.title}\n" + textwrap.fill(", ".join(part for part in parts if part), 90)
    figure.suptitle(text, x=0.01, horizontalalignment="left", parse_math=False)


def _fixed(results: StudyResults, run: Results) -> str:
    """The network and batch size, as far as they are fixed."""
    varied = results.study.varied
    problem = run.problem
    parts = [] if {"hidden", "depth"} & set(varied) else [problem.network]
    if "hidden" in varied and "depth" not in varied and len(problem.hidden) > 1 and len(set(problem.hidden)) == 1:
        parts.append(numbers.count(len(problem.hidden), "hidden layer"))
    if "depth" in varied and "hidden" not in varied and (widths := _widths(results)):
        parts.append(f"hidden layers of {widths}")
    if "batch_size" not in varied:
        parts.append(f"batch {problem.batch_size}")
    return ", ".join(parts)


def _widths(results: StudyResults) -> str:
    found = {width for run in results.runs.values() for width in run.problem.hidden}
    return str(found.pop()) if len(found) == 1 else ""
