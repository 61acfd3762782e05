"""Where the time of a step goes, and which part of it a rung changed.

A profile splits the step of one stage into parts, which are fitted to what each process took without the tool. So the
difference of two neighbours is the sum of the differences of their parts whatever the tool saw, and that it adds up
proves nothing. What the profiles saw before they were fitted is therefore held against the timed difference as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ladder.records.profile import Profile, Split
from ladder.records.run import Results, StageResult
from ladder.records.statistics import BOOTSTRAP_PROCESSES, ratio_interval
from reports.facts import numbers
from reports.facts.baselines import step_times_us
from reports.facts.summary import SIDES, table_order

PARTS: dict[str, Callable[[Split], float]] = {
    "kernels": lambda split: split.kernels_us,
    "copies": lambda split: split.copies_us,
    "between queued kernels": lambda split: split.queued_us,
    "host launching": lambda split: split.launching_us,
    "host waiting": lambda split: split.waiting_us,
}
NOISE = 0.02  # of the larger of two times; less is within what two recordings of one stage differ by
ENOUGH = 0.95  # of a difference; a rung of which the profiles saw less, or as much too much, is named
SHOWN = 0.0005  # of a step's work; a smaller difference has no digit in a table


@dataclass(frozen=True)
class Profiled:
    """A stage that has a time and a profile."""

    stage: StageResult
    profile: Profile
    step_us: float  # timed, without any tool

    @property
    def parts_us(self) -> dict[str, float]:
        """Where its step goes, by the profile and fitted to the time without it."""
        return {name: part(self.profile.split) for name, part in PARTS.items()}

    @property
    def is_scaled_down(self) -> bool:
        """Whether the GPU was seen to work longer than the step takes, so that its work had to be fitted, too."""
        seen, fitted = self.profile.seen.work_us, self.profile.split.work_us
        return seen - fitted > SHOWN * seen


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
    def slower_us(self) -> float:
        """The longer of the two steps."""
        return max(self.rung.step_us, self.below.step_us)

    @property
    def parts_us(self) -> dict[str, float]:
        """The difference of each part, as fitted."""
        below = self.below.parts_us
        return {name: us - below[name] for name, us in self.rung.parts_us.items()}

    @property
    def rest_us(self) -> float:
        """What the parts leave: they add up to a mean over processes, and a time is the median of all runs."""
        return self.timed_us - sum(self.parts_us.values())

    @property
    def seen_us(self) -> float:
        """The difference of the steps under the tool: nothing of it is fitted."""
        return self.rung.profile.seen.total_us - self.below.profile.seen.total_us

    @property
    def seen_work_us(self) -> float:
        """The difference of the GPU's work alone, kernels and copies, of which a tool stretches next to nothing."""
        return self.rung.profile.seen.work_us - self.below.profile.seen.work_us

    @property
    def seen_in_rounds_us(self) -> list[float]:
        """The same as `seen_us` for each round of which both processes were profiled."""
        below, rung = (
            {process.round: process.seen.total_us for process in one.stage.processes if process.seen is not None}
            for one in (self.below, self.rung)
        )
        return [rung[round_] - us for round_, us in below.items() if round_ in rung]

    @property
    def leaves_out_host(self) -> bool:
        """Whether the GPU's work is what to hold against the timed difference, and not the whole step.

        It is where the host hands over less than one launch a step in both rungs. Then what it idles under the tool is
        the tool's own: some milliseconds for every graph, spread over its steps.
        """
        return max(self.rung.profile.launches_per_step, self.below.profile.launches_per_step) < 1

    @property
    def is_noise(self) -> bool:
        """Whether the timed difference is one that processes of the same stage may have, too.

        It is where it is less than `NOISE` of a step; where the times of the processes overlap; and, of processes that
        are enough to tell, where their ratio may be 1.
        """
        if abs(self.timed_us) < NOISE * self.slower_us:
            return True
        below, rung = step_times_us(self.below.stage), step_times_us(self.rung.stage)
        if min(len(below), len(rung)) >= BOOTSTRAP_PROCESSES:
            interval = ratio_interval(below, rung)
            return interval.low <= 1 <= interval.high
        return bool(below and rung) and min(below) <= max(rung) and min(rung) <= max(below)

    @property
    def explained(self) -> float | None:
        """What the profiles saw of the timed difference, 1 being all of it; None where that is within the noise."""
        if self.is_noise:
            return None
        return (self.seen_work_us if self.leaves_out_host else self.seen_us) / self.timed_us

    @property
    def is_explained(self) -> bool | None:
        """Whether the profiles saw the difference as it was timed, to 5 %; None where that is within the noise."""
        share = self.explained
        return None if share is None else abs(1 - share) <= 1 - ENOUGH


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
    """The longest way up the ladder on which every change is known; of several that are as long, that to the fastest.

    A way to a side rung is one only where there is no other.
    """
    ways: dict[str, list[Change]] = {}
    for change in changes(results):  # the rung below comes before the rungs that climb from it
        ways[change.rung.stage.name] = [*ways.get(change.below.stage.name, []), change]

    def rank(way: list[Change]) -> tuple[bool, int, float]:
        last = way[-1].rung
        return last.stage.group not in SIDES, len(way), -last.step_us

    return max(ways.values(), key=rank, default=[])


def verdict(results: Results) -> str:
    """How many differences the profiles saw as they were timed, and which not; empty where there are none."""
    found = changes(results)
    known = [(change, share) for change in found if (share := change.explained) is not None]
    noise = len(found) - len(known)
    told = []
    if noise:
        are = "is" if noise == 1 else "are"
        told.append(f"{noise} of {numbers.count(len(found), 'difference')} {are} within the noise.")
    if known:
        missed = [f"{c.rung.stage.name} ({numbers.share(share)})" for c, share in known if not c.is_explained]
        told.append(
            f"Of {f'the other {len(known)}' if noise else numbers.count(len(known), 'difference')}, the profiles saw "
            f"{len(known) - len(missed)} to within {numbers.share(1 - ENOUGH)} of what was timed"
            f"{', but not ' + numbers.listing(missed) if missed else ''}."
        )
    return " ".join(told)
