"""Recording with CUPTI, NVIDIA's profiling interface, from inside of the stage's own process.

CUPTI writes a record for every kernel and every call once it is switched on, which costs microseconds each: so it is
switched on after the timed runs, never before. cupti-python exists for CUDA 13 only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter, itemgetter
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


class _Fields:
    """Reads these fields of a kind of record."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._one_by_one = attrgetter(*names)
        self._all_at_once: Callable[[Any], tuple[Any, ...]] | None = None

    def __call__(self, record: Any) -> tuple[Any, ...]:
        """Their values, in order."""
        # In cupti-python 13.0 a record is one of NumPy's, of which a single field takes as long to read as all of them.
        data = getattr(record, "_data", None)
        if data is None:
            values: tuple[Any, ...] = self._one_by_one(record)
            return values
        if self._all_at_once is None:
            self._all_at_once = itemgetter(*(data.dtype.names.index(name) for name in self._names))
        return self._all_at_once(data.item())


class _Reader:
    """Turns CUPTI's records into a trace's, as long as there is one."""

    def __init__(self, cupti: Any) -> None:
        self.trace: Trace | None = None
        kinds, domains = cupti.ActivityKind, cupti.CallbackDomain
        self._domains = {int(kinds.DRIVER): int(domains.DRIVER_API), int(kinds.RUNTIME): int(domains.RUNTIME_API)}
        self._name_of = cupti.get_callback_name
        self._names: dict[tuple[int, int], str] = {}
        self._call = _Fields("kind", "cbid", "start", "end", "correlation_id", "thread_id")
        self._copy = _Fields("copy_kind", "start", "end", "correlation_id", "bytes")
        self._fill = _Fields("start", "end", "correlation_id", "bytes")
        self._kernel = _Fields(
            *("start", "end", "correlation_id", "registers_per_thread", "static_shared_memory"),
            *("dynamic_shared_memory", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
            *("cluster_x", "cluster_y", "cluster_z"),
        )
        self._takers: dict[int, Callable[[Trace, Any], None]] = {
            int(kinds.CONCURRENT_KERNEL): self._take_kernel,
            int(kinds.MEMCPY): self._take_copy,
            int(kinds.MEMSET): self._take_fill,
            **dict.fromkeys(self._domains, self._take_call),
        }
        self._by_type: dict[type, Callable[[Trace, Any], None]] = {}

    def __call__(self, records: Iterable[Any]) -> None:
        """Take in one buffer."""
        if self.trace is None:
            return
        for one in records:
            take = self._by_type.get(type(one))
            if take is None:
                take = self._by_type[type(one)] = self._takers.get(int(one.kind), _leave)
            take(self.trace, one)

    def _take_call(self, trace: Trace, one: Any) -> None:
        kind, callback, start, end, correlation, thread = self._call(one)
        name = self._name(kind, callback)
        if acts(name):
            trace.calls.append(Call(name, start, end, correlation, thread))

    def _take_copy(self, trace: Trace, one: Any) -> None:
        kind, start, end, correlation, size = self._copy(one)
        trace.copies.append(Copy(DIRECTIONS.get(kind, "other"), start, end, correlation, size))

    def _take_fill(self, trace: Trace, one: Any) -> None:
        trace.copies.append(Copy("fill", *self._fill(one)))

    def _take_kernel(self, trace: Trace, one: Any) -> None:
        start, end, correlation, registers, static, dynamic, *shape = self._kernel(one)
        blocks, threads, cluster = (math.prod(max(1, size) for size in shape[at : at + 3]) for at in (0, 3, 6))
        name = short_name(one.name)
        trace.kernels.append(
            Kernel(name, start, end, correlation, registers, static + dynamic, blocks, threads, cluster)
        )

    def _name(self, kind: int, callback: int) -> str:
        """Which function a call was to."""
        if (kind, callback) not in self._names:
            self._names[kind, callback] = call_name(self._name_of(self._domains[kind], callback))
        return self._names[kind, callback]


def _leave(trace: Trace, one: Any) -> None:
    """A record of a kind that nobody asked for."""


def version() -> str:
    """The version of cupti-python."""
    return importlib.metadata.version("cupti-python")
