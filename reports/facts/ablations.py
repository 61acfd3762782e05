"""What the profiles of ablations counted: calls to allocators, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ladder.records.profile import CopyUse, Profile
from ladder.records.run import Group, Results
from reports.facts import numbers
from reports.facts.time_breakdown import Profiled, all_profiled

FIGURES: dict[Group, str] = {"memory": "memory.svg", "data": "data_path.svg"}
MOST = 0.5  # of the time of copies: more than that hides them


def side(results: Results, group: Group) -> list[Profiled]:
    """The profiled rungs of a side group, after the rung that the first climbs from; none where there are none."""
    profiled = all_profiled(results)
    rungs = [one for one in profiled if one.stage.group == group]
    return [one for one in profiled if rungs and one.stage.name == rungs[0].stage.below] + rungs


def overlap(one: Profiled) -> str:
    """A sentence on how much of its copies a rung hides, and why not more; empty where they take turns with kernels."""
    copied, parts = uploads(one.profile), one.profile.split
    share = hidden_share(copied) if copied else None
    if copied is None or not share:
        return ""
    bare, idle = copied.us_per_step - copied.hidden_us_per_step, parts.launching_us + parts.waiting_us
    if share >= MOST:
        why = "they are hidden"
    elif idle > bare:
        why = (
            f"the GPU idles for {_us(idle)} us more, until the host has launched the next kernel, so that there is "
            "little to hide behind, and little to be won by it"
        )
    else:
        why = f"kernels take {_us(parts.kernels_us)} us, too short to hide them all"
    took = f"{numbers.share(share)} of the {_us(copied.us_per_step)} us that the copies of a step take"
    return f"{one.stage.name} copies beside kernels for {took}: {why}."


def _us(value: float) -> str:
    return numbers.microseconds(value)


def uploads(profile: Profile) -> CopyUse | None:
    """The copies from the host to the GPU; None where there are none."""
    return next((copy for copy in profile.copies if copy.direction == "host to device" and copy.per_epoch), None)


def hidden_share(copy: CopyUse) -> float | None:
    """The share of a copy's time in which a kernel ran as well."""
    return copy.hidden_us_per_step / copy.us_per_step if copy.us_per_step else None


def calls_in_words(calls: Mapping[str, float]) -> str:
    """Calls by name: `cudaMalloc 1,872, cudaFree 1,872`; `none`."""
    return ", ".join(f"{name} {numbers.per_step(number)}" for name, number in calls.items() if number) or "none"


def host_us(profile: Profile, names: Collection[str]) -> float:
    """The host's time a step in calls to these functions."""
    return sum(call.us_per_step for call in profile.calls if call.name in names)
