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


def write(path: Path, trace: Trace, stage: str, steps: int) -> None:
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
    for one in everything:
        if window.start <= one.start < end:
            yield {"ph": "X", "ts": (one.start - origin) / NS, "dur": (one.end - one.start) / NS, **_about(one)}


def _about(one: Kernel | Copy | Call | Range) -> dict[str, Any]:
    match one:
        case Kernel():
            shape = {"blocks": one.blocks, "threads": one.threads, "registers": one.registers}
            return {"pid": GPU, "tid": one.thread, "name": one.name, "cat": kind_of(one.name), "args": shape}
        case Copy():
            return {"pid": GPU, "tid": 0, "name": one.direction, "cat": "copy", "args": {"bytes": one.bytes}}
        case Call():
            return {"pid": HOST, "tid": one.thread, "name": one.name, "cat": "call"}
        case Range():
            return {"pid": HOST, "tid": 0, "name": one.name, "cat": "range"}
