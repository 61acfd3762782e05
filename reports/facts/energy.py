"""What a stage's training costs in energy, and how long it takes to a test accuracy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ladder.records.run import Energy, Results, StageResult
from reports.facts import numbers

READING = (
    "J/epoch: what the whole GPU draws, and the host not, by NVML's counter over at least 5 s of epochs after the "
    "timed runs, once, in one process. These are not verified; ms: each of them. Idle W: the GPU without work, but "
    "with contexts open. Above idle: J/epoch without that, where the watts differ by more than idle ones do. Saves: "
    "how many times as much the rung in brackets takes, which this one climbs from."
)
IDLE_SPREAD_W = 4.0  # between the idle powers that the processes of one recorded study read
TO_TARGET = (
    "To an accuracy: epochs until the judged run's own validation on the test images reaches it, as many timed epochs, "
    "and as many times J/epoch. Rounding alone moves it by epochs, so compare J/epoch. Every epoch includes a "
    "validation, as us/step does."
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


def has_energy(results: Results) -> bool:
    """Whether a stage's energy was measured."""
    return any(stage.energy is not None for stage in results.stages)


def how_to_read_energy(*runs: Results) -> str:
    """What the columns of energy and of time to an accuracy mean, as far as the runs have them."""
    has_target = any(run.settings.target_accuracy is not None for run in runs)
    return " ".join([*([READING] if any(map(has_energy, runs)) else []), *([TO_TARGET] if has_target else [])])


def energy_cells(stage: StageResult, results: Results) -> list[str]:
    """Under J/epoch, Saves, Above idle, ms, W and Idle W; dashes where energy was not measured."""
    own = stage.energy
    if own is None or not own.watts:
        return [numbers.MISSING] * 6
    below = next((one for one in results.stages if one.name == stage.below), None)
    more = below.energy.joules / own.joules if below and below.energy and own.joules else None
    saves = f"{numbers.ratio(more)} ({stage.below})" if more else numbers.MISSING
    above_w, epoch_ms = own.watts - own.idle_w, own.joules / own.watts * 1e3
    above = f"{above_w * epoch_ms / 1e3:.2g} J" if above_w > IDLE_SPREAD_W else "within noise"
    return [joules(own.joules), saves, above, numbers.microseconds(epoch_ms), f"{own.watts:.0f}", f"{own.idle_w:.0f}"]


def saving(results: Results) -> str:
    """`a` takes 3 J an epoch, 71% of it idle power; `b`, the most frugal reference, takes 2.6 times as much.

    Empty without either.
    """
    rung, reference = (
        _most_frugal(stage for stage in results.stages if (stage.group == "reference") == is_reference)
        for is_reference in (False, True)
    )
    if rung is None or reference is None:
        return ""
    (name, drawn), (other, more) = rung, reference
    idle, times = numbers.share(drawn.idle_w / drawn.watts), numbers.ratio(more.joules / drawn.joules).removesuffix("x")
    own = f"`{name}` takes {joules(drawn.joules)} an epoch, {idle} of it idle power"
    return f"{own}; `{other}`, the most frugal reference, takes {times} times as much"


def _most_frugal(stages: Iterable[StageResult]) -> tuple[str, Energy] | None:
    """The stage that takes least energy for an epoch; None if none was measured."""
    measured = [(stage.name, stage.energy) for stage in stages if stage.energy is not None]
    spent = [(name, own) for name, own in measured if own.joules and own.watts]
    return min(spent, key=lambda one: one[1].joules, default=None)


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
