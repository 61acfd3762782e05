"""The next thing to try on a stage, by rule: the largest part of its step chooses the advice."""

from __future__ import annotations

from collections.abc import Callable

from ladder.records.profile import KernelUse, Profile
from reports.facts import numbers
from reports.facts.profiles import kernel_name, launch_us, overlap
from reports.facts.time_breakdown import Profiled, fitted

IDLE_BELOW_BLOCKS = 64  # a block runs on one multiprocessor; a V100 has 80, an A100 108 and an H100 132
LOW_OCCUPANCY = 0.25  # share of a multiprocessor's warps; with fewer, none may be ready while others wait for memory


def next_step(one: Profiled) -> str:
    """The largest part of a step, its likely cause, and what to try."""
    parts = one.parts_us
    name, us = max(parts.items(), key=lambda part: part[1])
    total = sum(parts.values())
    share = f"{numbers.aligned(us, total)} of {numbers.microseconds(total)} us ({numbers.share(us / total)})"
    return ADVICE[name](one.profile, share)


def _kernels(profile: Profile, share: str) -> str:
    if not profile.kernels:
        return f"Kernels take {share}. The profile does not name them."
    slowest = max(profile.kernels, key=lambda kernel: kernel.us_per_step)
    return (
        f"Kernels take {share}. The slowest is {kernel_name(slowest.name)} with "
        f"{numbers.microseconds(slowest.us_per_step)} us a step{_of_several(profile)}: {_why_slow(slowest)}"
    )


def _of_several(profile: Profile) -> str:
    return " (kernels overlap here, so it may only wait for another one)" if overlap(profile) else ""


def _why_slow(kernel: KernelUse) -> str:
    if kernel.blocks < IDLE_BELOW_BLOCKS:
        return (
            f"its {numbers.count(kernel.blocks, 'block')} keep at most "
            f"{numbers.count(kernel.blocks, 'multiprocessor')} busy. Split its work over more blocks."
        )
    if kernel.occupancy is not None and kernel.occupancy < LOW_OCCUPANCY:
        return (
            f"{kernel.registers} registers a thread and {numbers.size(kernel.shared_bytes)} of shared memory a block "
            f"leave room for {numbers.share(kernel.occupancy)} of a multiprocessor's warps. Use fewer registers or "
            "less shared memory."
        )
    if kernel.bytes is not None:
        return (
            f"it has enough blocks and warps, and moves {numbers.size(kernel.bytes)} at "
            f"{numbers.bandwidth(kernel.bytes, kernel.us_each)}. Near the memory's own rate, fuse it with a neighbour "
            "to move less; far below it, change its arithmetic or its access pattern."
        )
    return "it has enough blocks and warps. Try another algorithm, or fuse it with a neighbour."


def _copies(profile: Profile, share: str) -> str:
    if not profile.copies:
        return f"Copies take {share}. The profile does not name them."
    longest = max(profile.copies, key=lambda copy: copy.us_per_step)
    what = "fills" if longest.direction == "fill" else f"copies, {longest.direction}"
    return (
        f"Copies take {share}, most of it {what}: {numbers.per_step(longest.per_epoch)} an epoch with "
        f"{numbers.size(longest.bytes_per_epoch)}. Keep the data where it is used."
    )


def _queued(profile: Profile, share: str) -> str:
    kernels = profile.kernels_per_step
    each = fitted(profile).queued_us / kernels if kernels else None
    return (
        f"The GPU idles {share} between kernels that are already queued: {numbers.per_step(kernels)} kernels a step, "
        f"with {numbers.microseconds(each)} us before each. Fuse kernels to have fewer gaps."
    )


def _launching(profile: Profile, share: str) -> str:
    launches = profile.launches_per_step
    each = f", {numbers.microseconds(launch_us(profile) / launches)} us of host time each" if launches else ""
    advice = (
        "Put more steps into one graph."
        if profile.graph_launches_per_epoch
        else "Capture the steps in a CUDA graph: one launch then queues many kernels."
    )
    return (
        f"The GPU idles {share} because the host has not launched the next kernel yet: "
        f"{numbers.per_step(launches)} launches a step{each}. {advice}"
    )


def _waiting(profile: Profile, share: str) -> str:
    if profile.syncs_per_epoch < 1:
        return (
            f"The GPU idles {share} because the host waits at the end of each epoch. Launch the next epoch before the "
            "last one ends."
        )
    return (
        f"The GPU idles {share} because the host waits for its results: {numbers.per_step(profile.syncs_per_epoch)} "
        "synchronisations an epoch. Read results less often."
    )


ADVICE: dict[str, Callable[[Profile, str], str]] = {
    "kernels": _kernels,
    "copies": _copies,
    "between queued kernels": _queued,
    "host launching": _launching,
    "host waiting": _waiting,
}
