"""Where the time of a step goes, and which part of it a rung changed.

A profile splits the step of one stage into parts that add up. The difference of two neighbours is then the sum of the
differences of their parts, plus what is not explained: the parts add up to the mean of what each process took, and the
time of a stage is the median of all its runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ladder.profile_data import Profile, Split
from ladder.results import Results, StageResult
from reports import format
from reports.summary import SIDES, table_order

PARTS: dict[str, Callable[[Split], float]] = {
    "kernels": lambda split: split.kernels_us,
    "copies": lambda split: split.copies_us,
    "between queued kernels": lambda split: split.queued_us,
    "host launching": lambda split: split.launching_us,
    "host waiting": lambda split: split.waiting_us,
}
NOISE = 0.02  # of the larger of two times; less is within what two recordings of one stage differ by
ENOUGH = 0.95  # of a difference; a rung of which less is explained is named


@dataclass(frozen=True)
class Profiled:
    """A stage that has a time and a profile."""

    stage: StageResult
    profile: Profile
    step_us: float  # timed, without any tool

    @property
    def parts_us(self) -> dict[str, float]:
        """Where its step goes, by the profile."""
        return {name: part(self.profile.split) for name, part in PARTS.items()}


@dataclass(frozen=True)
class Change:
    """What a rung changed in us a step; below zero it became faster."""

    below: Profiled
    rung: Profiled

    @property
    def timed_us(self) -> float:
        """The difference that was measured."""
        return self.rung.step_us - self.below.step_us

    @property
    def parts_us(self) -> dict[str, float]:
        """The difference of each part."""
        below = self.below.parts_us
        return {name: us - below[name] for name, us in self.rung.parts_us.items()}

    @property
    def unexplained_us(self) -> float:
        """What the parts leave of the difference."""
        return self.timed_us - sum(self.parts_us.values())

    @property
    def explained(self) -> float | None:
        """The share that the parts explain, 0 to 1; None where the difference itself is within the noise."""
        if abs(self.timed_us) < NOISE * max(self.rung.step_us, self.below.step_us):
            return None
        return max(0.0, 1 - abs(self.unexplained_us) / abs(self.timed_us))


def profiled(stage: StageResult | None) -> Profiled | None:
    """The stage with the profile that is shown of it; None unless it passed and has one."""
    if stage is None or stage.status != "passed" or stage.timing is None:
        return None
    return Profiled(stage, stage.profile, stage.timing.step_us) if stage.profile is not None else None


def all_profiled(results: Results) -> list[Profiled]:
    """Every stage that has a time and a profile, in the order of the table."""
    return [found for stage in table_order(results) if (found := profiled(stage)) is not None]


def changes(results: Results) -> list[Change]:
    """Every rung that has a profile beside the rung below it, if that has one too; from the lowest up."""
    found = {one.stage.name: one for one in all_profiled(results)}
    return [Change(found[one.stage.below], one) for one in found.values() if one.stage.below in found]


def chain(results: Results) -> list[Change]:
    """The longest way up the ladder on which every change is known; the first of several that are as long.

    A way to a side rung is one only where there is no other.
    """
    ways: dict[str, list[Change]] = {}
    for change in changes(results):  # the rung below comes before the rungs that climb from it
        ways[change.rung.stage.name] = [*ways.get(change.below.stage.name, []), change]
    return max(ways.values(), key=lambda way: (way[-1].rung.stage.group not in SIDES, len(way)), default=[])


def doubts(results: Results) -> list[str]:
    """A sentence for each rung whose difference the parts do not explain well enough."""
    told = []
    for change in changes(results):
        share = change.explained
        if share is not None and share < ENOUGH:
            beside = max(change.rung.step_us, change.below.step_us)
            direction = "faster" if change.timed_us < 0 else "slower"
            told.append(
                f"{change.rung.stage.name} is {format.aligned(abs(change.timed_us), beside)} us/step {direction} than "
                f"{change.below.stage.name}; the parts explain {format.share(share)} of that, "
                f"and {format.change(change.unexplained_us, beside)} us are not explained."
            )
    return told
