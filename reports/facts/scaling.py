"""What more GPUs buy: a stage that divides each batch among several, against the stages on one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ladder.records.run import StageResult
from ladder.records.study import Point
from reports.facts.baselines import fastest, rivals
from reports.facts.study_points import StudyResults
from reports.facts.times import median_us


@dataclass(frozen=True)
class Scaling:
    """A stage of several GPUs at a point of a study; times in us/step, None where nothing was measured."""

    point: Point
    stage: StageResult
    us: float
    gpus: int
    base_us: float | None  # of the rung on one GPU that it climbs from
    share_us: float | None  # the same for the images that one of its GPUs has
    best: StageResult  # the fastest on one GPU that is at least as exact
    best_us: float

    @property
    def strong(self) -> float | None:
        """The share of its GPUs that is a gain where the batch stays."""
        return None if self.base_us is None else self.base_us / self.us / self.gpus

    @property
    def weak(self) -> float | None:
        """The same where each GPU's share of the batch stays."""
        return None if self.share_us is None else self.share_us / self.us


def scalings(results: StudyResults) -> Iterator[Scaling]:
    """Every timed stage of several GPUs, at every point where some stage on one GPU has a time."""
    for point in results.measured:
        run = results.runs[point.name]
        gpus, alone = run.problem.gpus, [stage for stage in run.stages if not stage.takes_gpus]
        share = {**point.values, "batch_size": run.problem.batch_size / gpus}
        of_share = next((point for point in results.measured if point.values == share), None)
        below = {stage.name: stage.below for stage in run.stages}
        for stage in run.stages:
            us, best = median_us(stage), fastest(rivals(stage, alone))
            if not stage.takes_gpus or us is None or best is None:
                continue
            base, best_us = stage.name, median_us(best)
            assert best_us is not None
            while base in below and base not in {stage.name for stage in alone}:
                base = below[base] or ""
            base_us = median_us(results.at(point, base))
            share_us = median_us(results.at(of_share, base)) if of_share else None
            yield Scaling(point, stage, us, gpus, base_us, share_us, best, best_us)
