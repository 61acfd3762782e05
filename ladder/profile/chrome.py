"""Writes a trace as a file for chrome://tracing, Perfetto and Speedscope.

The format is the "Trace Event Format" of the Chromium project: complete events, times in us.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ladder.profile.kernel_kinds import kind_of
from ladder.profile.trace import FROM_PYTHON, Call, Copy, Kernel, Range, Trace, Window

STEPS_SHOWN = 50  # per epoch, at most: a readable picture, and a file of some ten kilobytes
GPU, HOST = 1, 2  # ids of the two processes that viewers show
NS = 1e3  # per microsecond


def write_trace(path: Path, trace: Trace, stage: str, steps: int) -> None:
    """Write the first steps of every epoch to a `.json.gz` file; an epoch has `steps` steps."""
    events = [*_names(stage, trace), *(event for window in trace.windows for event in _epoch(trace, window, steps))]
    with gzip.open(path, "wb") as file:
        file.write(msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns"}))


def _names(stage: str, trace: Trace) -> Iterator[dict[str, Any]]:
    on_cpu = any(call.name == FROM_PYTHON for call in trace.calls)
    for process, name in ((GPU, "kernels" if on_cpu else "GPU"), (HOST, "calls" if on_cpu else "host")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"{stage}: {name}"}}


def _epoch(trace: Trace, window: Window, steps: int) -> Iterator[dict[str, Any]]:
    kernels = [kernel for kernel in trace.kernels if window.start <= kernel.start < window.end]
    shown = round(len(kernels) / steps * min(steps, STEPS_SHOWN))
    end = kernels[shown].start if shown < len(kernels) else window.end
    origin = trace.windows[0].start
    everything: list[Kernel | Copy | Call | Range] = [*trace.ranges, *kernels, *trace.copies, *trace.calls]
    for event in everything:
        if window.start <= event.start < end:
            yield {"ph": "X", "ts": (event.start - origin) / NS, "dur": (event.end - event.start) / NS, **_about(event)}


def _about(event: Kernel | Copy | Call | Range) -> dict[str, Any]:
    match event:
        case Kernel():
            shape = {"blocks": event.blocks, "threads": event.threads, "registers": event.registers}
            return {"pid": GPU, "tid": event.thread, "name": event.name, "cat": kind_of(event.name), "args": shape}
        case Copy():
            return {"pid": GPU, "tid": 0, "name": event.direction, "cat": "copy", "args": {"bytes": event.bytes}}
        case Call():
            return {"pid": HOST, "tid": event.thread, "name": event.name, "cat": "call"}
        case Range():
            return {"pid": HOST, "tid": 0, "name": event.name, "cat": "range"}
