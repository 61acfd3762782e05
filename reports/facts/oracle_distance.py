"""How near the curves of a run's stages come to the oracle's, beside the limit that verification holds them to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ladder.records.run import Curve, OracleRecord, Results, StageResult


@dataclass(frozen=True)
class OracleDistance:
    """A stage's largest distance to the oracle in training loss, by the oracle's loss in its first epoch."""

    stage: StageResult
    worst: float
    limit: float | None  # None where verification judged no loss

    @property
    def within(self) -> bool | None:
        """Whether it keeps to the limit."""
        return None if self.limit is None else self.worst <= self.limit


def oracle_distances(runs: Sequence[Results]) -> list[OracleDistance]:
    """The worst over these runs, for every stage that has a curve in one of them, in the order of the table."""
    found: dict[str, OracleDistance] = {}
    for run in runs:
        if run.oracle is None or run.oracle.curve is None:
            continue
        for stage in run.stages:
            distance = _distance(stage.curve, run.oracle)
            if distance is not None:
                before = found.get(stage.name)
                worst = max(distance, before.worst) if before else distance
                found[stage.name] = OracleDistance(stage, worst, _limit(stage))
    return list(found.values())


def _distance(curve: Curve | None, oracle: OracleRecord) -> float | None:
    """The largest over all points of training; None without a curve, infinite for a loss that is no number."""
    first = next((seen.loss for seen in oracle.loss_curve), None)
    if curve is None or oracle.curve is None or not first:
        return None
    own = {seen.step: seen.loss for seen in curve.training}
    apart = [
        float("inf") if (loss := own[seen.step]) is None or seen.loss is None else abs(loss - seen.loss) / first
        for seen in oracle.curve.training
        if seen.step in own
    ]
    return max(apart, default=None)


def _limit(stage: StageResult) -> float | None:
    """What verification allows the mean losses of epochs, for this stage's precision and kind of network."""
    return next((check.limit for check in stage.checks if check.what == "loss curve"), None)
