"""The clock: how one sample is taken, and how many are affordable.

One sample is a whole training run, timed on the host from fence to fence, since what the host does between launches
is half of what this ladder is about. CUDA events around the same run give the device's own time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Protocol

import msgspec

from common.problem import Params
from common.trainer import EpochMetrics, Trainer

Fence = Callable[[], None]
Clock = Callable[[], float]
SCHEDULER_DELAY_S = 0.002  # for which a scheduler may let a process wait, wherever it stands
COPY_S_PER_BYTE = 2e-9  # there and back at 1 GB/s, slower than any bus: that copying is no work


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
class Validation:
    """A look at the test images within a run: how, and after which epochs, counted from 0."""

    validate: Callable[[], EpochMetrics]
    due: Callable[[int], bool]


@dataclass(frozen=True)
class Run:
    """One whole training run: its time in seconds, and what it saw, by epoch from 0, in those that computed it."""

    seconds: float
    gpu_seconds: float | None
    metrics: dict[int, EpochMetrics]
    loading_s: float  # what `load_params` took before, the device's part included
    validations: dict[int, EpochMetrics] = field(default_factory=dict)  # on the test images, after these epochs


def timed_run(
    trainer: Trainer,
    params: Params,
    epochs: int,
    *,
    fence: Fence,
    clock: Clock,
    events: Events | None = None,
    validation: Validation | None = None,
) -> Run:
    """Train from `params` for so many epochs; the parameters stay in the trainer for whoever verifies them."""
    loading = clock()
    trainer.load_params(params)
    metrics, validations = {}, {}
    fence()
    begin = clock()
    if events is not None:
        events.begin()
    for epoch in range(epochs):
        trainer.run_epoch(epoch)
        seen = trainer.last_metrics()
        if seen is not None:
            metrics[epoch] = seen
        if validation is not None and validation.due(epoch):
            validations[epoch] = validation.validate()
    if events is not None:
        events.end()
    fence()
    seconds = clock() - begin
    return Run(seconds, events.seconds() if events is not None else None, metrics, begin - loading, validations)


def read_late(trainer: Trainer, clock: Clock) -> tuple[Params, float]:
    """The parameters after a run, and what reading them takes longer than doing so again: work that was left for it."""
    begin = clock()
    params = trainer.read_params()
    between = clock()
    trainer.read_params()
    return params, max(0.0, (between - begin) - (clock() - between))


def share_outside(runs: Sequence[Run], late_s: Sequence[float], parameter_bytes: int) -> float:
    """What loading and late reading take, by what the run between them takes; of the run where that is least.

    What copying takes is not counted, and a run is counted as `SCHEDULER_DELAY_S` longer, which is nothing to one
    worth measuring.
    """
    copying = parameter_bytes * COPY_S_PER_BYTE
    return min(
        max(0.0, run.loading_s + late - copying) / (run.seconds + SCHEDULER_DELAY_S)
        for run, late in zip(runs, late_s, strict=True)
    )


def run_numbers(plan: Plan) -> list[int]:
    """A number for each run, warm-ups first: the timed ones count from 0, in an order that nobody knows beforehand.

    Number 0 is judged. It is there for every stage, however many runs it makes, and no stage can tell it from the rest.
    """
    return [
        *range(plan.repeats, plan.repeats + plan.warmups),
        *SystemRandom().sample(range(plan.repeats), plan.repeats),
    ]


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
    numbers: Sequence[int],
    after_run: Callable[[int], None] = lambda number: None,  # noqa: ARG005
    validation: Validation | None = None,
) -> tuple[list[Run], list[Run]]:
    """The warm-ups and the timed runs of one process, each from the parameters of its number, new to the trainer."""
    runs = []
    for number in numbers:
        epochs = plan.epochs if number < plan.repeats else warmup_epochs(plan.epochs, metrics_every)
        runs.append(
            timed_run(
                trainer, params_of(number), epochs, fence=fence, clock=clock, events=events, validation=validation
            )
        )
        after_run(number)
    return runs[: plan.warmups], runs[plan.warmups :]
