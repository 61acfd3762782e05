"""Merges the CUPTI profiles of a stage's processes into one.

The processes of a host-bound stage differ by several per cent. The profile should explain the time over all of them, so
each process is split by its own profile and the splits are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ladder.records.profile import Profile, Split
from ladder.records.run import Process


def averaged(first: Profile, processes: Sequence[Process]) -> Profile:
    """The first process's profile, with step times averaged over all profiled processes."""
    both = [(one.seen, one.split) for one in processes if one.seen is not None and one.split is not None]
    if not both:  # an older record, without splits per process
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
