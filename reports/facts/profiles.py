"""A profile in words and cells: its kernels, the host's work, and whether two tools agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from ladder.records.profile import KernelUse, Profile, Tool
from ladder.records.run import StageResult
from reports.facts import numbers
from reports.facts.grouped import grouped

TOOLS: dict[Tool, str] = {"nsys": "nsys", "cupti": "CUPTI", "stamps": "time stamps"}
OVERLAP = 0.05  # share of the time in which any kernel runs; less overlap is not reported
FAR = 0.5  # share by which a tool stretches a step; beyond, the parts may be stretched unequally
BUSY_DISAGREEMENT = 0.05  # share of the longer busy time a step; tools that differ more disagree
ELLIPSIS = "…"
PICTURE = "timeline-"  # prefix of the file names of single stages' timelines


def kernel_name(name: str, limit: int = 36) -> str:
    """A name cut to the limit; the first letters of a library's long name say what it does."""
    if len(name) <= limit:
        return name
    cut = name[: limit - len(ELLIPSIS)]
    word = cut.rpartition("_")[0]
    return (word if len(word) > limit // 2 else cut) + ELLIPSIS


def kernel_names(names: Iterable[str], limit: int = 36) -> dict[str, str]:
    """Shortened names by full name; names that would read the same show the words in which they differ."""
    short = {name: kernel_name(name, limit) for name in names}
    for by_word in (True, False):
        for alike in _alike(short):
            shared = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*alike, strict=False)))
            if by_word:
                shared = alike[0].rfind("_", 0, shared) + 1
            for name in alike:
                rest = kernel_name(name[shared:].strip("_"), limit * 2 // 3)
                short[name] = name[: limit - len(rest) - len(ELLIPSIS)].rstrip("_") + ELLIPSIS + rest
    return short


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Groups of two or more names that are shortened to the same text."""
    return [names for names in grouped((text, name) for name, text in short.items()).values() if len(names) > 1]


def grid(kernel: KernelUse) -> str:
    """Blocks and the threads of each: `8 x 256`."""
    clusters = f", clusters of {kernel.cluster}" if kernel.cluster > 1 else ""
    return f"{kernel.blocks:,} x {kernel.threads:,}{clusters}"


def seen_by(profile: Profile) -> str:
    """The tool and its cost: `CUPTI in 2 processes, under which a step takes 12% longer`."""
    where = f" in {profile.processes} processes" if profile.processes > 1 else ""
    longer = f"{numbers.share(profile.slowdown)} longer" if profile.slowdown >= 0.005 else "no longer"
    return f"{TOOLS[profile.tool]}{where}, under which a step takes {longer}"


def stretched(profiles: Mapping[str, Profile]) -> str:
    """The tools of these profiles by stage, at least one, and whose step they stretched most, if that is far."""
    tools = numbers.listing(dict.fromkeys(TOOLS[profile.tool] for profile in profiles.values()))
    name, most = max(profiles.items(), key=lambda one: one[1].slowdown)
    longer = f"{numbers.rough_share(most.slowdown)} longer: take its split as a guide."
    far = f" Profiled, a step of `{name}` took {longer}" * (most.slowdown > FAR)
    return f"Shares of a step come from {tools}, scaled back.{far}"


def host_lines(profile: Profile) -> Iterator[tuple[str, str]]:
    """The host's work in an epoch, as (activity, amount)."""
    if profile.tool == "stamps":
        yield "Calls from Python", f"{numbers.per_step(profile.launches_per_step)} per step"
        yield "Kernels", f"{numbers.per_step(profile.kernels_per_step)} per step"
        yield "Barriers", _barriers(profile)
        return
    yield (
        "Launches",
        f"{numbers.per_step(profile.launches_per_step)} per step, "
        f"{numbers.microseconds(launch_us(profile))} us of host time",
    )
    if profile.graph_launches_per_epoch:
        yield "Graph launches", f"{numbers.per_step(profile.graph_launches_per_epoch)} per epoch"
    yield "Kernels", f"{numbers.per_step(profile.kernels_per_step)} per step{overlap(profile)}"
    yield "Synchronisations", _synchronisations(profile)
    for copy in profile.copies:
        what = "Fills" if copy.direction == "fill" else f"Copies, {copy.direction}"
        yield what, f"{numbers.per_step(copy.per_epoch)} per epoch, {numbers.size(copy.bytes_per_epoch)} in all"
    if (first := profile.first_calls) is not None:
        yield "Allocations while preparing", calls_in_words(first.preparing)
        yield "... in the first epoch", calls_in_words(first.first_epoch)
    calls = calls_in_words(profile.allocations_per_epoch)
    yield "Allocations", calls if calls == "none" else f"{calls} per epoch"
    yield "GPU busy", f"{numbers.share(profile.busy_share)} of the time under the tool"


def calls_in_words(calls: Mapping[str, float]) -> str:
    """Calls by name: `cudaMalloc 1,872, cudaFree 1,872`; `none`."""
    return ", ".join(f"{name} {numbers.per_step(number)}" for name, number in calls.items() if number) or "none"


def overlap(profile: Profile) -> str:
    """The end of a sentence on how much kernels overlap, so that their times exceed the step's; empty without."""
    if profile.overlap_us <= OVERLAP * profile.seen.kernels_us:
        return ""
    return (
        f", whose own times add up to {numbers.microseconds(profile.overlap_us)} us more: a kernel that starts early, "
        "perhaps steps ahead, counts as running while it waits"
    )


def launch_us(profile: Profile) -> float:
    """The host's microseconds per step in launches."""
    return sum(call.us_per_step for call in profile.calls if "Launch" in call.name)


def agree(profile: Profile, other: Profile) -> bool:
    """Whether two tools counted the same kernels and nearly the same busy time."""
    return _same(profile.kernels_per_step, other.kernels_per_step) and _busy_apart(profile, other) <= BUSY_DISAGREEMENT


def _same(share: float, other: float) -> bool:
    """Whether two means are equal up to rounding."""
    return math.isclose(share, other, rel_tol=1e-9)


def agreement(stage: StageResult) -> str:
    """One line on whether the two tools agree; empty with fewer than two."""
    if len(stage.profiles) < 2:
        return ""
    seen, other = sorted(stage.profiles, key=lambda profile: list(TOOLS).index(profile.tool))[:2]
    counts = [profile.kernels_per_step for profile in (seen, other)]
    kernels = [numbers.mean_count(count) for count in counts]
    if kernels[0] == kernels[1] and not _same(*counts):
        kernels = [f"{count:.6g}" for count in counts]
    busy = [numbers.microseconds(profile.seen.work_us) for profile in (seen, other)]
    return (
        f"{TOOLS[seen.tool]} and {TOOLS[other.tool]} {'agree' if agree(seen, other) else 'disagree'}: "
        f"kernels per step {' / '.join(kernels)}, "
        f"busy {' / '.join(busy)} us ({numbers.share(_busy_apart(seen, other))})"
    )


def _synchronisations(profile: Profile) -> str:
    if not profile.syncs_per_epoch:
        return "only the one that ends an epoch"
    syncs, host = numbers.per_step(profile.syncs_per_epoch), numbers.microseconds(profile.sync_us_per_step)
    return f"{syncs} per epoch besides the last one, {host} us of host time per step"


def _barriers(profile: Profile) -> str:
    if not profile.syncs_per_epoch:
        return "none"
    return (
        f"{numbers.per_step(profile.syncs_per_epoch)} per epoch, in which a thread spends "
        f"{numbers.microseconds(profile.sync_us_per_step)} us per step"
    )


def _busy_apart(profile: Profile, other: Profile) -> float:
    longest = max(profile.seen.work_us, other.seen.work_us)
    return abs(profile.seen.work_us - other.seen.work_us) / longest if longest else 0.0


def timeline_name(stage: StageResult) -> str:
    """The file name of one stage's timeline."""
    return f"{PICTURE}{stage.name}.svg"
