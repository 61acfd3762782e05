"""The rungs that a short table shows: the fastest, and those that change a step's time most, each with its way up."""

from __future__ import annotations

import math

from ladder.records.run import ABLATIONS, Results, StageResult
from reports.facts.baselines import ratio
from reports.facts.run_table import table_order
from reports.facts.times import median_us, step_us

MOST_RUNGS = 15  # of the front picture and README's table: what fits on a screen


def timed_rungs(results: Results, *, with_ablations: bool = True) -> list[StageResult]:
    """Every rung with a time, in table order."""
    left_out = ("reference", *(() if with_ablations else ABLATIONS))
    return [stage for stage in table_order(results) if stage.group not in left_out and step_us(stage) is not None]


def headline_rungs(results: Results, most: int) -> list[StageResult]:
    """At most `most` timed rungs of the ladder, in table order; ablations and references are left out.

    The fastest rung is chosen first, then those that change the time most. A rung comes with every timed rung below it,
    so that each row's parent is in the table.
    """
    timed = {stage.name: stage for stage in timed_rungs(results, with_ablations=False)}
    chosen: set[str] = set()
    fastest = min(timed, key=lambda name: median_us(timed[name]) or math.inf, default="")
    for name in sorted(timed, key=lambda name: (name != fastest, -_effect(timed, name))):
        wanted = chosen | _way_up(timed, name)
        if len(wanted) <= most:
            chosen = wanted
    return [stage for name, stage in timed.items() if name in chosen]


def _effect(timed: dict[str, StageResult], name: str) -> float:
    """How far a rung moves the time of its parent, as a logarithm; infinite for a rung without a timed parent."""
    factor = ratio(timed.get(timed[name].below or ""), timed[name])
    return math.inf if factor is None else abs(math.log(factor.times))


def _way_up(timed: dict[str, StageResult], name: str | None) -> set[str]:
    """A rung and the timed rungs that it climbs from."""
    way: set[str] = set()
    while name in timed and name not in way:
        way.add(name)
        name = timed[name].below
    return way
