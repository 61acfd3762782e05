"""Where the time of a step goes, and which part of it a rung changed.

A profile splits a stage's step into parts and fits them to the time that each process took without the tool. The parts'
differences therefore always add up to the timed difference, which proves nothing. So the differences before fitting are
compared with the timed one as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ladder.records.limits_record import DesignFloor
from ladder.records.profile import Kind, Profile, Split
from ladder.records.run import ABLATIONS, Results, StageResult
from reports.facts import numbers
from reports.facts.baselines import host_times
from reports.facts.ratios import ratio_of
from reports.facts.run_table import table_order

PARTS: dict[str, Callable[[Split], float]] = {
    "kernels": lambda split: split.kernels_us,
    "copies": lambda split: split.copies_us,
    "between queued kernels": lambda split: split.queued_us,
    "host launching": lambda split: split.launching_us,
    "host waiting": lambda split: split.waiting_us,
}
PYTHON, BARRIERS = "Python between kernels", "waiting at barriers"
PARTS_ON_CPU: dict[str, Callable[[Split], float]] = {
    "kernels": lambda split: split.kernels_us,
    PYTHON: lambda split: split.launching_us,
    BARRIERS: lambda split: split.waiting_us,
}
OPERATIONS: dict[Kind, str] = {  # by a kernel's kind, as the profile recorded it
    "gemm": "products",
    "layer": "bias, ReLU",
    "softmax": "softmax, loss",
    "update": "update",
    "fused": "fused kernels",
    "copy": "copy kernels",
    "other": "other kernels",
}
EXPLAINED = 0.95  # share of a timed difference; a rung is named if its profiles saw less, or as much too much
ENTANGLED = 0.5  # share of the time with kernels; if they overlap by more, a kernel's own time is mostly waiting
SHOWN = 0.0005  # share of a step's work; a smaller difference has no digit in a table


@dataclass(frozen=True)
class Profiled:
    """A stage with a time and a profile."""

    stage: StageResult
    profile: Profile
    step_us: float  # timed without a tool

    @property
    def parts_us(self) -> dict[str, float]:
        """Microseconds per step of each part, fitted to the time without the tool."""
        split = fitted(self.profile)
        return {name: part(split) for name, part in (PARTS_ON_CPU if self.is_on_cpu else PARTS).items()}

    @property
    def design(self) -> DesignFloor | None:
        """The floor of its design, if that was counted."""
        return self.stage.bounds.design if self.stage.bounds else None

    @property
    def is_on_cpu(self) -> bool:
        """Whether its kernels ran on the CPU."""
        return self.stage.device == "cpu"

    @property
    def operations_us(self) -> dict[Kind, float]:
        """Microseconds per step of each kind of kernel, as seen; kernels that overlap count in full."""
        kernels = self.profile.kernels
        return {
            kind: sum(kernel.us_per_step for kernel in kernels if kernel.kind == kind)
            for kind in OPERATIONS
            if any(kernel.kind == kind for kernel in kernels)
        }

    @property
    def is_entangled(self) -> bool:
        """Whether kernels overlap so much that their own times say nothing about the step."""
        return self.profile.overlap_us > ENTANGLED * self.profile.seen.kernels_us

    @property
    def detailed_us(self) -> dict[str, float]:
        """`parts_us`, with the kernels divided among their kinds in proportion to `operations_us`.

        Entangled kernels stay one part.
        """
        operations, parts = self.operations_us, self.parts_us
        total = sum(operations.values())
        if not total or self.is_entangled:
            return parts
        kernels = parts.pop("kernels")
        return {OPERATIONS[kind]: us / total * kernels for kind, us in operations.items()} | parts

    @property
    def is_scaled_down(self) -> bool:
        """Whether the profile saw more GPU work than the step takes, so that the work was scaled down too."""
        seen = 0.0 if self.is_on_cpu else self.profile.seen.work_us  # there, all parts are scaled alike
        return seen - fitted(self.profile).work_us > SHOWN * seen


@dataclass(frozen=True)
class Change:
    """A rung minus the rung that it climbs from, in microseconds per step; negative if it became faster."""

    parent: Profiled
    rung: Profiled

    @property
    def timed_us(self) -> float:
        """The timed difference."""
        return self.rung.step_us - self.parent.step_us

    @property
    def slower_us(self) -> float:
        """The longer of the two steps."""
        return max(self.rung.step_us, self.parent.step_us)

    @property
    def parts_us(self) -> dict[str, float]:
        """The difference of each fitted part."""
        before = self.parent.parts_us
        return {name: us - before[name] for name, us in self.rung.parts_us.items()}

    @property
    def detailed_us(self) -> dict[str, float]:
        """The difference of each fitted part, with the kernels by their kind unless one side's are entangled."""
        before, after = self.parent.detailed_us, self.rung.detailed_us
        if ("kernels" in before) != ("kernels" in after):
            return self.parts_us
        names = [*OPERATIONS.values(), *PARTS, *PARTS_ON_CPU]
        return {name: after.get(name, 0) - before.get(name, 0) for name in names if name in before or name in after}

    @property
    def rest_us(self) -> float:
        """The timed difference less the parts': parts add up to a mean over processes, a time is a median of runs."""
        return self.timed_us - sum(self.parts_us.values())

    @property
    def seen_us(self) -> float:
        """The difference of the steps under the tool, before any fitting."""
        return self.rung.profile.seen.total_us - self.parent.profile.seen.total_us

    @property
    def seen_work_us(self) -> float:
        """The difference of the kernels and copies under the tool, which stretches them very little."""
        return self.rung.profile.seen.work_us - self.parent.profile.seen.work_us

    @property
    def leaves_out_host(self) -> bool:
        """Whether to compare the GPU's work, and not the whole step, with the timed difference.

        True if both rungs on a GPU have less than one launch a step. The idle time under the tool is then the tool's
        own: some milliseconds a graph, spread over its steps.
        """
        launches = [one.profile.launches_per_step for one in (self.rung, self.parent)]
        return not self.rung.is_on_cpu and max(launches) < 1

    @property
    def is_noise(self) -> bool:
        """Whether processes of one and the same stage may differ as much."""
        before, rung = (replace(host_times(side.stage), median_us=side.step_us) for side in (self.parent, self.rung))
        return ratio_of(before, rung).is_noise

    @property
    def explained(self) -> float | None:
        """The share of the timed difference that the profiles saw, 1 for all of it; None within the noise."""
        if self.is_noise:
            return None
        return (self.seen_work_us if self.leaves_out_host else self.seen_us) / self.timed_us

    @property
    def is_explained(self) -> bool | None:
        """Whether the profiles saw the timed difference to within 5%; None within the noise."""
        share = self.explained
        return None if share is None else abs(1 - share) <= 1 - EXPLAINED


def fitted(profile: Profile) -> Split:
    """The parts of a step, with the tool's own time removed; they add up to the step without the tool.

    With less than one launch a step, the host's part under the tool is the tool's own: some milliseconds a graph. Then
    the GPU's work and the gaps between queued kernels stay in proportion, and the host gets what they leave.
    """
    if profile.launches_per_step >= 1 or profile.tool == "stamps":
        return profile.split
    seen, step_us = profile.seen, profile.plain_step_us
    device_us, host_us = seen.work_us + seen.queued_us, seen.launching_us + seen.waiting_us
    on_device = min(1.0, step_us / device_us) if device_us else 1.0
    left_us = max(0.0, step_us - device_us)
    on_host = left_us / host_us if host_us else 0.0
    return Split(
        seen.kernels_us * on_device,
        seen.copies_us * on_device,
        seen.queued_us * on_device,
        seen.launching_us * on_host if host_us else left_us,
        seen.waiting_us * on_host,
    )


def profiled(stage: StageResult | None) -> Profiled | None:
    """The stage with its shown profile; None unless it passed and has one."""
    if stage is None or stage.status != "passed" or stage.timing is None:
        return None
    return Profiled(stage, stage.profile, stage.timing.step_us) if stage.profile is not None else None


def all_profiled(results: Results) -> list[Profiled]:
    """Every stage with a time and a profile, in table order."""
    return [rung for stage in table_order(results) if (rung := profiled(stage)) is not None]


def changes(results: Results) -> list[Change]:
    """The change of every profiled rung whose parent is profiled too, in ladder order."""
    by_name = {rung.stage.name: rung for rung in all_profiled(results)}
    return [Change(by_name[rung.stage.below], rung) for rung in by_name.values() if rung.stage.below in by_name]


def chain(results: Results) -> list[Change]:
    """The way up to the fastest rung: its change, its parent's, and so on, as far down as profiles reach.

    It ends at the fastest rung with a known change. An ablation is taken only if there is no other.
    """
    ways: dict[str, list[Change]] = {}
    for change in changes(results):  # a parent comes before the rungs that climb from it
        ways[change.rung.stage.name] = [*ways.get(change.parent.stage.name, []), change]

    def rank(way: list[Change]) -> tuple[bool, float]:
        last = way[-1].rung
        return last.stage.group not in ABLATIONS, -last.step_us

    return max(ways.values(), key=rank, default=[])


def verdict(results: Results) -> str:
    """How many timed differences the profiles saw, and which they missed; empty without any difference."""
    all_changes = changes(results)
    known = [(change, share) for change in all_changes if (share := change.explained) is not None]
    noise = len(all_changes) - len(known)
    sentences = []
    if noise:
        are = "is" if noise == 1 else "are"
        sentences.append(f"{noise} of {numbers.count(len(all_changes), 'difference')} {are} within the noise.")
    if known:
        missed = [f"{c.rung.stage.name} ({numbers.share(share)})" for c, share in known if not c.is_explained]
        sentences.append(
            f"Of {f'the other {len(known)}' if noise else numbers.count(len(known), 'difference')}, the profiles saw "
            f"{len(known) - len(missed)} to within {numbers.share(1 - EXPLAINED)} of the timed difference"
            f"{', but not ' + numbers.listing(missed) if missed else ''}."
        )
    return " ".join(sentences)
