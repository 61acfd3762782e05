"""The split of an epoch's time, on traces small enough to add up by hand."""

from __future__ import annotations

import pytest

from ladder.profile.time_split import SplitNs, merged, split, union, waiting_calls
from ladder.profile.trace import FROM_PYTHON, Call, Copy, Kernel, Trace, Window

WINDOW = Window(0, 0, 100)


def kernel(start: int, end: int, correlation: int) -> Kernel:
    return Kernel("k", start, end, correlation)


def launch(start: int, end: int, correlation: int, thread: int = 1) -> Call:
    return Call("cuLaunchKernelEx", start, end, correlation, thread)


def test_idle_time_before_a_late_launch_is_launching() -> None:
    trace = Trace(kernels=[kernel(10, 20, 1), kernel(60, 100, 2)], calls=[launch(2, 5, 1), launch(40, 45, 2)])
    assert split(trace, WINDOW) == SplitNs(kernels=50, launching=10 + 40)


def test_idle_time_before_submitted_work_is_queued() -> None:
    trace = Trace(kernels=[kernel(10, 20, 1), kernel(25, 100, 2)], calls=[launch(2, 5, 1), launch(6, 9, 2)])
    assert split(trace, WINDOW) == SplitNs(kernels=85, launching=10, queued=5)


def test_all_nodes_of_a_graph_count_as_submitted_together() -> None:
    kernels = [kernel(10, 30, 1), kernel(35, 60, 1), kernel(61, 90, 1)]
    trace = Trace(kernels=kernels, calls=[Call("cudaGraphLaunch", 0, 8, 1, 1), Call("cuCtxSynchronize", 8, 100, 2, 1)])
    assert split(trace, WINDOW) == SplitNs(kernels=74, queued=6, launching=8, waiting=2 + 10)


def test_waiting_and_launching_are_separated_within_an_idle_interval() -> None:
    calls = [launch(0, 4, 1), Call("cudaStreamSynchronize", 5, 40, 2, 1), launch(50, 55, 3)]
    trace = Trace(kernels=[kernel(5, 30, 1), kernel(70, 100, 3)], calls=calls)
    assert split(trace, WINDOW) == SplitNs(kernels=55, launching=5 + 30, waiting=10)


def test_only_the_launching_threads_waits_count() -> None:
    calls = [launch(0, 4, 1, thread=2), Call("cudaStreamSynchronize", 5, 90, 2, 1), launch(50, 55, 3, thread=2)]
    trace = Trace(kernels=[kernel(5, 30, 1), kernel(60, 100, 3)], calls=calls)
    assert split(trace, WINDOW) == SplitNs(kernels=65, launching=5 + 30)


def test_copies_beside_kernels_count_as_the_kernels() -> None:
    copies = [Copy("host to device", 20, 50, 2, 64), Copy("fill", 60, 70, 3, 64)]
    trace = Trace(kernels=[kernel(0, 30, 1)], copies=copies)
    assert split(trace, WINDOW) == SplitNs(kernels=30, copies=20 + 10, launching=10, waiting=30)


def test_kernels_that_overlap_count_once_and_only_inside_the_epoch() -> None:
    trace = Trace(kernels=[kernel(-20, 30, 1), kernel(10, 40, 2), kernel(90, 130, 3)], calls=[launch(80, 85, 3)])
    assert split(trace, WINDOW) == SplitNs(kernels=50, launching=50)


def test_a_thread_of_the_cpu_that_ends_first_waits_for_the_others() -> None:
    trace = Trace(kernels=[kernel(10, 40, 1)], calls=[Call(FROM_PYTHON, 10, 40, 1, 1)])
    assert split(trace, WINDOW, others_end=90) == SplitNs(kernels=30, launching=10 + 10, waiting=50)


def test_an_epoch_without_work_is_all_waiting() -> None:
    assert split(Trace(), WINDOW) == SplitNs(waiting=100)


@pytest.mark.parametrize(
    ("name", "copy", "waits"),
    [
        ("cuCtxSynchronize", None, True),
        ("cudaEventSynchronize", None, True),
        ("cudaMemcpyAsync", Copy("device to host", 12, 18, 1, 8), True),
        ("cudaMemcpyAsync", Copy("device to host", 30, 35, 1, 8), False),  # into pinned memory: the call returned first
        ("cudaMemcpyAsync", Copy("host to device", 12, 18, 1, 8), False),
        ("cudaStreamWaitEvent", None, False),
        ("cuLaunchKernel", None, False),
    ],
)
def test_which_calls_wait(name: str, copy: Copy | None, waits: bool) -> None:
    trace = Trace(calls=[Call(name, 10, 20, 1, 1)], copies=[copy] if copy else [])
    assert bool(waiting_calls(trace)) is waits


@pytest.mark.parametrize(
    ("name", "kernel_ends", "handed_over", "waits"),
    [
        ("cudaFree", 15, 5, True),
        ("cuMemFree", 15, 5, True),
        ("cudaFree", 9, 5, False),  # the device was idle
        ("cudaFree", 25, 5, False),  # the device kept working
        ("cudaFree", 15, 11, False),  # submitted by another thread after the free began
        ("cudaFreeAsync", 15, 5, False),
    ],
)
def test_a_free_waits_for_earlier_work(name: str, kernel_ends: int, handed_over: int, waits: bool) -> None:
    calls = [launch(handed_over, handed_over + 1, 1), Call(name, 10, 20, 2, 1)]
    trace = Trace(calls=calls, kernels=[kernel(handed_over + 1, kernel_ends, 1)])
    assert [call.name for call in waiting_calls(trace)] == ([name] if waits else [])


def test_intervals_are_merged() -> None:
    assert merged([(5, 9), (0, 3), (3, 4), (8, 12), (20, 20)]) == [(0, 4), (5, 12)]
    assert union([kernel(-5, 2, 1), kernel(200, 300, 2)], WINDOW) == [(0, 2)]
