"""The clock: how one sample is taken, and how many are affordable.

One sample is a whole training run, timed on the host from fence to fence, since what the host does between launches
is half of what this ladder is about. CUDA events around the same run give the device's own time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from common.problem import Params
from common.trainer import EpochMetrics, Trainer

Fence = Callable[[], None]
Clock = Callable[[], float]


class Events(Protocol):
    """Two marks on the stage's stream, as `common.cuda.clock.EventPair` makes them."""

    def begin(self) -> None:
        """Mark the begin."""

    def end(self) -> None:
        """Mark the end."""

    def seconds(self) -> float:
        """The time between the marks, after the fence."""


class Plan(msgspec.Struct, frozen=True):
    """How many timed runs of how many epochs a process is to make, and how many warm-ups before them."""

    epochs: int
    repeats: int
    warmups: int


@dataclass(frozen=True)
class Run:
    """One whole training run: its time in seconds, and the metrics of the epochs (from 0) that computed them."""

    seconds: float
    gpu_seconds: float | None
    metrics: dict[int, EpochMetrics]


def timed_run(
    trainer: Trainer, params: Params, epochs: int, *, fence: Fence, clock: Clock, events: Events | None = None
) -> Run:
    """Train from `params` for so many epochs; the parameters stay in the trainer for whoever verifies them."""
    trainer.load_params(params)
    metrics = {}
    fence()
    begin = clock()
    if events is not None:
        events.begin()
    for epoch in range(epochs):
        trainer.run_epoch(epoch)
        seen = trainer.last_metrics()
        if seen is not None:
            metrics[epoch] = seen
    if events is not None:
        events.end()
    fence()
    seconds = clock() - begin
    return Run(seconds, events.seconds() if events is not None else None, metrics)


def plan_within(budget_s: float, epoch_s: float, wanted: Plan, metrics_every: int) -> Plan:
    """What of `wanted` fits into the budget of one process, given what an epoch takes; never less than one epoch.

    Runs are given up before epochs. Where it can, the number of epochs stays a multiple of `metrics_every`, so that
    metrics computed in every so many epochs are neither missed nor weighted twice.
    """
    if epoch_s <= 0:
        return wanted
    affordable = int(budget_s / epoch_s)
    runs = (affordable - wanted.warmups * warmup_epochs(wanted.epochs, metrics_every)) // wanted.epochs
    if runs > 0:
        return Plan(wanted.epochs, min(wanted.repeats, runs), wanted.warmups)
    # Too slow even for one run and its warm-ups: the epochs before have warmed it up, and one run must do.
    epochs = min(wanted.epochs, max(affordable, 1))
    if metrics_every < epochs < wanted.epochs:
        epochs -= epochs % metrics_every
    return Plan(epochs, 1, 0)


def warmup_epochs(epochs: int, metrics_every: int) -> int:
    """How long a warm-up is where a run has so many epochs: half of it, and where it can with an epoch of metrics."""
    return min(epochs, max(metrics_every, epochs // 2))


def measure(
    trainer: Trainer,
    params_of: Callable[[int], Params],
    plan: Plan,
    *,
    metrics_every: int,
    fence: Fence,
    clock: Clock,
    events: Events | None = None,
    after_run: Callable[[], None] = lambda: None,
) -> tuple[list[Run], list[Run]]:
    """The warm-ups and the timed runs of one process, each from parameters that the trainer has not seen before.

    `params_of` counts the runs backwards, so that the last one, which is verified, is number 0 for every stage however
    many it makes.
    """
    runs = []
    for left in reversed(range(plan.warmups + plan.repeats)):
        epochs = plan.epochs if left < plan.repeats else warmup_epochs(plan.epochs, metrics_every)
        runs.append(timed_run(trainer, params_of(left), epochs, fence=fence, clock=clock, events=events))
        after_run()
    return runs[: plan.warmups], runs[plan.warmups :]
