"""The figures of a study as SVG: curves by seed, the ladder of a single point, or times over a setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ladder.records.study import Point
from reports.facts.study_points import StudyResults, setting_text, value_text
from reports.facts.times import step_us
from reports.figures import energy_figure
from reports.figures.canvas import Canvas
from reports.figures.energy_figure import energies
from reports.figures.ladder import drawn
from reports.figures.loss_curves import curves, has_curves
from reports.figures.step_time import Axis, axis_of, step_time


def seeds_of(results: StudyResults) -> dict[str, list[Point]]:
    """The points with curves, grouped by their settings in words; points of a group differ only in their seed."""
    points: dict[str, list[Point]] = {}
    for point in results.measured:
        if has_curves(results.runs[point.name]):
            same = {key: value for key, value in point.values.items() if key != "seed"}
            name = ".".join(f"{key.replace('_', '-')}-{value_text(value)}" for key, value in same.items())
            points.setdefault(name, []).append(point)
    return points


def drawings(results: StudyResults) -> Iterator[tuple[str, Canvas]]:
    """Every figure as a drawing, with the name of its file."""
    if seeded := seeds_of(results):
        for name, points in seeded.items():
            yield f"curves{'-' if name else ''}{name}.svg", curves([results.runs[point.name] for point in points])
        return  # a study of curves times short runs only
    timed = [point for point in results.measured if any(map(step_us, results.runs[point.name].stages))]
    if not timed:
        return
    if len(timed) == 1:  # one point makes no line
        yield "ladder.svg", drawn(results.runs[timed[0].name])
        return
    axis = axis_of(results.study.varied, timed)
    for name, where, points in _slices(results.study.varied, axis, timed):
        yield f"step_time{name}.svg", step_time(results, axis, points, where)
    for point in timed:
        if energies(results.runs[point.name]):
            yield f"energy-{point.name}.svg", energy_figure.drawn(results.runs[point.name])


def _slices(varied: Sequence[str], axis: Axis, points: Sequence[Point]) -> Iterator[tuple[str, str, list[Point]]]:
    """The points of each figure, with its name and title part: one figure for each value of the other setting."""
    others = [key for key in varied if key != axis.key]
    if not others:
        yield "", "", list(points)
        return
    (other,) = others
    for text in dict.fromkeys(value_text(point.values[other]) for point in points):
        here = [point for point in points if value_text(point.values[other]) == text]
        yield f"-{other.replace('_', '-')}-{text}", setting_text(other, here[0].values[other]), here
