"""One profile of a stage out of what CUPTI saw in each of its processes.

Processes of a stage that waits for its host differ by several per cent. What is to be explained is the time over all of
them, so each is split by its own profile, and the splits are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ladder.records.profile import Profile, Split
from ladder.records.run import Process


def averaged(first: Profile, processes: Sequence[Process]) -> Profile:
    """The first process's profile, with the means over all processes that were profiled for the times of a step."""
    both = [(one.seen, one.split) for one in processes if one.seen is not None and one.split is not None]
    if not both:  # recorded before processes kept theirs
        return first
    seen, split = Split.mean([seen for seen, _ in both]), Split.mean([split for _, split in both])
    return msgspec.structs.replace(
        first,
        plain_step_us=split.total_us,
        step_us=seen.total_us,
        seen=seen,
        split=split,
        processes=len(both),
    )
