"""What the profiles of ablations counted: allocator calls, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Collection

from ladder.records.profile import CopyUse, Profile
from ladder.records.run import Group, Results
from reports.facts import numbers
from reports.facts.time_breakdown import Profiled, all_profiled, fitted

FIGURES: dict[Group, str] = {"memory": "memory.svg", "data": "data_path.svg"}
MOSTLY_HIDDEN = 0.5  # share of the copies' time; from here on the report calls them hidden


def ablation(results: Results, group: Group) -> list[Profiled]:
    """The profiled rungs of one ablation, led by the rung that its first one climbs from; empty without profiles."""
    profiled = all_profiled(results)
    rungs = [rung for rung in profiled if rung.stage.group == group]
    return [rung for rung in profiled if rungs and rung.stage.name == rungs[0].stage.below] + rungs


def overlap(rung: Profiled) -> str:
    """A sentence on how much of its copies a rung hides behind kernels, and why not more.

    Empty without copies, and without overlap in a rung that is not meant to overlap.
    """
    copied, parts = uploads(rung.profile), fitted(rung.profile)
    kernels_us = rung.profile.seen.kernels_us  # under the tool, as the copies
    share = hidden_share(copied) if copied else None
    if copied is None or share is None or not (share or rung.stage.hides_copies):
        return ""
    exposed, idle = copied.us_per_step - copied.hidden_us_per_step, parts.launching_us + parts.waiting_us
    if share >= MOSTLY_HIDDEN:
        why = "most of that time is hidden"
    elif idle > exposed:
        why = (
            f"the GPU idles for another {_us(idle)} us until the host launches the next kernel, so there is little to "
            "hide the copies behind and little to gain"
        )
    else:
        too_short = ", too short to hide all copies" * (kernels_us < copied.us_per_step)
        why = f"kernels take {_us(kernels_us)} us{too_short}"
    took = f"{numbers.share(share)} of the {_us(copied.us_per_step)} us that the copies of a step take"
    return f"`{rung.stage.name}` runs kernels during {took}: {why}."


def _us(value: float) -> str:
    return numbers.microseconds(value)


def uploads(profile: Profile) -> CopyUse | None:
    """The copies from the host to the GPU; None without any."""
    return next((copy for copy in profile.copies if copy.direction == "host to device" and copy.per_epoch), None)


def hidden_share(copy: CopyUse) -> float | None:
    """The share of a copy's time during which a kernel ran too."""
    return copy.hidden_us_per_step / copy.us_per_step if copy.us_per_step else None


def host_us(profile: Profile, names: Collection[str]) -> float:
    """Microseconds per step that the host spends in calls to these functions."""
    return sum(call.us_per_step for call in profile.calls if call.name in names)
