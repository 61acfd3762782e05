"""A stage's time: the only functions that make microseconds per step of what a run recorded."""

from __future__ import annotations

import math
import statistics

from ladder.records.run import Spread, StageResult


def step_us(stage: StageResult | None) -> Spread | None:
    """Microseconds per step over all runs; None unless the stage passed with a positive, finite time."""
    if stage is None or stage.status != "passed" or stage.timing is None:
        return None
    steps, epoch = stage.timing.steps_per_epoch, stage.timing.epoch_s
    if not 0 < epoch.median < math.inf:
        return None
    return Spread(*(seconds / steps * 1e6 for seconds in (epoch.median, epoch.min, epoch.max)))  # as `Timing.of` does


def median_us(stage: StageResult | None) -> float | None:
    """The median of `step_us`."""
    spread = step_us(stage)
    return spread.median if spread is not None else None


def step_times_us(stage: StageResult | None) -> list[float]:
    """Microseconds per step in each of a stage's processes, the median of its runs; empty unless the stage passed."""
    if stage is None or stage.status != "passed" or stage.timing is None:
        return []
    steps = stage.timing.epochs * stage.timing.steps_per_epoch
    times = [statistics.median(process.runs_s) / steps * 1e6 for process in stage.processes if process.runs_s]
    return times if all(0 < time < math.inf for time in times) else []


def disagreement(stage: StageResult) -> float:
    """By which share a run of a stage's slowest process takes longer than one of its fastest process."""
    medians = [statistics.median(process.runs_s) for process in stage.processes if process.runs_s]
    return max(medians) / min(medians) - 1 if medians and min(medians) > 0 else 0.0
