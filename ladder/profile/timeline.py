"""Extracts three consecutive steps of a trace for a picture: host calls above, device work below."""

from __future__ import annotations

from typing import Literal

from ladder.profile.kernel_kinds import kind_of
from ladder.profile.time_split import waiting_calls
from ladder.profile.trace import Trace
from ladder.records.profile import Kind, Span

STEPS = 3
NS = 1e3  # per microsecond


def excerpt(epoch: Trace, steps: int) -> tuple[list[Span], float]:
    """The bars of three steps in the middle of an epoch of `steps` steps, and their duration in us.

    They begin with the launch of the first kernel, unless that lies more than a step back: a graph is launched once for
    many steps. There are no bars if one kernel runs many steps.
    """
    kernels = epoch.kernels
    count = min(STEPS, steps)
    first = (steps - count) // 2
    at = [round(len(kernels) / steps * step) for step in (first, first + count)]
    if len(kernels) < steps:
        return [], 0.0
    begin = kernels[at[0]].start
    end = kernels[at[1]].start if at[1] < len(kernels) else epoch.windows[0].end
    launches = {call.correlation: call.start for call in epoch.calls}
    launched = launches.get(kernels[at[0]].correlation, begin)
    if begin - launched < (end - begin) / count:
        begin = launched

    def span(row: Literal["host", "gpu"], name: str, kind: Kind, start: int, stop: int) -> Span:
        start, stop = max(start, begin), min(stop, end)
        return Span(row, name, kind, (start - begin) / NS, (stop - start) / NS)

    waits = {id(call) for call in waiting_calls(epoch)}
    bars = [
        *(
            span("host", call.name, _call_kind(call.name, id(call) in waits), call.start, call.end)
            for call in epoch.calls
            if call.start < end and call.end > begin
        ),
        *(
            span("gpu", kernel.name, kind_of(kernel.name), kernel.start, kernel.end)
            for kernel in kernels
            if kernel.start < end and kernel.end > begin
        ),
        *(
            span("gpu", copy.direction, "copy", copy.start, copy.end)
            for copy in epoch.copies
            if copy.start < end and copy.end > begin
        ),
    ]
    return bars, (end - begin) / NS


def _call_kind(name: str, waits: bool) -> Kind:
    if waits:
        return "wait"
    if "Launch" in name:
        return "launch"
    return "copy" if "Memcpy" in name or "Memset" in name else "other"
