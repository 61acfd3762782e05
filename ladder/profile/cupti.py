"""Records kernels and calls with CUPTI, NVIDIA's profiling interface, inside the stage's process.

While CUPTI is on, every kernel and call costs some microseconds more: it is switched on only after the timed runs.
cupti-python exists for CUDA 13 only.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any

from ladder.profile.activity import Handler, Memory, buffers, fields, text
from ladder.profile.api_names import call_name, is_action, short_name
from ladder.profile.trace import Call, Copy, Direction, Kernel, ProfileError, Trace, Window

# CUpti_ActivityMemcpyKind; arrays count as device memory.
DIRECTIONS: dict[int, Direction] = {
    1: "host to device", 3: "host to device", 2: "device to host", 4: "device to host",
    5: "device to device", 6: "device to device", 7: "device to device", 8: "device to device", 10: "device to device",
}  # fmt: skip


def available() -> bool:
    """Whether cupti-python is installed."""
    return importlib.util.find_spec("cupti") is not None


def record(epochs: Sequence[int], run_epoch: Callable[[int], None], *, warm_up: bool = True) -> Trace:
    """Record at least one epoch; `run_epoch` returns when the device has finished. Raises CUPTI's exceptions.

    To warm up, the first epoch runs twice: CUPTI's own beginning would count in a short one.
    """
    with _recording("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "DRIVER", "RUNTIME") as (cupti, read):
        if warm_up:
            run_epoch(epochs[0])
        with read() as trace:
            for epoch in epochs:
                start = cupti.get_timestamp()
                run_epoch(epoch)
                trace.windows.append(Window(epoch, start, cupti.get_timestamp()))
    if not trace.calls:
        raise ProfileError("CUPTI recorded no call at all")
    trace.check("CUPTI", "another profiler or debugger (DCGM, Nsight) may hold this GPU; stop it")
    for recorded in (trace.kernels, trace.copies, trace.calls):
        recorded.sort(key=attrgetter("start"))
    return trace


@contextmanager
def _recording(*kinds: str) -> Iterator[tuple[Any, Callable[[], AbstractContextManager[Trace]]]]:
    """Switch on records of these kinds; yields CUPTI and a context manager that collects them into a trace."""
    from cupti import cupti

    cupti.get_timestamp()  # loads the library
    lent = buffers()

    @contextmanager
    def read() -> Iterator[Trace]:
        reader = _Reader(cupti)
        cupti.activity_flush_all(1)  # discards earlier records
        lent.handlers = reader.handlers
        try:
            yield reader.trace
            cupti.activity_flush_all(1)
        finally:
            lent.handlers = {}
        lent.check()

    wanted = [getattr(cupti.ActivityKind, kind) for kind in kinds]
    for kind in wanted:
        cupti.activity_enable(kind)
    _disable_query_calls(cupti)
    try:
        yield cupti, read
    finally:
        for kind in wanted:
            cupti.activity_disable(kind)


def _disable_query_calls(cupti: Any) -> None:
    """Switch off records of calls that only query; the reader drops any that still arrive."""
    for switch, functions in (
        (cupti.activity_enable_driver_api, cupti.driver_api_trace_cbid),
        (cupti.activity_enable_runtime_api, cupti.runtime_api_trace_cbid),
    ):
        for function in functions:
            if function.name.startswith("cu") and not is_action(function.name):
                with suppress(cupti.cuptiError):  # this driver does not know it
                    switch(function.value, 0)


# Offsets within CUpti_ActivityAPI, CUpti_ActivityMemcpy6, CUpti_ActivityMemset4 and CUpti_ActivityKernel10.
_CALL = fields((4, "I"), (8, "QQ"), (28, "I"), (32, "I"))  # callback; start, end; thread; correlation
_COPY = fields((4, "B"), (8, "QQQ"), (44, "I"))  # direction; bytes, start, end; correlation
_FILL = fields((8, "QQQ"), (44, "I"))  # bytes, start, end; correlation
_KERNEL = fields(
    (6, "H"),  # registers
    (16, "QQ"),  # start, end
    (52, "iiiiii"),  # grid, block
    (76, "ii"),  # shared memory, static and dynamic
    (92, "I"),  # correlation
    (104, "Q"),  # name
    (176, "III"),  # cluster
)


class _Reader:
    """Converts CUPTI's records into a trace."""

    def __init__(self, cupti: Any) -> None:
        self.trace = Trace()
        kinds, domains = cupti.ActivityKind, cupti.CallbackDomain
        self._name_of = cupti.get_callback_name
        self._names: dict[tuple[int, int], str | None] = {}
        self.handlers: dict[int, Handler] = {
            int(kinds.CONCURRENT_KERNEL): self._on_kernel,
            int(kinds.MEMCPY): self._on_copy,
            int(kinds.MEMSET): self._on_fill,
            int(kinds.DRIVER): partial(self._on_call, int(domains.DRIVER_API)),
            int(kinds.RUNTIME): partial(self._on_call, int(domains.RUNTIME_API)),
        }

    def _on_call(self, domain: int, memory: Memory, offset: int) -> None:
        callback, start, end, thread, correlation = _CALL.unpack_from(memory, offset)
        try:
            name = self._names[domain, callback]
        except KeyError:
            name = self._names[domain, callback] = self._name(domain, callback)
        if name is not None:
            self.trace.calls.append(Call(name, start, end, correlation, thread))

    def _on_copy(self, memory: Memory, offset: int) -> None:
        direction, size, start, end, correlation = _COPY.unpack_from(memory, offset)
        self.trace.copies.append(Copy(DIRECTIONS.get(direction, "other"), start, end, correlation, size))

    def _on_fill(self, memory: Memory, offset: int) -> None:
        size, start, end, correlation = _FILL.unpack_from(memory, offset)
        self.trace.copies.append(Copy("fill", start, end, correlation, size))

    def _on_kernel(self, memory: Memory, offset: int) -> None:
        registers, start, end, *grid_and_block, static, dynamic, correlation, name, cx, cy, cz = _KERNEL.unpack_from(
            memory, offset
        )
        gx, gy, gz, bx, by, bz = grid_and_block
        cluster = max(1, cx) * max(1, cy) * max(1, cz)  # the record has 0 for a kernel without clusters
        shape = registers, static + dynamic, gx * gy * gz, bx * by * bz, cluster
        self.trace.kernels.append(Kernel(short_name(text(name)), start, end, correlation, *shape))

    def _name(self, domain: int, callback: int) -> str | None:
        """The name of the called function; None if it only queries."""
        name = call_name(self._name_of(domain, callback))
        return name if is_action(name) else None
