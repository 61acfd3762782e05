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
from reports.figures.chart import NARROW, ChartLayout, Heading, Mark, Row, RowChart
from reports.figures.ladder import COLOURS, by_regime
from reports.figures.style import PIXELS, subject

WIDE = ChartLayout(PIXELS, 180, 640, 714, top=0, row=22)
NOTE = "Tick: the floor of the rung's own design here. Dot: its time. Red: no honest program is faster."


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
    cheat_limit = min(distance.cheat_limit_us for distance in distances)
    times = [us for distance in distances for us in (distance.step_us, distance.floor_us, cheat_limit)]
    chart = RowChart(
        by_regime((regime(one.stage), _row(one, layout, one is _fastest(distances))) for one in distances),
        "microseconds per step, log scale (left is faster)",
        [NOTE],
        [min(times) / 1.3, max(times) * 1.15],
        limit=("cheat limit", cheat_limit),
        has_line=True,
    )
    return chart.drawn(Heading(headline(distances), subject(results), layout.width, "bold"), layout)


def headline(distances: Sequence[FloorDistance]) -> str:
    """How far the fastest rung is from its floor, and which is nearest to its own."""
    fastest = _fastest(distances)
    nearest = min(distances, key=lambda distance: distance.times)
    told = f"{fastest.stage.name} takes {numbers.ratio(fastest.times)} the floor of its own design"
    if nearest is fastest:
        return f"{told}, the nearest of all"
    return f"{told}; {nearest.stage.name} is nearest, {numbers.ratio(nearest.times)}"


def _fastest(distances: Sequence[FloorDistance]) -> FloorDistance:
    return min(distances, key=lambda distance: distance.step_us)


def _row(distance: FloorDistance, layout: ChartLayout, is_best: bool) -> Row:
    """A rung's name, floor, dot, and its time as a multiple of the floor."""
    colour, words = COLOURS[regime(distance.stage)], f"{numbers.ratio(distance.times)} its floor"
    mark = Mark(distance.step_us, colour, bar=distance.floor_us)
    value = words if layout.words is None else numbers.microseconds(distance.step_us)
    return Row(name_of(distance.stage), value, mark, "", words, is_best=is_best)
