"""Times training runs, and plans how many of them fit into a budget.

A sample is a whole training run, timed on the host from fence to fence: the host's work between launches is half of
this ladder's subject. CUDA events around the same run give the device's own time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import msgspec

from common.problem import Params
from common.trainer import EpochMetrics, Trainer, wait_of
from ladder.measure.fetched import fetched_metrics, fetched_params

Fence = Callable[[], None]
Clock = Callable[[], float]
Stamp = Callable[[Literal["begin", "end"]], None]
SCHEDULER_DELAY_S = 0.002  # by which the operating system may delay a process at any point
COPY_S_PER_BYTE = 2e-9  # to the device and back at 1 GB/s, slower than any bus; not counted as untimed work
UNTIMED = -1  # the number of a run among the timed ones of which no time counts
READING_SHARE = 0.1  # of a run, which reading its parameters may take beside copying and a delay


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
class TimedRun:
    """One whole training run: its times, and its metrics by epoch from 0."""

    seconds: float
    gpu_seconds: float | None
    metrics: dict[int, EpochMetrics]  # of the epochs that computed them
    loading_s: float  # time of `load_params` before the run, the device's part included
    validations: dict[int, EpochMetrics] = field(default_factory=dict)  # on the test images, after these epochs
    ended: float = 0.0  # by the clock


class UntimedRun(NamedTuple):
    """A run among the timed ones of which no time counts."""

    before: int  # the timed run of this number
    epochs: int
    validation: Validation
    after_run: Callable[[int, TimedRun], None]


class LateRead(NamedTuple):
    """The parameters after a run, and the seconds of reading them."""

    params: Params
    first_s: float  # from the run's end until they were there
    again_s: float  # a second time, when no work can be left


def no_mark(mark: Literal["begin", "end"]) -> None:
    """No second clock."""


def timed_run(
    trainer: Trainer,
    params: Params,
    epochs: int,
    *,
    fence: Fence,
    clock: Clock,
    events: Events | None = None,
    validation: Validation | None = None,
    first_epoch: int = 0,
    stamp: Stamp = no_mark,
) -> TimedRun:
    """Train from `params` for `epochs` epochs; the trained parameters stay in the trainer.

    `stamp` is called just before the time begins and just after it ends, for a second clock.
    """
    loading = clock()
    trainer.load_params(params)
    metrics, validations = {}, {}
    wait = wait_of(trainer)
    fence()
    stamp("begin")
    begin = clock()
    if events is not None:
        events.begin()
    for epoch in range(first_epoch, first_epoch + epochs):
        trainer.run_epoch(epoch)
        seen = trainer.last_metrics()
        if seen is not None:
            metrics[epoch] = seen
        if validation is not None and validation.due(epoch):
            validations[epoch] = fetched_metrics(validation.validate())
    wait()
    if events is not None:
        events.end()
    # Now, as a library's number may be computed only when it is asked for; a GPU still works meanwhile.
    metrics = {epoch: fetched_metrics(seen) for epoch, seen in metrics.items()}
    fence()
    ended = clock()
    stamp("end")
    on_gpu_s = events.seconds() if events is not None else None
    return TimedRun(ended - begin, on_gpu_s, metrics, begin - loading, validations, ended)


def train_on(
    trainer: Trainer, epochs: Iterable[int], fence: Fence, validation: Validation | None = None
) -> EpochMetrics | None:
    """Train for epochs of these numbers from the parameters that the trainer has; returns the last one's metrics."""
    seen = None
    for epoch in epochs:
        trainer.run_epoch(epoch)
        seen = trainer.last_metrics()
        if validation is not None and validation.due(epoch):
            fetched_metrics(validation.validate())
    wait_of(trainer)()
    seen = None if seen is None else fetched_metrics(seen)
    fence()
    return seen


def read_late(trainer: Trainer, clock: Clock, ended: float) -> LateRead:
    """Fetch the parameters after a run that `ended` just now, and once more.

    A trainer that defers work until its parameters are read, or works on after the run, spends that time outside of the
    timer.
    """
    params = fetched_params(trainer)
    between = clock()
    fetched_params(trainer)
    return LateRead(params, between - ended, clock() - between)


def share_outside(runs: Sequence[TimedRun], reads: Sequence[LateRead], *, has_ranks: bool = False) -> float:
    """The time for loading parameters and for work left when they were first read, relative to the run between.

    The median over the runs. The time of copying is subtracted, and the second reading from the first; of that only as
    much as reading may take, since a stage can also wait there. `SCHEDULER_DELAY_S` matters only to very short runs.
    """
    shares = []
    for run, read in zip(runs, reads, strict=True):
        copying = read.params.nbytes * COPY_S_PER_BYTE
        reading = min(read.again_s, copying + SCHEDULER_DELAY_S + READING_SHARE * run.seconds)
        sharing = copying / 2 if has_ranks else 0.0  # into the memory from which all ranks load at once
        outside = run.loading_s + read.first_s - reading - copying - sharing
        shares.append(max(0.0, outside) / (run.seconds + SCHEDULER_DELAY_S))
    return statistics.median(shares)


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
    after_run: Callable[[int, TimedRun], None] = lambda number, run: None,  # noqa: ARG005
    validation: Validation | None = None,
    stamp: Stamp = no_mark,
    untimed: UntimedRun | None = None,
) -> tuple[list[TimedRun], list[TimedRun]]:
    """Run the warm-ups and the timed runs of one process, numbered from 0; each starts from parameters of its own.

    An `untimed` run stands before the timed one of its number, or after the last, and is called by the same lines.
    """
    runs, numbers = [], list(range(plan.warmups + plan.repeats))
    if untimed is not None:
        numbers.insert(plan.warmups + untimed.before, UNTIMED)
    for number in numbers:
        epochs = plan.epochs if number >= plan.warmups else warmup_epochs(plan.epochs, metrics_every)
        validates, stamps, after = validation, stamp, after_run
        if number == UNTIMED and untimed is not None:
            epochs, validates, stamps, after = untimed.epochs, untimed.validation, no_mark, untimed.after_run
        params = params_of(number)
        run = timed_run(
            trainer, params, epochs, fence=fence, clock=clock, events=events, validation=validates, stamp=stamps
        )
        after(number, run)
        runs += [run] if number != UNTIMED else []
    return runs[: plan.warmups], runs[plan.warmups :]
