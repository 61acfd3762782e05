"""How far each rung is from the floor of its own design, and from the cheat limit, on a log axis."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.launch_regimes import regime
from reports.facts.run_table import name_of, table_order
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.ladder import COLOURS
from reports.figures.style import PIXELS, subject

SHORTER, FOOT_LINE = 46, 15  # letters of a line on a telephone, and the pixels from one to the next


@dataclass(frozen=True)
class FloorLayout:
    """The picture's places in pixels."""

    width: float
    left: float  # where the axis begins
    right: float  # where it ends
    row: float  # the height of a rung
    is_narrow: bool = False  # names and multiples stand above their rows, and long lines are folded


WIDE = FloorLayout(PIXELS, 170, 700, 22)
PHONE = FloorLayout(344, 12, 332, 40, is_narrow=True)
TOP, BOTTOM, ASIDE = 84, 66, 14  # pixels; the last one lies between the axis and the words on its right


@dataclass(frozen=True)
class FloorDistance:
    """A rung's time and its bounds, in us/step."""

    stage: StageResult
    step_us: float
    floor_us: float
    cheat_limit_us: float

    @property
    def times(self) -> float:
        """The time as a multiple of the floor."""
        return self.step_us / self.floor_us


def floor_distances(results: Results) -> list[FloorDistance]:
    """The timed rungs whose design has a floor, in table order."""
    distances = []
    for stage in table_order(results):
        timed, bounds = step_us(stage), stage.bounds
        floor_us = bounds.design_floor_us if bounds is not None else None
        if timed and bounds is not None and floor_us and bounds.cheat_limit_us > 0 and stage.group != "reference":
            distances.append(FloorDistance(stage, timed.median, floor_us, bounds.cheat_limit_us))
    return distances


def drawn(results: Results, layout: FloorLayout = WIDE) -> Canvas:
    """A row a rung: a bar at the floor, a dot at the time; at least one rung must have a floor."""
    distances = floor_distances(results)
    nearest = min(distances, key=lambda distance: distance.times)
    title = f"{nearest.stage.name} is nearest to its floor: {numbers.ratio(nearest.times)}"
    foot = "Bar: the floor of the rung's own design here. Dot: its time. Red: no honest program is faster."
    titles, feet = _folded(title, layout), _folded(foot, layout)
    top = TOP + FOOT_LINE * (len(titles) - 1)
    bottom = top + layout.row * len(distances)
    height = bottom + BOTTOM + FOOT_LINE * (len(feet) - 1)
    canvas = Canvas(layout.width, height, f"{title}: {subject(results)}", _description(distances))
    for index, line in enumerate(titles):
        canvas.text(12, 24 + FOOT_LINE * index, line, look="bold")
    canvas.text(12, top - TOP + 42, subject(results), "faint", look="small" if layout.is_narrow else "")
    cheat_limit = min(distance.cheat_limit_us for distance in distances)
    place = _scale([us for distance in distances for us in (distance.step_us, distance.floor_us, cheat_limit)], layout)
    for power in range(-4, 8):
        if layout.left <= (at := place(10.0**power)) <= layout.right:
            canvas.line([(at, top - 6), (at, bottom)], "grid")
            canvas.text(at, bottom + 16, f"{10.0**power:,g}", "faint", anchor="middle", look="small")
    at = place(cheat_limit)
    canvas.line([(at, top - 6), (at, bottom)], "limit", width=1.5, dash="5 4")
    canvas.text(max(at, layout.left + 26), top - 12, "cheat limit", "limit", anchor="middle", look="small")
    for index, distance in enumerate(distances):
        _draw_rung(canvas, distance, top + layout.row * (index + 0.5), place, layout)
    canvas.text(layout.left, bottom + 34, "microseconds a training step, log scale", "faint", look="small")
    for index, line in enumerate(feet):
        canvas.text(12, bottom + 54 + FOOT_LINE * index, line, "faint", look="small")
    return canvas


def _folded(text: str, layout: FloorLayout) -> list[str]:
    """A line of text as one, or as some that fit a telephone."""
    return textwrap.wrap(text, SHORTER) if layout.is_narrow else [text]


def _draw_rung(
    canvas: Canvas, distance: FloorDistance, middle: float, place: Callable[[float], float], layout: FloorLayout
) -> None:
    """A rung's name, floor, dot, and its time as a multiple of the floor."""
    colour = COLOURS[regime(distance.stage)]
    words = f"{numbers.ratio(distance.times)} its floor"
    if layout.is_narrow:
        canvas.text(layout.left, middle - 5, name_of(distance.stage), look="mono halo")
        canvas.text(layout.right, middle - 5, words, "faint", anchor="end", look="small halo")
        middle += 9
    else:
        canvas.text(layout.left - ASIDE, middle + 4, name_of(distance.stage), anchor="end", look="mono")
        canvas.text(layout.right + ASIDE, middle + 4, words, "faint", look="small")
    canvas.line([(place(distance.floor_us), middle), (place(distance.step_us), middle)], "grid", width=3)
    canvas.line([(place(distance.floor_us), middle - 7), (place(distance.floor_us), middle + 7)], colour, width=3)
    canvas.dot(place(distance.step_us), middle, 4.5, colour)


def _scale(values: Sequence[float], layout: FloorLayout) -> Callable[[float], float]:
    """From us/step to pixels, with a margin at both ends."""
    low, high = math.log(min(values) / 1.3), math.log(max(values) * 1.15)
    return lambda value: layout.left + (math.log(value) - low) / (high - low) * (layout.right - layout.left)


def _description(distances: Sequence[FloorDistance]) -> str:
    """The figure in a sentence, for a reader who cannot see it."""
    rows = [
        f"{distance.stage.name} {numbers.microseconds(distance.step_us)} of {numbers.microseconds(distance.floor_us)}"
        for distance in distances
    ]
    return f"Microseconds a step and the floor of each rung's design: {', '.join(rows)}."
