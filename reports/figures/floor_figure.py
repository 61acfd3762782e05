"""How far each rung is from the floor of its own design, and from the cheat limit, on a log axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ladder.records.limits_record import DesignFloor
from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.launch_regimes import regime
from reports.facts.run_table import name_of, table_order
from reports.facts.times import median_us
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    KEY_LINE,
    LINE,
    MARGIN,
    ChartLayout,
    Heading,
    Scale,
    draw_lines,
    folded,
    key_lines,
    legend,
)  # fmt: skip
from reports.figures.ladder import COLOURS, regime_keys
from reports.figures.style import PIXELS, subject

WIDE = ChartLayout(PIXELS, 180, 700, 714, top=0, row=22)
NARROW = ChartLayout(344, 12, 332, None, top=0, row=40)  # names and multiples stand above their rows


@dataclass(frozen=True)
class FloorDistance:
    """A rung's time and its bounds, in us/step."""

    stage: StageResult
    step_us: float
    floor_us: float
    cheat_limit_us: float
    design: DesignFloor

    @property
    def times(self) -> float:
        """The time as a multiple of the floor."""
        return self.step_us / self.floor_us


def floor_distances(results: Results) -> list[FloorDistance]:
    """The timed rungs whose design has a floor, in table order."""
    distances = []
    for stage in table_order(results):
        us, bounds = median_us(stage), stage.bounds
        if us and bounds and bounds.design and bounds.cheat_limit_us > 0 and stage.group != "reference":
            floor_us = max(bounds.design.total_us, bounds.cheat_limit_us)
            distances.append(FloorDistance(stage, us, floor_us, bounds.cheat_limit_us, bounds.design))
    return distances


def drawn(results: Results, layout: ChartLayout) -> Canvas:
    """A row a rung: a bar at the floor, a dot at the time; at least one rung must have a floor."""
    layout = WIDE if layout.words is not None else NARROW
    distances = floor_distances(results)
    title = headline(distances)
    foot = "Bar: the floor of the rung's own design here. Dot: its time. Red: no honest program is faster."
    heading = Heading(title, subject(results), layout.width, "bold")
    feet, keys = folded(foot, layout.width - 2 * MARGIN, "small"), regime_keys(one.stage for one in distances)
    top = heading.bottom + 36
    bottom = top + layout.row * len(distances)
    height = bottom + 52 + LINE * len(feet) + KEY_LINE * len(key_lines(keys, layout.width))
    canvas = Canvas(layout.width, height, f"{title}: {subject(results)}", _description(distances))
    heading.draw(canvas)
    cheat_limit = min(distance.cheat_limit_us for distance in distances)
    times = [us for distance in distances for us in (distance.step_us, distance.floor_us, cheat_limit)]
    scale = Scale.log([min(times) / 1.3, max(times) * 1.15], layout.left, layout.right)
    scale.draw_below(canvas, top - 6, bottom)
    at = scale.place(cheat_limit)
    canvas.line([(at, top - 6), (at, bottom)], "limit", width=1.5, dash="5 4")
    canvas.text(max(at, layout.left + 26), top - 12, "cheat limit", "limit", anchor="middle", look="small")
    for index, distance in enumerate(distances):
        _draw_rung(canvas, distance, top + layout.row * (index + 0.5), scale, layout)
    canvas.text(layout.left, bottom + 34, "microseconds per step, log scale", "faint", look="small")
    draw_lines(canvas, feet, bottom + 54)
    legend(canvas, keys, bottom + 42 + LINE * len(feet))
    return canvas


def headline(distances: Sequence[FloorDistance]) -> str:
    """How far the fastest rung is from its floor, and which is nearest to its own."""
    fastest = min(distances, key=lambda distance: distance.step_us)
    nearest = min(distances, key=lambda distance: distance.times)
    told = f"{fastest.stage.name} takes {numbers.ratio(fastest.times)} its floor"
    if nearest is fastest:
        return f"{told}, the nearest of all"
    return f"{told}; {nearest.stage.name} is nearest, {numbers.ratio(nearest.times)}"


def _draw_rung(canvas: Canvas, distance: FloorDistance, middle: float, scale: Scale, layout: ChartLayout) -> None:
    """A rung's name, floor, dot, and its time as a multiple of the floor."""
    colour = COLOURS[regime(distance.stage)]
    words = f"{numbers.ratio(distance.times)} its floor"
    if layout.words is None:
        canvas.text(layout.left, middle - 5, name_of(distance.stage), look="mono halo")
        canvas.text(layout.right, middle - 5, words, "faint", anchor="end", look="small halo")
        middle += 9
    else:
        canvas.text(layout.left - 14, middle + 4, name_of(distance.stage), anchor="end", look="mono")
        canvas.text(layout.words, middle + 4, words, "faint", look="small")
    floor, at = scale.place(distance.floor_us), scale.place(distance.step_us)
    canvas.line([(floor, middle), (at, middle)], "grid", width=3)
    canvas.line([(floor, middle - 7), (floor, middle + 7)], colour, width=3)
    canvas.dot(at, middle, 4.5, colour)


def _description(distances: Sequence[FloorDistance]) -> str:
    """The figure in a sentence, for a reader who cannot see it."""
    rows = [
        f"{distance.stage.name} {numbers.microseconds(distance.step_us)} of {numbers.microseconds(distance.floor_us)}"
        for distance in distances
    ]
    return f"Microseconds per step and the floor of each rung's design: {', '.join(rows)}."
