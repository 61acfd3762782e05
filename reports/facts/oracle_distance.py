"""The distance of each stage's training curve from the oracle's, beside the limit that verification sets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ladder.records.run import Curve, OracleRecord, Results, StageResult
from reports.facts.grouped import grouped


@dataclass(frozen=True)
class OracleDistance:
    """A stage's distance from the oracle in training loss, relative to the oracle's loss in its first epoch."""

    stage: StageResult
    by_step: dict[int, float]  # the largest over the runs; infinite for a loss that is not finite
    limit: float | None  # the least over the runs; None if verification checked no loss curve

    @property
    def worst(self) -> float:
        """The largest distance over all training points."""
        return max(self.by_step.values())

    @property
    def within(self) -> bool | None:
        """Whether the distance is within the limit; None without a limit."""
        return None if self.limit is None else self.worst <= self.limit


def oracle_distances(runs: Sequence[Results]) -> list[OracleDistance]:
    """The distances of these runs, for every stage with a curve in one of them, in the run's order."""
    curves = ((stage, _by_step(stage.curve, run.oracle)) for run in runs for stage in run.stages)
    found = grouped((stage.name, (stage, by_step)) for stage, by_step in curves if by_step)
    distances = []
    for ones in found.values():
        limits = [check.limit for stage, _ in ones for check in stage.checks if check.what == "loss curve"]
        by_step = largest(by_step for _, by_step in ones)
        distances.append(OracleDistance(ones[-1][0], by_step, min(limits, default=None)))
    return distances


def largest(distances: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """The largest distance at each step that any of them has."""
    at_step = grouped(item for by_step in distances for item in by_step.items())
    return {step: max(at_step[step]) for step in sorted(at_step)}


def _by_step(curve: Curve | None, oracle: OracleRecord | None) -> dict[int, float]:
    """The distance at each training point, from the same parameters, infinite for a loss that is not finite."""
    first = next((seen.loss for seen in oracle.loss_curve), None) if oracle is not None else None
    if curve is None or oracle is None or oracle.curve is None or not first:
        return {}
    oracles = [one for one in (oracle.curve, *oracle.earlier_curves) if one.begins == curve.begins]
    theirs = {seen.step: seen.loss for seen in oracles[0].training} if oracles else {}
    both = [(seen.step, seen.loss, theirs[seen.step]) for seen in curve.training if seen.step in theirs]
    return {step: math.inf if own is None or their is None else abs(own - their) / first for step, own, their in both}
