"""The distance of each stage's training curve from the oracle's, beside the limit that verification sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ladder.records.run import Curve, OracleRecord, Results, StageResult


@dataclass(frozen=True)
class OracleDistance:
    """A stage's largest distance from the oracle in training loss, relative to the oracle's loss in its first epoch."""

    stage: StageResult
    worst: float
    limit: float | None  # None if verification checked no loss curve

    @property
    def within(self) -> bool | None:
        """Whether the distance is within the limit; None without a limit."""
        return None if self.limit is None else self.worst <= self.limit


def oracle_distances(runs: Sequence[Results]) -> list[OracleDistance]:
    """The largest distance over these runs, for every stage with a curve in one of them, in the run's order."""
    distances: dict[str, OracleDistance] = {}
    for run in runs:
        if run.oracle is None or run.oracle.curve is None:
            continue
        for stage in run.stages:
            distance = _distance(stage.curve, run.oracle)
            if distance is not None:
                before = distances.get(stage.name)
                worst = max(distance, before.worst) if before else distance
                limits = (check.limit for check in stage.checks if check.what == "loss curve")
                distances[stage.name] = OracleDistance(stage, worst, next(limits, None))
    return list(distances.values())


def _distance(curve: Curve | None, oracle: OracleRecord) -> float | None:
    """The largest distance over all training points; None without a curve, infinite for a non-finite loss."""
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
