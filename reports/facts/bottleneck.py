"""The part of a stage's step that takes longest, its likely cause, and one thing to try; chosen by rules.

Advice must be possible for the stage's design: one launch for many steps needs no graph, and a step that waits for
the host's copies is not captured before its data lie on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable

from ladder.records.profile import Profile
from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.kernel_bottleneck import Case, kernels_advice
from reports.facts.profiles import launch_us
from reports.facts.time_breakdown import Profiled, fitted

WHOLE = 0.995  # share that is told as the whole step
ONCE_A_STEP = 0.5  # times a step; a rarer call does not belong to every step


def next_step(run: Results, one: Profiled) -> str:
    """The largest part of a step, its likely cause, and one thing to try."""
    name, us = max(one.parts_us.items(), key=lambda part: part[1])
    total = sum(one.parts_us.values())
    whole = f"the whole step, {numbers.microseconds(total)} us"
    part = f"{numbers.aligned(us, total)} of {numbers.microseconds(total)} us ({numbers.share(us / total)})"
    return ADVICE[name](Case(run, one), whole if us > WHOLE * total else part)


def _copies(case: Case, share: str) -> str:
    if not case.profile.copies:
        return f"Copies take {share}. The profile does not name them."
    longest = max(case.profile.copies, key=lambda copy: copy.us_per_step)
    name = "fills" if longest.direction == "fill" else f"copies, {longest.direction}"
    advice = {
        "host to device": "Keep the data on the GPU, or copy the next batch beside the kernels from pinned memory.",
        "device to host": "Read results less often.",
        "fill": "Let a kernel that runs anyway write these values.",
    }
    try_next = advice.get(longest.direction, "Let kernels read the data in place.")
    return (
        f"Copies take {share}, most of it {name}: {numbers.per_step(longest.per_epoch)} an epoch with "
        f"{numbers.size(longest.bytes_per_epoch)}. {try_next}"
    )


def _queued(case: Case, share: str) -> str:
    kernels = case.profile.kernels_per_step
    each = fitted(case.profile).queued_us / kernels if kernels else None
    return (
        f"The GPU idles {share} between kernels that are already queued: {_a_step(kernels, 'kernel')}, "
        f"with {numbers.microseconds(each)} us before each. Fuse kernels to have fewer gaps."
    )


def _launching(case: Case, share: str) -> str:
    """The advice for a GPU that waits for its host; a graph is advised only where a step can be captured."""
    profile = case.profile
    launches, submitting = profile.launches_per_step, launch_us(profile)
    allocating = _call_us(profile, *(name for name, number in profile.allocations_per_epoch.items() if number >= 1))
    copying = _call_us(profile, "Memcpy")
    told = f"The GPU idles {share} because the host has not launched the next kernel yet"
    if allocating > copying and _is_in_steps(case, sum(profile.allocations_per_epoch.values())):
        return (
            f"{told}: allocating and freeing memory takes the host {numbers.microseconds(allocating)} us a step "
            "under the profiler. Allocate once, before the first step."
        )
    takes = "takes" if numbers.per_step(launches) == "1" else "take"
    told = f"{told}: {_a_step(launches, 'launch')} {takes} it {numbers.microseconds(submitting)} us under the profiler"
    if submitting < fitted(profile).launching_us / 2:
        told += ", and its other code takes more"
    if _is_in_steps(case, sum(copy.per_epoch for copy in profile.copies if copy.direction == "host to device")):
        return (
            f"{told}. Copying each batch takes it {numbers.microseconds(copying)} us. Keep the data on the GPU: a CUDA "
            "graph can then launch whole epochs."
        )
    if profile.graph_launches_per_epoch:
        return f"{told}. Put more steps into one graph."
    if profile.kernels_per_step < 1:
        return f"{told}. Run more steps in one launch."
    return f"{told}. Capture the steps in a CUDA graph: one launch then queues many kernels."


def _is_in_steps(case: Case, per_epoch: float) -> bool:
    """Whether something happens about once a step, or more often."""
    timing = case.one.stage.timing
    return timing is not None and per_epoch >= ONCE_A_STEP * timing.steps_per_epoch


def _call_us(profile: Profile, *parts: str) -> float:
    """The host's microseconds a step in calls whose names hold one of these parts."""
    return sum(call.us_per_step for call in profile.calls if any(part in call.name for part in parts))


def _a_step(number: float, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{numbers.per_step(number)} {noun if numbers.per_step(number) == '1' else plural} a step"


def _waiting(case: Case, share: str) -> str:
    if case.profile.syncs_per_epoch < 1:
        return (
            f"The GPU idles {share} because the host waits at the end of each epoch. Launch the next epoch before the "
            "last one ends."
        )
    return (
        f"The GPU idles {share} because the host waits for its results: "
        f"{numbers.per_step(case.profile.syncs_per_epoch)} synchronisations an epoch. Read results less often."
    )


ADVICE: dict[str, Callable[[Case, str], str]] = {
    "kernels": kernels_advice,
    "copies": _copies,
    "between queued kernels": _queued,
    "host launching": _launching,
    "host waiting": _waiting,
}
