"""What a stage's training costs in energy, and how long it takes to a test accuracy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ladder.records.exactness import AS_EXACT
from ladder.records.run import Energy, Results, StageResult
from reports.facts import numbers
from reports.facts.baselines import references, rivals

IDLE_SPREAD_W = 4  # between the idle powers that the processes of one recorded study read
READING = (
    "J/epoch: what the whole GPU draws in an epoch, and the host not, by NVML's counter. After the timed runs one "
    "process trains on for at least 5 s, once; nothing verifies these epochs. ms, W: an epoch and the power of that "
    "time. Idle W: the GPU without work, but with contexts open. Above idle: J/epoch without idle power, where the two "
    f"powers differ by more than {IDLE_SPREAD_W} W, since idle ones lie nearly as far apart. x less than: J/epoch of "
    "the rung that this one climbs from, over its own."
)
TO_TARGET = (
    "To an accuracy: epochs until the judged run's own validation on the test images reaches it, times a timed epoch, "
    "and times J/epoch. Rounding alone moves it by epochs, so compare J/epoch. There every epoch includes "
    "a validation, as us/step does."
)


@dataclass(frozen=True)
class ToAccuracy:
    """The way to a test accuracy, or how long a run did not find it."""

    epochs: int
    seconds: float
    joules: float | None  # None where energy was not measured
    is_reached: bool = True

    @property
    def text(self) -> str:
        """`5 epochs, 2.8 ms, 0.9 J`, or `not in 20 epochs`."""
        if not self.is_reached:
            return f"not in {numbers.count(self.epochs, 'epoch')}"
        took = f"{numbers.count(self.epochs, 'epoch')}, {short_time(self.seconds)}"
        return took if self.joules is None else f"{took}, {joules(self.joules)}"


def to_accuracy(stage: StageResult, target: float | None) -> ToAccuracy | None:
    """How a stage gets to this share of right answers; None if its judged run did not validate."""
    timing, metrics = stage.timing, stage.metrics
    if target is None or timing is None or metrics is None or not metrics.validation:
        return None
    reached = (seen.epoch for seen in metrics.validation if seen.accuracy is not None and seen.accuracy >= target)
    epochs = next(reached, None)
    spent = epochs or timing.epochs
    drawn = None if stage.energy is None else spent * stage.energy.joules
    return ToAccuracy(spent, spent * timing.epoch_s.median, drawn, epochs is not None)


def reached_in_words(stage: StageResult, target: float | None) -> str:
    """The way to this accuracy; empty without one to reach, a dash where the judged run did not validate."""
    reached = to_accuracy(stage, target)
    return reached.text if reached else numbers.MISSING * (target is not None)


def has_energy(results: Results) -> bool:
    """Whether a stage's energy was measured."""
    return any(stage.energy is not None for stage in results.stages)


def how_to_read_energy(*runs: Results) -> str:
    """What the columns of energy and of time to an accuracy mean, as far as the runs have them."""
    has_target = any(run.settings.target_accuracy is not None for run in runs)
    return " ".join([*([READING] if any(map(has_energy, runs)) else []), *([TO_TARGET] if has_target else [])])


def less_than_parent(stage: StageResult, results: Results) -> str:
    """The parent's energy as a multiple of a stage's own: `1.37x naive`; a dash where either is unknown."""
    own, below = stage.energy, results.stage(stage.below)
    if own is None or not own.joules or below is None or below.energy is None or not below.energy.joules:
        return numbers.MISSING
    return f"{numbers.ratio(below.energy.joules / own.joules)} {stage.below}"


def above_idle(own: Energy) -> str:
    """The joules of an epoch without idle power; a dash where both powers are alike."""
    above_w = own.watts - own.idle_w
    return f"{above_w * own.joules / own.watts:.2g} J" if above_w > IDLE_SPREAD_W else numbers.MISSING


def saving(results: Results) -> str:
    """`a` takes 3 J per epoch; 119 of its 139 W flow at rest too; `b`, the most frugal reference, 2.6 times.

    Empty without either.
    """
    rung, reference = most_frugal(results)
    if rung is None or reference is None:
        return ""
    times = numbers.ratio(energy_of(reference).joules / energy_of(rung).joules).removesuffix("x")
    rival = f"`{reference.name}`, the most frugal reference {AS_EXACT}"
    return f"{taken(rung)}; {rival}, takes {times} times as much"


def energy_of(stage: StageResult) -> Energy:
    """A measured stage's energy."""
    assert stage.energy is not None
    return stage.energy


def taken(stage: StageResult) -> str:
    """A measured stage's energy, and how much of its power the GPU draws at rest too."""
    own = energy_of(stage)
    power = f"{own.idle_w:.0f} of its {own.watts:.0f} W flow at rest too"
    return f"`{stage.name}` takes {joules(own.joules)} per epoch; {power}"


def most_frugal(results: Results) -> tuple[StageResult | None, StageResult | None]:
    """The rung that takes least energy for an epoch, and the reference at least as exact that does."""
    rung = _most_frugal(stage for stage in results.stages if stage.group != "reference")
    return rung, _most_frugal(rivals(rung, references(results))) if rung else None


def _most_frugal(stages: Iterable[StageResult]) -> StageResult | None:
    """The stage that takes least energy for an epoch; None if none was measured."""
    measured = [(stage.energy.joules, stage) for stage in stages if stage.energy and stage.energy.joules]
    return min(measured, key=lambda one: one[0], default=(0.0, None))[1]


def why_none(results: Results) -> str:
    """Why a run that asked for energy has none; empty if it has some, or asked for none."""
    reasons = (process.no_energy for stage in results.stages for process in stage.processes)
    return "" if has_energy(results) else next(filter(None, reasons), "")


def joules(value: float) -> str:
    """`0.173 J`."""
    return f"{value:,.3g} J"


def short_time(seconds: float) -> str:
    """`2.81 ms`, `1.23 s`."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
