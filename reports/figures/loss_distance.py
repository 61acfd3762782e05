"""How far each stage's loss curve lies from the float64 oracle's, and how far verification lets it lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.run_table import name_of, table_order
from reports.facts.stage_facts import regime_of
from reports.figures.canvas import Canvas
from reports.figures.chart import ChartLayout, Heading, Mark, Row, RowChart
from reports.figures.ladder import COLOURS, by_regime
from reports.figures.style import NEAREST, PIXELS, Colour, subject

CHECK = "loss curve"  # as verification names it
LAYOUT = ChartLayout(PIXELS, 186, 690, 704, top=0, row=19)
AXIS = (
    "largest distance of an epoch's loss from float64's, as a share of the first loss, log scale (left is more exact)"
)
SAYS = "Red: beyond the limit, which is how far a float64 training moves when it rounds as this stage does."


@dataclass(frozen=True)
class LossDistance:
    """A stage's error in its loss curve, None if not finite, and the limit on it."""

    stage: StageResult
    error: float | None
    limit: float
    passed: bool

    @property
    def is_none(self) -> bool:
        """Whether nothing but rounding was seen; a log axis has no place for that."""
        return self.error is not None and self.error <= NEAREST


def loss_distances(results: Results) -> list[LossDistance]:
    """The stages whose loss curve was checked, in table order."""
    return [
        LossDistance(stage, check.error, max(check.limit, NEAREST), check.passed)
        for stage in table_order(results)
        for check in stage.checks
        if check.what == CHECK and check.judged
    ]


def loss_distance(results: Results) -> Canvas:
    """A row a stage that differs on a log axis: a dot at the error, a bar at the limit; at least one must differ."""
    every = loss_distances(results)
    distances, alike = ([one for one in every if one.is_none is without] for without in (False, True))
    errors = [end for one in distances for end in (one.limit, one.error) if end]
    colour: Colour = "ink" if all(one.passed for one in every) else "limit"
    judged = [one.stage for one in every]
    rest = [stage for stage in table_order(results) if stage.status == "passed" and stage not in judged]
    nearest = max((one for one in every if one.error), key=lambda one: (one.error or 0.0) / one.limit, default=None)
    named = {"No difference beyond rounding": [one.stage for one in alike], "Without a curve of timed runs": rest}
    without = [f"{words}: {', '.join(map(name_of, stages))}." for words, stages in named.items() if stages]
    chart = RowChart(
        by_regime((regime_of(one.stage), _row(one, one is nearest)) for one in distances),
        AXIS,
        [SAYS, *without],
        (10.0 ** math.floor(math.log10(min(errors))), 10.0 ** math.ceil(math.log10(max(errors)) + 0.1)),
        lambda error: f"{error:.0e}".replace("e-0", "e-").replace("e+0", "e"),
        limit=("each row's limit", distances[0].limit),
    )
    heading = Heading(_verdict(every, nearest), subject(results), look="bold", colour=colour)
    return chart.drawn(heading, LAYOUT)


def _verdict(distances: Sequence[LossDistance], nearest: LossDistance | None) -> str:
    outside = sum(not distance.passed for distance in distances)
    every = len(distances)
    if outside or nearest is None:
        curves = numbers.count(every, "loss curve")
        return f"{outside} of {curves} left the float64 oracle's by more than the limit"
    below = f"{name_of(nearest.stage)} has the least margin, {_times(nearest.limit / (nearest.error or 1.0))}"
    alike = sum(distance.is_none for distance in distances)
    without = f", {alike} without a difference" * bool(alike)
    return f"Every loss curve stays within its limit of float64's ({every} of {every}{without}); {below}"


def _row(distance: LossDistance, is_best: bool) -> Row:
    """A stage's name, dot and limit, and how often the error fits into the limit."""
    error, limit, colour = distance.error, distance.limit, COLOURS[regime_of(distance.stage)]
    words = "not finite" if error is None else f"{_times(error / limit)} above"
    if error is not None and distance.passed:
        words = f"{_times(limit / error)} below"
    mark = Mark(math.inf if error is None else error, colour if distance.passed else "limit", limit=limit)
    if (precision := numbers.precision(distance.stage.precision)) != "float32":
        words += f" ({precision})"
    tone: Colour = "faint" if distance.passed else "limit"
    margin = "least margin" * (is_best and distance.passed)
    return Row(name_of(distance.stage), "", mark, margin, words, colour=tone, is_best=is_best)


def _times(factor: float) -> str:
    """A factor in two digits at most: `620x`, `1.3x`, `3,300,000x`."""
    return f"{float(f'{factor:.2g}'):,{'.0f' if factor >= 10 else 'g'}}x"
