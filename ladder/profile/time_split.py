"""Where the time of an epoch went, moment by moment: what the device did, and when it idled, whose fault that was.

An idle moment is blamed on the piece of work that ends it. Had the host handed that over before the device became
idle, then the device itself took so long (`queued`). Otherwise the host was late: as long as the thread that handed it
over was inside a call that waits for the device, that is `waiting`; all the rest is `launching`, the calls and
everything between them. From the last piece of work to the end of the epoch the host waits.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ladder.profile.trace import Call, Copy, Kernel, Trace, Window

Interval = tuple[int, int]
FREES = ("cudaFree", "cuMemFree")  # those that are not in the order of a stream


@dataclass
class SplitNs:
    """The parts of one epoch in ns; they add up to its window."""

    kernels: int = 0
    copies: int = 0
    queued: int = 0
    launching: int = 0
    waiting: int = 0


def split(trace: Trace, window: Window) -> SplitNs:
    """The parts of one epoch."""
    kernels, everything = union(trace.kernels, window), union([*trace.kernels, *trace.copies], window)
    parts = SplitNs(kernels=length(kernels))
    parts.copies = length(everything) - parts.kernels
    work_from: dict[int, Kernel | Copy] = {copy.start: copy for copy in trace.copies}
    work_from.update((kernel.start, kernel) for kernel in trace.kernels)
    calls = {call.correlation: call for call in trace.calls}
    waits: dict[int, list[Interval]] = {}
    for call in waiting_calls(trace):
        waits.setdefault(call.thread, []).append((call.start, call.end))
    waits = {thread: merged(intervals) for thread, intervals in waits.items()}  # one call may lie in another
    idle_from = window.start
    for begin, end in everything:
        if begin > idle_from:
            work = work_from.get(begin)  # none where it began before the epoch
            _blame(parts, (idle_from, begin), calls.get(work.correlation) if work else None, waits)
        idle_from = end
    parts.waiting += window.end - idle_from
    return parts


def waiting_calls(trace: Trace) -> list[Call]:
    """The calls in which the host waits for the device: synchronisations, copies into its own pageable memory, frees.

    A copy waits when it is over before the call that asked for it is, and a free when work that had been handed over
    before it ends while it lasts: memory is not given back while a kernel may be using it.
    """
    arrived = {copy.correlation: copy.end for copy in trace.copies if copy.direction == "device to host"}
    ends = _ends_of_work(trace)
    return [
        call
        for call in trace.calls
        if "Synchronize" in call.name
        or arrived.get(call.correlation, call.end + 1) <= call.end
        or (call.name in FREES and call.start < ends(call.start) <= call.end)
    ]


def _ends_of_work(trace: Trace) -> Callable[[int], int]:
    """When the device had done all that calls before a given time handed over."""
    handed_over = {call.correlation: call.start for call in trace.calls}
    ended: list[Kernel | Copy] = [*trace.kernels, *trace.copies]
    work = sorted((handed_over[one.correlation], one.end) for one in ended if one.correlation in handed_over)
    begins = [begin for begin, _ in work]
    latest = list(itertools.accumulate((end for _, end in work), max))

    def ends(time: int) -> int:
        before = bisect_left(begins, time)
        return latest[before - 1] if before else 0

    return ends


def union(work: Iterable[Kernel | Copy], window: Window) -> list[Interval]:
    """The moments of the window in which any of this ran."""
    return merged((max(one.start, window.start), min(one.end, window.end)) for one in work)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments in any of these intervals, as intervals in order that do not touch."""
    kept: list[Interval] = []
    for begin, end in sorted(intervals):
        if kept and begin <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(kept[-1][1], end))
        elif begin < end:
            kept.append((begin, end))
    return kept


def length(intervals: Iterable[Interval]) -> int:
    """How long they are together."""
    return sum(end - begin for begin, end in intervals)


def _blame(parts: SplitNs, idle: Interval, call: Call | None, waits: dict[int, list[Interval]]) -> None:
    """Add an idle interval to the parts, given the call that handed over the work after it."""
    begin, end = idle
    if call is not None and call.end <= begin:
        parts.queued += end - begin
        return
    threads = [call.thread] if call is not None else list(waits)
    waited = min(sum(_overlap(waits.get(thread, []), begin, end) for thread in threads), end - begin)
    parts.waiting += waited
    parts.launching += end - begin - waited


def _overlap(intervals: list[Interval], begin: int, end: int) -> int:
    """How much of begin to end lies in these intervals, which are in order and do not overlap."""
    shared = 0
    for at in range(max(0, bisect_left(intervals, (begin, begin)) - 1), len(intervals)):
        first, last = intervals[at]
        if first >= end:
            break
        shared += max(0, min(end, last) - max(begin, first))
    return shared
