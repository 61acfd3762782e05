"""The figures of a run and of a study, by the names of their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ladder.records.run import Results
from ladder.records.study import Point
from reports.facts.grouped import grouped
from reports.facts.profiles import timeline_name
from reports.facts.provenance import machine_name
from reports.facts.study_points import StudyResults, setting_text, value_text
from reports.facts.time_breakdown import chain
from reports.facts.times import step_us
from reports.figures import energy_figure, ladder, roofline, waterfall
from reports.figures.canvas import Canvas
from reports.figures.chart import FILE, ChartLayout
from reports.figures.loss_curves import curves, has_curves
from reports.figures.step_time import Axis, axis_of, step_time
from reports.figures.timeline_figure import on_one_clock, shown, with_timeline


class RunFigure(NamedTuple):
    """A figure of runs, and whether one has something to draw in it."""

    title: str
    has: Callable[[Results], object]
    draw: Callable[[Results], Canvas]


LADDER = "ladder.svg"
# fmt: off
OF_RUN: dict[str, RunFigure] = {  # by the name of the file
    LADDER: RunFigure("Microseconds per training step of each rung, with an arrow from its parent",
                      lambda run: any(map(step_us, run.stages)), ladder.drawn),
    "curves.svg": RunFigure("Training loss within epochs, validation loss and accuracy, with the oracle's",
                            has_curves, lambda run: curves([run])),
    "waterfall.svg": RunFigure("The way to the fastest rung: what each rung on it changed, part by part",
                               chain, lambda run: waterfall.drawn(run, chain(run))),
    "roofline.svg": RunFigure("The rate of each rung below the measured limits of the GPU, by its traffic",
                              roofline.points, roofline.drawn),
    "energy.svg": RunFigure("Joules per epoch of each stage, and what the idle GPU draws in the same time",
                            energy_figure.energies, energy_figure.drawn),
}
# fmt: on


def drawings(results: Results) -> dict[str, Callable[[], Canvas]]:
    """The function that draws each figure, by file name."""
    figures = {name: partial(figure.draw, results) for name, figure in OF_RUN.items() if figure.has(results)}
    alone = {timeline_name(stage): partial(on_one_clock, [shown(stage)], results) for stage in with_timeline(results)}
    return {**figures, **alone}


def seeds_of(results: StudyResults) -> dict[str, list[Point]]:
    """The points with curves, grouped by their settings in words, and by their machines where they are of several.

    Points of a group differ only in their seed.
    """
    seen = [point for point in results.measured if has_curves(results.runs[point.name])]
    machines = {point.name: re.sub(r"\W+", "-", machine_name(results.runs[point.name])).lower() for point in seen}
    several = len({*machines.values()}) > 1

    def name(point: Point) -> str:
        same = [f"{key.replace('_', '-')}-{value_text(of)}" for key, of in point.values.items() if key != "seed"]
        return ".".join([*same, *([machines[point.name]] if several else [])])

    return grouped((name(point), point) for point in seen)


def study_drawings(results: StudyResults, chart: ChartLayout = FILE) -> Iterator[tuple[str, Canvas]]:
    """Every figure as a drawing, with the name of its file; those of curves have one layout."""
    if seeded := seeds_of(results):
        for name, points in seeded.items():
            yield f"curves{'-' if name else ''}{name}.svg", curves([results.runs[point.name] for point in points])
        return  # a study of curves times short runs only
    timed = [point for point in results.measured if any(map(step_us, results.runs[point.name].stages))]
    if not timed:
        return
    if len(timed) == 1:  # one point makes no line
        yield LADDER, ladder.drawn(results.runs[timed[0].name], chart)
        return
    axis = axis_of(results.study.varied, timed)
    for name, where, points in _slices(results.study.varied, axis, timed):
        yield f"step_time{name}.svg", step_time(results, axis, points, where, chart)
    spent = {point.name: run for point in timed if energy_figure.energies(run := results.runs[point.name])}
    for name, run in spent.items():
        yield f"energy-{name}.svg", energy_figure.drawn(run, chart, [*spent.values()])


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
