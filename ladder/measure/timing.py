"""Times training runs, and plans how many of them fit into a budget.

A sample is a whole training run, timed on the host from fence to fence: the host's work between launches is half of
this ladder's subject. CUDA events around the same run give the device's own time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Protocol

import msgspec

from common.problem import Params
from common.trainer import EpochMetrics, Trainer, wait_of

Fence = Callable[[], None]
Clock = Callable[[], float]
SCHEDULER_DELAY_S = 0.002  # by which the operating system may delay a process at any point
COPY_S_PER_BYTE = 2e-9  # to the device and back at 1 GB/s, slower than any bus; not counted as untimed work


class Events(Protocol):
    """Two events on the stage's stream, such as `common.cuda.clock.EventPair`."""

    def begin(self) -> None:
        """Mark the start."""

    def end(self) -> None:
        """Mark the end."""

    def seconds(self) -> float:
        """The time between the marks, after the fence."""


class Plan(msgspec.Struct, frozen=True):
    """The runs of one process."""

    epochs: int  # per timed run
    repeats: int  # timed runs
    warmups: int  # runs before them


@dataclass(frozen=True)
class Validation:
    """Validation on the test images within a run."""

    validate: Callable[[], EpochMetrics]
    due: Callable[[int], bool]  # after this epoch, counted from 0?


@dataclass(frozen=True)
class Run:
    """One whole training run: its times, and its metrics by epoch from 0."""

    seconds: float
    gpu_seconds: float | None
    metrics: dict[int, EpochMetrics]  # of the epochs that computed them
    loading_s: float  # time of `load_params` before the run, the device's part included
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
    """Train from `params` for `epochs` epochs; the trained parameters stay in the trainer."""
    loading = clock()
    trainer.load_params(params)
    metrics, validations = {}, {}
    wait = wait_of(trainer)
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
    wait()
    if events is not None:
        events.end()
    fence()
    seconds = clock() - begin
    return Run(seconds, events.seconds() if events is not None else None, metrics, begin - loading, validations)


def read_late(trainer: Trainer, clock: Clock) -> tuple[Params, float]:
    """The parameters after a run, and the seconds by which reading them first takes longer than again.

    A trainer that defers work until its parameters are read spends that time outside of the timer.
    """
    begin = clock()
    params = trainer.read_params()
    between = clock()
    trainer.read_params()
    return params, max(0.0, (between - begin) - (clock() - between))


def share_outside(runs: Sequence[Run], late_s: Sequence[float], parameter_bytes: int) -> float:
    """The time for loading parameters and for deferred work (`late_s`), relative to the run between; the least share.

    The time of copying is subtracted. `SCHEDULER_DELAY_S` is added to each run, which matters only to very short ones.
    """
    copying = parameter_bytes * COPY_S_PER_BYTE
    return min(
        max(0.0, run.loading_s + late - copying) / (run.seconds + SCHEDULER_DELAY_S)
        for run, late in zip(runs, late_s, strict=True)
    )


def run_numbers(plan: Plan) -> list[int]:
    """A number for each run, warm-ups first; the timed runs count from 0, in random order.

    The gates verify number 0, which every stage has, however many runs it makes. No stage can tell which run it is.
    """
    return [
        *range(plan.repeats, plan.repeats + plan.warmups),
        *SystemRandom().sample(range(plan.repeats), plan.repeats),
    ]


def plan_within(budget_s: float, epoch_s: float, wanted: Plan, metrics_every: int) -> Plan:
    """The part of `wanted` that fits into one process's budget, given the time of an epoch; at least one epoch.

    Runs are dropped before epochs. If possible, the number of epochs stays a multiple of `metrics_every`, so that
    sparse metrics keep their share of the time.
    """
    if epoch_s <= 0:
        return wanted
    affordable = int(budget_s / epoch_s)
    runs = (affordable - wanted.warmups * warmup_epochs(wanted.epochs, metrics_every)) // wanted.epochs
    if runs > 0:
        return Plan(wanted.epochs, min(wanted.repeats, runs), wanted.warmups)
    # Too slow for even one run with warm-ups: one shorter run, which earlier epochs have warmed up.
    epochs = min(wanted.epochs, max(affordable, 1))
    if metrics_every < epochs < wanted.epochs:
        epochs -= epochs % metrics_every
    return Plan(epochs, 1, 0)


def warmup_epochs(epochs: int, metrics_every: int) -> int:
    """The epochs of a warm-up: half of a run's, but enough to include an epoch with metrics if the run has one."""
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
    """Run the warm-ups and the timed runs of one process; each starts from the parameters of its own number."""
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
