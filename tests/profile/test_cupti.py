"""CUPTI's records as cupti-python hands them over, in both of its forms, made up; the GPU's tests have real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ladder.profile.cupti import _Reader
from ladder.profile.trace import Call, Copy, Kernel, Trace

KINDS = SimpleNamespace(MEMCPY=1, MEMSET=2, DRIVER=4, RUNTIME=5, CONCURRENT_KERNEL=10)
NAMES = {(6, 307): "cuLaunchKernelEx", (7, 31): "cudaMemcpyAsync_ptsz_v7000", (7, 9): "cudaGetDevice"}
CUPTI = SimpleNamespace(
    ActivityKind=KINDS,
    CallbackDomain=SimpleNamespace(DRIVER_API=6, RUNTIME_API=7),
    get_callback_name=lambda domain, callback: NAMES[domain, callback],
)


class KernelRecord:
    """A type of its own, as each kind of record has; all its fields are attributes."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class CallRecord(KernelRecord):
    pass


class CopyRecord(KernelRecord):
    pass


class FillRecord(KernelRecord):
    pass


class OtherRecord(KernelRecord):
    pass


def as_numpy(record: KernelRecord) -> KernelRecord:
    """The same as a NumPy record, in another order; only `kind` and `name` can be read by themselves."""
    fields = {name: value for name, value in reversed(record.__dict__.items()) if name != "name"}
    data = np.zeros(1, [(name, np.uint64) for name in fields]).view(np.recarray)
    for name, value in fields.items():
        data[name] = value
    kept = {name: value for name, value in record.__dict__.items() if name in ("kind", "name")}
    return type(record)(**kept, _data=data)


def records() -> list[KernelRecord]:
    when = {"start": 100, "end": 160, "correlation_id": 3}
    shape = dict(zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), (4, 2, 1, 32, 8, 1), strict=True))
    clusters = {"cluster_x": 2, "cluster_y": 0, "cluster_z": 0}
    memory = {"registers_per_thread": 40, "static_shared_memory": 1024, "dynamic_shared_memory": 512}
    return [
        CallRecord(kind=4, cbid=307, **when, thread_id=7),
        CallRecord(kind=5, cbid=31, **when, thread_id=7),
        CallRecord(kind=5, cbid=9, **when, thread_id=7),
        KernelRecord(kind=10, name="void gemm<4>(int)", **when, **shape, **clusters, **memory),
        CopyRecord(kind=1, copy_kind=2, bytes=16, **when),
        FillRecord(kind=2, bytes=8, **when),
        OtherRecord(kind=99),
    ]


@pytest.mark.parametrize("numpy", [False, True], ids=["by-attributes", "as-numpy"])
def test_records_become_a_trace(numpy: bool) -> None:
    reader = _Reader(CUPTI)
    found = [as_numpy(record) if numpy else record for record in records()]
    reader(found)  # nobody looks yet
    reader.trace = Trace()
    reader(found)
    assert reader.trace.calls == [Call("cuLaunchKernelEx", 100, 160, 3, 7), Call("cudaMemcpyAsync", 100, 160, 3, 7)]
    assert reader.trace.kernels == [Kernel("gemm", 100, 160, 3, 40, 1536, 8, 256, 2)]
    assert reader.trace.copies == [Copy("device to host", 100, 160, 3, 16), Copy("fill", 100, 160, 3, 8)]
    assert {type(kernel.start) for kernel in reader.trace.kernels} == {int}
