"""How much of its copies to the GPU a rung hides behind kernels."""

from __future__ import annotations

from reports.facts import numbers
from reports.facts.time_breakdown import Profiled, fitted

MOSTLY_HIDDEN = 0.5  # share of the copies' time; from here on the report calls them hidden


def overlap(rung: Profiled) -> str:
    """A sentence on how much of its copies a rung hides behind kernels, and why not more.

    Empty without copies, and without overlap in a rung that is not meant to overlap.
    """
    uploads = (copy for copy in rung.profile.copies if copy.direction == "host to device" and copy.us_per_step)
    if (copied := next(uploads, None)) is None:
        return ""
    kernels_us = rung.profile.seen.kernels_us  # under the tool, as the copies
    share, parts = copied.hidden_us_per_step / copied.us_per_step, fitted(rung.profile)
    if not (share or rung.stage.hides_copies):
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
