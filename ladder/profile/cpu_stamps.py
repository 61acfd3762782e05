"""Records the kernels of a rung on the CPU by time stamps, inside the stage's process, after the timed runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

from ladder.profile.trace import BARRIER, FROM_PYTHON, Call, Kernel, Trace, Window

if TYPE_CHECKING:
    from common.cpu.stamps import Calls


def record(epochs: Sequence[int], run_epoch: Callable[[int], None], *, warm_up: bool) -> Trace:
    """Record at least one epoch; to warm up, the first one runs twice."""
    from common.cpu.stamps import stamping  # late: it compiles

    trace, ids = Trace(), count()
    with stamping() as stamps:
        if warm_up:
            run_epoch(epochs[0])
            stamps.take()
        for epoch in epochs:
            start = time.perf_counter_ns()
            run_epoch(epoch)
            trace.windows.append(Window(epoch, start, time.perf_counter_ns()))
            for calls in stamps.take():
                _add(trace, calls, ids)
    return trace


def _add(trace: Trace, made: Calls, ids: Iterator[int]) -> None:
    """Add the calls of one thread: kernels, barriers, and the calls from Python that made them."""
    epoch = next(ids)
    for call, (start, end) in zip(made.calls, made.times.tolist(), strict=True):
        parent = next(ids) if made.from_python else epoch
        if made.from_python:
            trace.calls.append(Call(FROM_PYTHON, start, end, parent, made.thread))
        if call.name == BARRIER:
            trace.calls.append(Call(BARRIER, start, end, parent, made.thread))
        else:
            trace.kernels.append(Kernel(call.name, start, end, parent, thread=made.thread))
    if not made.from_python and len(made.times):
        begin, end = int(made.times[0, 0]), int(made.times[-1, 1])
        trace.calls.append(Call(FROM_PYTHON, begin, end, epoch, made.thread))
