"""A ratio of two stages' times, with its interval, and whether it is within the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ladder.records.statistics import GPU_SPREAD, ratio_interval
from reports.facts import numbers

NOISE = 0.02  # share of the larger of two times; two recordings of one stage may differ by less
WITHIN_NOISE = "within noise"


@dataclass(frozen=True)
class Times:
    """A stage's microseconds per step on one clock."""

    median_us: float
    values_us: Sequence[float]  # one per process
    runs_us: Sequence[float] = ()  # one per run, of all processes
    spread: float = GPU_SPREAD  # of recorded processes of such stages, see `reports.facts.launch_regimes`

    @property
    def ends_us(self) -> tuple[float, float]:
        """The fastest and the slowest process; of a single process its runs."""
        known = [*self.values_us, *(self.runs_us if len(self.values_us) < 2 else ()), self.median_us]
        return min(known), max(known)


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as another stage one is; below 1 it is slower."""

    times: float
    interval: tuple[float, float]  # where it may lie; processes of one and the same stage may differ as much

    @property
    def is_noise(self) -> bool:
        """Whether the interval holds 1: the one judgement of a gain, a lead or a loss."""
        return self.interval[0] <= 1 <= self.interval[1]

    @property
    def text(self) -> str:
        """The ratio with its interval, `2.96x (2.85-3.07)`; within noise without: `1.01x, within noise`."""
        if self.is_noise:
            return f"{numbers.ratio(self.times)}, {WITHIN_NOISE}"
        return numbers.ratio_spread(self.times, *self.interval)

    def over(self, parent: str) -> str:
        """The speedup with the parent's name: `2.96x as fast as naive`, or `within noise of naive`."""
        if self.is_noise:
            return f"{WITHIN_NOISE} of {parent}"
        return f"{numbers.ratio(self.times)} as fast as {parent}"

    def as_fast_as(self, other: str, *, spread: bool = True) -> str:
        """What it says of the other stage: `2.96x as fast as naive`, or `as fast as naive within noise (1.01x)`."""
        if self.is_noise:
            return f"as fast as {other} {WITHIN_NOISE} ({numbers.ratio(self.times)})"
        return f"{self.text if spread else numbers.ratio(self.times)} as fast as {other}"


def ratio_of(base: Times, own: Times) -> Ratio:
    """The base's time as a multiple of a stage's own time.

    Its interval is that of both sides' processes, and reaches at least `NOISE` to each side.
    """
    times = base.median_us / own.median_us
    low, high = times * (1 - NOISE), times / (1 - NOISE)
    if base.values_us and own.values_us:
        of_processes = ratio_interval(own.values_us, base.values_us, spread=max(base.spread, own.spread))
        low, high = min(low, of_processes.low), max(high, of_processes.high)
    return Ratio(times, (low, high))
