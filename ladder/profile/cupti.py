"""Counting kernels and API calls with CUPTI, NVIDIA's profiling interface, in the stage's own process.

CUPTI writes a record for every kernel and every call once it is switched on, which costs microseconds each: so it is
switched on after the timed runs, never before. cupti-python exists for CUDA 13 only.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BUFFER_BYTES = 8 << 20


@dataclass
class Trace:
    """How often each kernel ran on the device, and each function of the CUDA runtime or driver was called."""

    kernels: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    @property
    def launches(self) -> int:
        """Calls that hand kernels to the device, one by one or as a whole graph; fills and copies are not counted."""
        return sum(count for name, count in self.calls.items() if "Launch" in name)

    @property
    def graph_launches(self) -> int:
        """Calls that replay a graph."""
        return sum(count for name, count in self.calls.items() if "GraphLaunch" in name)


def available() -> bool:
    """Whether cupti-python is installed."""
    return importlib.util.find_spec("cupti") is not None


def trace(work: Callable[[], None], fence: Callable[[], None]) -> Trace:
    """Run `work` to its end on the device and count what it did; raises whatever CUPTI raises."""
    from cupti import cupti

    seen = Trace()
    names: dict[tuple[int, int], str] = {}
    domains = {
        int(cupti.ActivityKind.DRIVER): int(cupti.CallbackDomain.DRIVER_API),
        int(cupti.ActivityKind.RUNTIME): int(cupti.CallbackDomain.RUNTIME_API),
    }

    def completed(records: list[Any]) -> None:
        for record in records:
            kind = int(record.kind)
            if kind == cupti.ActivityKind.CONCURRENT_KERNEL:
                seen.kernels[record.name] += 1
            elif kind in domains:
                call = (kind, record.cbid)
                if call not in names:
                    names[call] = _plain(cupti.get_callback_name(domains[kind], record.cbid))
                seen.calls[names[call]] += 1

    kinds = (cupti.ActivityKind.CONCURRENT_KERNEL, cupti.ActivityKind.DRIVER, cupti.ActivityKind.RUNTIME)
    cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), completed)
    fence()
    for kind in kinds:
        cupti.activity_enable(kind)
    work()
    fence()
    cupti.activity_flush_all(1)
    for kind in kinds:
        cupti.activity_disable(kind)
    return seen


def _plain(name: str) -> str:
    """`cuLaunchKernelEx` from whatever form CUPTI gives it in, such as `cudaLaunchKernel_v7000`."""
    return name.partition("_v")[0]
