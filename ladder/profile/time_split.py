"""Divides the time of an epoch into the device's work and its idle time, and the idle time by its cause.

The cause of an idle interval is found from the work that ends it. If the host had submitted that work before the device
became idle, the delay is the device's own (`queued`). Otherwise the host was late: the time that the submitting thread
spent in calls that wait for the device is `waiting`, and the rest is `launching`, in calls and between them. The time
from the last work to the end of the epoch is `waiting`, but on the CPU `launching`: it is Python's. There a thread that
ends before the others waits for them first.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ladder.profile.trace import BARRIER, FROM_PYTHON, Call, Copy, Kernel, Trace, Window

Interval = tuple[int, int]
FREES = ("cudaFree", "cuMemFree")  # not stream-ordered: these may wait for the device


@dataclass
class SplitNs:
    """The parts of one epoch in ns; they add up to its window."""

    kernels: int = 0
    copies: int = 0
    queued: int = 0
    launching: int = 0
    waiting: int = 0


def split(trace: Trace, window: Window, others_end: int = 0) -> SplitNs:
    """The parts of one epoch. On the CPU the trace is of one thread; `others_end` is when all are done."""
    kernels, everything = union(trace.kernels, window), union([*trace.kernels, *trace.copies], window)
    parts = SplitNs(kernels=length(kernels))
    parts.copies = length(everything) - parts.kernels
    work_from: dict[int, Kernel | Copy] = {copy.start: copy for copy in trace.copies}
    work_from.update((kernel.start, kernel) for kernel in trace.kernels)
    calls = {call.correlation: call for call in trace.calls}
    waits: dict[int, list[Interval]] = {}
    for call in waiting_calls(trace):
        waits.setdefault(call.thread, []).append((call.start, call.end))
    waits = {thread: merged(intervals) for thread, intervals in waits.items()}  # calls may be nested
    idle_from = window.start
    for begin, end in everything:
        if begin > idle_from:
            work = work_from.get(begin)  # None if it began before the epoch
            _attribute_idle(parts, (idle_from, begin), calls.get(work.correlation) if work else None, waits)
        idle_from = end
    if any(call.name == FROM_PYTHON for call in trace.calls):  # on the CPU, Python reads the metrics
        waited = max(0, min(others_end, window.end) - idle_from)
        parts.waiting += waited
        parts.launching += window.end - idle_from - waited
    else:
        parts.waiting += window.end - idle_from
    return parts


def waiting_calls(trace: Trace) -> list[Call]:
    """The calls in which the host waits: synchronisations, copies into pageable memory, frees, barriers of threads.

    A copy call waits if the copy ends before the call does. A free waits if earlier work ends during the call, since
    memory is not released while a kernel may use it.
    """
    arrived = {copy.correlation: copy.end for copy in trace.copies if copy.direction == "device to host"}
    ends = _ends_of_work(trace) if any(call.name in FREES for call in trace.calls) else int
    return [
        call
        for call in trace.calls
        if "Synchronize" in call.name
        or call.name == BARRIER
        or arrived.get(call.correlation, call.end + 1) <= call.end
        or (call.name in FREES and call.start < ends(call.start) <= call.end)
    ]


def _ends_of_work(trace: Trace) -> Callable[[int], int]:
    """A function of a time: when the device finished all work submitted before it."""
    submitted = {call.correlation: call.start for call in trace.calls}
    ended: list[Kernel | Copy] = [*trace.kernels, *trace.copies]
    work = sorted((submitted[item.correlation], item.end) for item in ended if item.correlation in submitted)
    begins = [begin for begin, _ in work]
    latest = list(itertools.accumulate((end for _, end in work), max))

    def ends(time: int) -> int:
        before = bisect_left(begins, time)
        return latest[before - 1] if before else 0

    return ends


def union(work: Iterable[Kernel | Copy], window: Window) -> list[Interval]:
    """The intervals of the window in which any of this work ran."""
    return merged((max(work_item.start, window.start), min(work_item.end, window.end)) for work_item in work)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of these intervals, as sorted intervals that do not touch."""
    kept: list[Interval] = []
    for begin, end in sorted(intervals):
        if kept and begin <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(kept[-1][1], end))
        elif begin < end:
            kept.append((begin, end))
    return kept


def length(intervals: Iterable[Interval]) -> int:
    """The total length of disjoint intervals."""
    return sum(end - begin for begin, end in intervals)


def _attribute_idle(parts: SplitNs, idle: Interval, call: Call | None, waits: dict[int, list[Interval]]) -> None:
    """Add an idle interval to its part, given the call that submitted the work after it."""
    begin, end = idle
    if call is not None and call.end <= begin:
        parts.queued += end - begin
        return
    threads = [call.thread] if call is not None else list(waits)
    waited = min(sum(_overlap(waits.get(thread, []), begin, end) for thread in threads), end - begin)
    parts.waiting += waited
    parts.launching += end - begin - waited


def _overlap(intervals: list[Interval], begin: int, end: int) -> int:
    """The length of [begin, end] that lies in these sorted, disjoint intervals."""
    shared = 0
    for at in range(max(0, bisect_left(intervals, (begin, begin)) - 1), len(intervals)):
        first, last = intervals[at]
        if first >= end:
            break
        shared += max(0, min(end, last) - max(begin, first))
    return shared
