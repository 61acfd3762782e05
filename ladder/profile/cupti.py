"""Recording with CUPTI, NVIDIA's profiling interface, from inside of the stage's own process.

CUPTI writes a record for every kernel and every call once it is switched on, which costs microseconds each: so it is
switched on after the timed runs, never before. cupti-python exists for CUDA 13 only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any

from ladder.profile.names import acts, call_name, short_name
from ladder.profile.trace import Call, Copy, Direction, Kernel, Trace, Window

BUFFER_BYTES = 8 << 20  # some ten thousand records; CUPTI fills a larger one with zeros for longer than an epoch takes

# CUpti_ActivityMemcpyKind; arrays are memory of the device, too.
DIRECTIONS: dict[int, Direction] = {
    1: "host to device", 3: "host to device", 2: "device to host", 4: "device to host",
    5: "device to device", 6: "device to device", 7: "device to device", 8: "device to device", 10: "device to device",
}  # fmt: skip


def available() -> bool:
    """Whether cupti-python is installed."""
    return importlib.util.find_spec("cupti") is not None


def record(epochs: Sequence[int], run_epoch: Callable[[int], None]) -> Trace:
    """Record these epochs, each of which `run_epoch` runs to its end on the device; raises whatever CUPTI raises.

    The first is run twice, since the tool, too, has to warm up; there is one at least.
    """
    with _switched_on("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "DRIVER", "RUNTIME") as (cupti, reader):
        run_epoch(epochs[0])
        cupti.activity_flush_all(1)
        trace = reader.trace = Trace()
        for epoch in epochs:
            start = cupti.get_timestamp()
            run_epoch(epoch)
            trace.windows.append(Window(epoch, start, cupti.get_timestamp()))
        cupti.activity_flush_all(1)
    for recorded in (trace.kernels, trace.copies, trace.calls):
        recorded.sort(key=attrgetter("start"))
    return trace


def record_calls(*parts: Callable[[], None]) -> list[Counter[str]]:
    """How often each function was called in each of these parts, one after the other; raises whatever CUPTI raises."""
    counted = []
    with _switched_on("DRIVER", "RUNTIME") as (cupti, reader):
        for part in parts:
            trace = reader.trace = Trace()
            part()
            cupti.activity_flush_all(1)
            counted.append(Counter(call.name for call in trace.calls))
    return counted


@contextmanager
def _switched_on(*kinds: str) -> Iterator[tuple[Any, _Reader]]:
    """CUPTI with records of these kinds, and what reads them."""
    from cupti import cupti

    reader = _Reader(cupti)
    # Read while CUPTI hands them over: afterwards the buffer is its own again.
    cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), reader)
    wanted = [getattr(cupti.ActivityKind, kind) for kind in kinds]
    for kind in wanted:
        cupti.activity_enable(kind)
    _leave_out_the_chatter(cupti)
    try:
        yield cupti, reader
    finally:
        for kind in wanted:
            cupti.activity_disable(kind)


def _leave_out_the_chatter(cupti: Any) -> None:
    """Ask CUPTI for no records of calls that do not act; those that come nevertheless are dropped on reading."""
    for switch, functions in (
        (cupti.activity_enable_driver_api, cupti.driver_api_trace_cbid),
        (cupti.activity_enable_runtime_api, cupti.runtime_api_trace_cbid),
    ):
        for function in functions:
            if function.name.startswith("cu") and not acts(function.name):
                with suppress(cupti.cuptiError):  # this driver does not know it
                    switch(function.value, 0)


class _Reader:
    """Turns CUPTI's records into a trace's, as long as there is one."""

    def __init__(self, cupti: Any) -> None:
        self.trace: Trace | None = None
        kinds, domains = cupti.ActivityKind, cupti.CallbackDomain
        self._kernel, self._copy, self._fill = kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET
        self._domains = {int(kinds.DRIVER): int(domains.DRIVER_API), int(kinds.RUNTIME): int(domains.RUNTIME_API)}
        self._name_of = cupti.get_callback_name
        self._names: dict[tuple[int, int], str] = {}

    def __call__(self, records: Iterable[Any]) -> None:
        """Take in one buffer."""
        if self.trace is None:
            return
        for one in records:
            kind = int(one.kind)
            if kind in self._domains:
                name = self._name(kind, one.cbid)
                if acts(name):
                    self.trace.calls.append(Call(name, one.start, one.end, one.correlation_id, one.thread_id))
            elif kind == self._kernel:
                self.trace.kernels.append(_kernel(one))
            elif kind == self._copy:
                direction = DIRECTIONS.get(one.copy_kind, "other")
                self.trace.copies.append(Copy(direction, one.start, one.end, one.correlation_id, one.bytes))
            elif kind == self._fill:
                self.trace.copies.append(Copy("fill", one.start, one.end, one.correlation_id, one.bytes))

    def _name(self, kind: int, callback: int) -> str:
        """Which function a call was to."""
        if (kind, callback) not in self._names:
            self._names[kind, callback] = call_name(self._name_of(self._domains[kind], callback))
        return self._names[kind, callback]


def _kernel(one: Any) -> Kernel:
    return Kernel(
        name=short_name(one.name),
        start=one.start,
        end=one.end,
        correlation=one.correlation_id,
        registers=one.registers_per_thread,
        shared_bytes=one.static_shared_memory + one.dynamic_shared_memory,
        blocks=one.grid_x * one.grid_y * one.grid_z,
        threads=one.block_x * one.block_y * one.block_z,
        cluster=max(1, one.cluster_x) * max(1, one.cluster_y) * max(1, one.cluster_z),
    )


def version() -> str:
    """The version of cupti-python."""
    return importlib.metadata.version("cupti-python")
