"""Reading CUPTI's buffers, with records made after `cupti_activity.h`; the GPU tests read real ones."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, sizeof
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from ladder.profile import cupti as cupti_tool
from ladder.profile.activity import Buffers
from ladder.profile.cupti import record
from ladder.profile.trace import Call, Copy, Kernel, ProfileError

NAMES = {(6, 307): "cuLaunchKernelEx", (7, 31): "cudaMemcpyAsync_ptsz_v7000", (7, 9): "cudaGetDevice"}
NAME = ctypes.create_string_buffer(b"void gemm<4>(int)")


class Kind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    OTHER = 99


def layout(text: str, **types: Any) -> list[tuple[str, Any]]:
    """The fields of a structure from lines of `type: name name ...`."""
    known = {"i32": c_int32, "u32": c_uint32, "u64": c_uint64, "u8": c_uint8, "u16": c_uint16, "i64": c_int64}
    lines = (line.split(":") for line in text.strip().splitlines())
    return [(name, known[kind.strip()]) for kind, names in lines for name in names.split()]


class Api(ctypes.Structure):
    _fields_ = layout("""
        i32: kind
        u32: cbid
        u64: start end
        u32: process_id thread_id correlation_id return_value
    """)


class Memcpy6(ctypes.Structure):
    _fields_ = layout("""
        i32: kind
        u8: copy_kind src_kind dst_kind flags
        u64: bytes start end
        u32: device_id context_id stream_id correlation_id runtime_correlation_id pad
        u64: reserved graph_node_id
        u32: graph_id channel_id channel_type pad2
        u64: copy_count
    """)


class Memset4(ctypes.Structure):
    _fields_ = layout("""
        i32: kind
        u32: value
        u64: bytes start end
        u32: device_id context_id stream_id correlation_id
        u16: flags memory_kind
        u32: pad
        u64: reserved graph_node_id
        u32: graph_id channel_id channel_type pad2
    """)


class Kernel10(ctypes.Structure):
    _fields_ = layout("""
        i32: kind
        u8: cache_config shared_memory_config
        u16: registers
        i32: cache_requested cache_executed
        u64: start end completed
        u32: device_id context_id stream_id
        i32: grid_x grid_y grid_z block_x block_y block_z static_shared_memory dynamic_shared_memory
        u32: local_memory_per_thread local_memory_total correlation_id
        i64: grid_id
        u64: name reserved queued submitted
        u8: launch_type is_carveout_requested carveout padding
        u32: shared_memory_executed
        u64: graph_node_id
        i32: shmem_limit_config
        u32: graph_id
        u64: access_policy_window
        u32: channel_id channel_type cluster_x cluster_y cluster_z cluster_policy
        u64: local_memory_total_v2
        u32: max_potential_cluster_size max_active_clusters
        u64: is_device_launched
    """)


class Other(ctypes.Structure):
    _fields_ = layout("i32: kind pad")


TYPES = {Kind.MEMCPY: Memcpy6, Kind.MEMSET: Memset4, Kind.CONCURRENT_KERNEL: Kernel10, Kind.OTHER: Other}


class Library:
    """The part of libcupti that handles buffers: fills one with records, completes it, and iterates over it."""

    def __init__(self) -> None:
        self.error = 0  # returned at the end of the iteration, if set
        self.walked = 0
        self.cuptiActivityGetNextRecord = self._Next(self)
        self.at: list[int] = []  # addresses of the buffers

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:  # noqa: N802
        self._requested, self._completed = requested, completed
        return 0

    class _Next:
        def __init__(self, library: Library) -> None:
            self._library = library

        def __call__(self, buffer: int, valid: int, found: Any) -> int:
            self._library.walked += 1
            last = found._obj.value
            kind = c_int.from_address(last).value if last else 0
            found._obj.value = last + sizeof(TYPES.get(Kind(kind), Api)) if last else buffer
            return 0 if found._obj.value < buffer + valid else self._library.error or 12

    def hand_over(self, *records: ctypes.Structure) -> None:
        """Fill a buffer."""
        buffer, size, most = c_void_p(), c_size_t(), c_size_t(1)
        self._requested(byref(buffer), byref(size), byref(most))
        raw = b"".join(map(bytes, records))
        assert buffer.value is not None
        assert buffer.value % 8 == most.value == 0
        assert size.value >= len(raw)
        ctypes.memmove(buffer, raw, len(raw))
        self._completed(None, 0, buffer, size, len(raw))
        self.at.append(buffer.value)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """A fake of the library that cupti-python loads; it delivers buffers only on request."""
    made = Library()
    lent = Buffers(made)
    monkeypatch.setattr(cupti_tool, "buffers", lambda: lent)
    clock = iter(range(1000))
    made_up = SimpleNamespace(
        ActivityKind=Kind,
        CallbackDomain=SimpleNamespace(DRIVER_API=6, RUNTIME_API=7),
        get_callback_name=lambda domain, callback: NAMES[domain, callback],
        get_timestamp=lambda: next(clock),
        driver_api_trace_cbid=(),
        runtime_api_trace_cbid=(),
        **dict.fromkeys(("activity_enable", "activity_disable", "activity_flush_all"), lambda _: None),
        **dict.fromkeys(("activity_enable_driver_api", "activity_enable_runtime_api"), lambda _, __: None),
    )
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=made_up))
    return made


def records() -> list[ctypes.Structure]:
    when = {"start": 1 << 60, "end": (1 << 60) + 60, "correlation_id": 3}
    shape = dict(zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), (4, 2, 1, 32, 8, 1), strict=True))
    memory = {"registers": 40, "static_shared_memory": 1024, "dynamic_shared_memory": 512}
    return [
        Api(kind=Kind.DRIVER, cbid=307, **when, thread_id=7),
        Api(kind=Kind.RUNTIME, cbid=31, **when, thread_id=7),
        Other(kind=Kind.OTHER),
        Api(kind=Kind.RUNTIME, cbid=9, **when, thread_id=7),
        Kernel10(kind=Kind.CONCURRENT_KERNEL, name=ctypes.addressof(NAME), cluster_x=2, **when, **shape, **memory),
        Memcpy6(kind=Kind.MEMCPY, copy_kind=2, bytes=16, **when),
        Memset4(kind=Kind.MEMSET, bytes=8, **when),
    ]


def test_records_become_a_trace(library: Library) -> None:
    begin, end = 1 << 60, (1 << 60) + 60
    trace = record([4], lambda _: library.hand_over(*records()))
    assert trace.calls == [Call("cuLaunchKernelEx", begin, end, 3, 7), Call("cudaMemcpyAsync", begin, end, 3, 7)]
    assert trace.kernels == [Kernel("gemm", begin, end, 3, 40, 1536, 8, 256, 2)]
    assert trace.copies == [Copy("device to host", begin, end, 3, 16), Copy("fill", begin, end, 3, 8)]
    assert [window.epoch for window in trace.windows] == [4]


def test_buffers_are_read_only_while_recording(library: Library) -> None:
    walked: list[int] = []

    def run(epoch: int) -> None:
        library.hand_over(*records())
        walked.append(library.walked)

    trace = record([8, 9], run)
    assert walked == [0, 8, 16]  # nothing of the warm-up epoch
    assert len(trace.kernels) == 2
    library.hand_over(*records())  # records that arrive late
    assert (library.walked, len(trace.kernels)) == (16, 2)
    assert len(record([8], run, warm_up=False).kernels) == 1
    assert len(walked) == 4


def test_records_are_sorted_by_start(library: Library) -> None:
    late, early = (Kernel10(kind=Kind.CONCURRENT_KERNEL, start=at, name=ctypes.addressof(NAME)) for at in (9, 5))
    trace = record([0], lambda _: library.hand_over(late, early, records()[0]))
    assert [kernel.start for kernel in trace.kernels] == [5, 9]


def test_an_epoch_without_any_call_was_not_recorded(library: Library) -> None:
    with pytest.raises(ProfileError, match="no call"):
        record([0], lambda _: library.hand_over())


def test_launches_without_kernels_were_not_recorded(library: Library) -> None:
    with pytest.raises(ProfileError, match="CUPTI recorded 1 launches but no kernel: another profiler"):
        record([0], lambda _: library.hand_over(records()[0]))


def test_a_buffer_is_used_again(library: Library) -> None:
    library.hand_over()
    library.hand_over()
    assert library.at[0] == library.at[1]


def broken(library: Library) -> None:
    library.error = 21
    library.hand_over(*records())


def unknown(library: Library) -> None:
    library.hand_over(Api(kind=Kind.DRIVER, cbid=1))


@pytest.mark.parametrize(("hand_over", "error"), [(broken, ProfileError), (unknown, KeyError)])
def test_an_error_in_a_callback_is_raised(
    library: Library, hand_over: Callable[[Library], None], error: type[Exception]
) -> None:
    with pytest.raises(error):
        record([0], lambda _: hand_over(library))
    library.error = 0
    assert len(record([0], lambda _: library.hand_over(*records())).kernels) == 1


def test_a_library_that_accepts_no_buffers_is_an_error() -> None:
    library = Library()
    library.cuptiActivityRegisterCallbacks = lambda *_: 15  # type: ignore[method-assign]
    with pytest.raises(ProfileError, match="error 15"):
        Buffers(library)
