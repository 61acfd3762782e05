"""Extracts three consecutive steps of a trace for a picture: host calls above, device work below.

On the CPU, each thread has a row of its own for both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ladder.profile.kernel_kinds import kind_of
from ladder.profile.time_split import waiting_calls
from ladder.profile.trace import FROM_PYTHON, Kernel, Trace
from ladder.records.profile import Kind, Row, Span

STEPS = 3
NS = 1e3  # per microsecond


def excerpt(epoch: Trace, steps: int) -> tuple[list[Span], float]:
    """The bars of three steps in the middle of an epoch of `steps` steps, and their duration in us.

    They begin with the launch of the first kernel, unless that lies more than a step back: a graph is launched once for
    many steps. There are no bars if one kernel runs many steps.
    """
    kernels = epoch.by_thread()[0].kernels
    on_cpu = any(call.name == FROM_PYTHON for call in epoch.calls)
    count = min(STEPS, steps)
    first = _usual(kernels, steps, count) if on_cpu else (steps - count) // 2
    at = [round(len(kernels) / steps * step) for step in (first, first + count)]
    if len(kernels) < steps:
        return [], 0.0
    begin = kernels[at[0]].start
    end = kernels[at[1]].start if at[1] < len(kernels) else epoch.windows[0].end
    launches = {call.correlation: call.start for call in epoch.calls}
    launched = launches.get(kernels[at[0]].correlation, begin)
    if begin - launched < (end - begin) / count:
        begin = launched

    host: Row = "cpu" if on_cpu else "host"
    device: Row = "cpu" if on_cpu else "gpu"

    def span(row: Row, name: str, kind: Kind, start: int, stop: int, thread: int = 0) -> Span:
        start, stop = max(start, begin), min(stop, end)
        return Span(row, name, kind, (start - begin) / NS, (stop - start) / NS, thread if on_cpu else 0)

    waits = {id(call) for call in waiting_calls(epoch)}
    bars = [
        *(
            span(host, call.name, _call_kind(call.name, id(call) in waits), call.start, call.end, call.thread)
            for call in epoch.calls
            if call.start < end and call.end > begin and call.name != FROM_PYTHON
        ),
        *(
            span(device, kernel.name, kind_of(kernel.name), kernel.start, kernel.end, kernel.thread)
            for kernel in epoch.kernels
            if kernel.start < end and kernel.end > begin
        ),
        *(
            span(device, copy.direction, "copy", copy.start, copy.end)
            for copy in epoch.copies
            if copy.start < end and copy.end > begin
        ),
    ]
    return bars, (end - begin) / NS


def _usual(kernels: Sequence[Kernel], steps: int, count: int) -> int:
    """The first of `count` steps that last as long as most: on a CPU, other work may interrupt any of them."""
    starts = [kernels[len(kernels) * step // steps].start for step in range(steps)] if len(kernels) >= steps else []
    lasted = [after - before for before, after in zip(starts, starts[count:], strict=False)]
    if not lasted:
        return (steps - count) // 2
    usual = statistics.median(lasted)
    return min(range(len(lasted)), key=lambda step: abs(lasted[step] - usual))


def _call_kind(name: str, waits: bool) -> Kind:
    if waits:
        return "wait"
    if "Launch" in name:
        return "launch"
    return "copy" if "Memcpy" in name or "Memset" in name else "other"
