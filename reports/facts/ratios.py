"""A ratio of two stages' times, with its spread, and whether it is within the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ladder.records.statistics import GPU_SPREAD, Interval, ratio_interval
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
    low: float  # of the slowest process and the other stage's fastest one
    high: float
    is_noise: bool = field(default=False)

    @property
    def text(self) -> str:
        """The ratio with its range over processes, `2.96x (2.91-3.02)`; within noise without: `1.01x, within noise`."""
        return self.saying("")

    def saying(self, words: str) -> str:
        """The ratio in a sentence: `2.96x (2.91-3.02) the speed of its parent`.

        Two recordings drift further apart than the processes of one, so a ratio within noise shows no range.
        """
        if self.is_noise:
            return f"{numbers.ratio(self.times)}{words}, {WITHIN_NOISE}"
        return f"{numbers.ratio_spread(self.times, self.low, self.high)}{words}"

    def over(self, parent: str) -> str:
        """The speedup with the parent's name: `2.96x over naive`, or `1.03x over naive, within noise`."""
        return f"{numbers.ratio(self.times)} over {parent}{f', {WITHIN_NOISE}' * self.is_noise}"

    def as_fast_as(self, other: str, *, spread: bool = True) -> str:
        """What it says of the other stage: `2.96x as fast as naive`, or `as fast as naive within noise (1.01x)`."""
        if self.is_noise:
            return f"as fast as {other} {WITHIN_NOISE} ({numbers.ratio(self.times)})"
        return f"{self.text if spread else numbers.ratio(self.times)} as fast as {other}"


def ratio_of(base: Times, own: Times) -> Ratio:
    """The base's time as a multiple of a stage's own time."""
    (base_low, base_high), (own_low, own_high) = base.ends_us, own.ends_us
    return Ratio(base.median_us / own.median_us, base_low / own_high, base_high / own_low, within_noise(base, own))


def within_noise(base: Times, own: Times) -> bool:
    """Whether processes of one and the same stage may differ as much: the one judgement of a gain, a lead or a loss.

    True if the difference is less than `NOISE` of a step, or if the interval of the ratio holds 1.
    """
    if abs(own.median_us - base.median_us) < NOISE * max(own.median_us, base.median_us):
        return True
    if not base.values_us or not own.values_us:
        return False
    interval = interval_between(base, own)
    return interval.low <= 1 <= interval.high


def interval_between(base: Times, own: Times) -> Interval:
    """The interval of a stage's time as a multiple of the base's, by their processes."""
    return ratio_interval(base.values_us, own.values_us, spread=max(base.spread, own.spread))
