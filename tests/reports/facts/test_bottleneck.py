from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from ladder.records.limits import Limit
from ladder.records.profile import CallUse, CopyUse, KernelUse, Kind, Profile, Split
from ladder.records.run import Results, load
from reports.facts.bottleneck import next_step
from reports.facts.time_breakdown import Profiled, all_profiled, profiled
from tests.reports import sample
from tests.reports.profiles import kernel, own_kernels, profile

RECORDED = Path(__file__).parents[3] / "results" / "reference" / "h200"
STAGE = next(stage for stage in sample.results().stages if stage.name == "cublas")
BUSY = Split(60.0, 1.0, 2.0, 3.0, 4.0)


@cache
def recorded(name: str) -> Results:
    return load(RECORDED / name)


def told(run: str, name: str) -> str:
    """The advice on a recorded stage."""
    one = profiled(next(stage for stage in recorded(run).stages if stage.name == name))
    assert one is not None
    return str(next_step(recorded(run), one))


def advice(seen: Profile) -> str:
    return str(next_step(sample.results(), Profiled(STAGE, seen, seen.plain_step_us)))


def of_kernel(slow: KernelUse) -> str:
    return advice(profile(BUSY, [kernel("quick", "layer", 1.0), slow]))


@pytest.mark.parametrize(
    ("run", "name", "expected"),
    [
        ("logistic", "persistent-cluster", "one cluster of 16 blocks, the most that a cluster can have; a step lasts"),
        ("logistic", "persistent-cluster", "Exchange less between blocks"),  # it has no second layer to round
        ("hidden-128-128-128", "persistent-cluster", "Multiply and exchange 16-bit numbers"),
        ("hidden-128-128-128", "cluster-fp16", "Exchange less between blocks"),
        ("hidden-256", "persistent-grid", "barriers of the grid"),
        ("hidden-4096-4096-4096", "persistent-grid", "147.2 MB of weights exceed the 65.4 MB"),
        (
            "hidden-256",
            "last-layer",
            "it is one cluster of 16 blocks, the most that a cluster can have, and 116 of 132",
        ),
        ("hidden-256", "dependent-launch", "none of the 6 can be blamed alone"),
        ("hidden-256", "cuda-graph", "as many empty ones would take 12.1 us. Fuse neighbours"),
        ("hidden-256", "torch-graph", "Fuse neighbours in a kernel of your own"),
        ("hidden-256", "async", "1% of the memory's rate. Use each loaded number more often"),
        ("hidden-256", "sparse-metrics", "Capture the steps in a CUDA graph"),
        ("hidden-256", "torch-eager", "and its other code takes more. Capture the steps"),
        ("hidden-256", "torch-compile", ": 1 launch a step takes it 15.9 us under the profiler"),
        ("hidden-256", "torch-dataloader", "Keep the data on the GPU"),
        (
            "studies/hidden-size/hidden-4096",
            "jax-scan",
            "wrapped_subtract_1 with 91.0 us a step: its 32,768 blocks fill",
        ),
        ("studies/hidden-size/hidden-4096", "jax-scan", "Fuse it with a neighbour in a kernel of your own."),
        ("hidden-4096-4096-4096", "cuda-graph", "Join the update to the products"),
        ("hidden-4096-4096-4096", "streamed", "The weights (147.2 MB) exceed the L2 cache (62.9 MB)"),
        (
            "logistic",
            "fused-update",
            "its 25 blocks leave 107 of 132 multiprocessors idle. Try another algorithm of the",
        ),
        ("logistic", "skinny-gemm", "its 48 blocks leave 84 of 132 multiprocessors idle. Split its work"),
        ("hidden-256", "exact-u8", "its 96 blocks occupy most multiprocessors"),  # they need not take turns
        ("studies/allocators/hidden-2048", "alloc-cudamalloc", "802 us a step under the profiler. Allocate once"),
        ("studies/allocators/hidden-2048", "alloc-arena", "Capture the steps in a CUDA graph"),
        ("studies/data-path/batch-size-128.hidden-256", "pinned", "Keep the data on the GPU: a CUDA graph can then"),
        ("studies/data-path/batch-size-2048.hidden-256", "pageable", "or copy the next batch beside the kernels"),
        ("studies/data-path/batch-size-2048.hidden-4096", "sparse-metrics", "524 us of them at 51 TFLOP/s"),
    ],
)
def test_the_advice_on_recorded_stages(run: str, name: str, expected: str) -> None:
    assert expected in told(run, name)


def test_no_recorded_stage_is_advised_what_its_design_rules_out() -> None:
    seen = 0
    for path in sorted(RECORDED.rglob("results.json")):
        run = load(path)
        for one in all_profiled(run):
            text, where, profile = next_step(run, one).next, f"{path.parent.name}, {one.stage.name}", one.profile
            seen += 1
            assert text, where
            slowest = max(profile.kernels, key=lambda kernel: kernel.us_per_step)
            if profile.launches_per_step < 1 or profile.graph_launches_per_epoch:
                assert "Capture" not in text, where
            if profile.kernels_per_step < 1:
                assert not re.search("neighbour|Split its work|registers or", text), where
            if slowest.cluster >= 16:
                assert "Split its work" not in text, where
            if re.match("cutlass|sm80|nvjet|triton|gemm_fusion", slowest.name):
                assert not re.search("Split its work|Use fewer registers", text), where
            if any(copy.direction == "host to device" and copy.per_epoch > 20 for copy in profile.copies):
                assert "Capture" not in text, where
            if profile.allocations_per_epoch.get("cudaMalloc", 0) > 20:
                assert "Capture" not in text, where
    assert seen > 200


def test_a_kernel_of_few_blocks_leaves_multiprocessors_idle() -> None:
    text = of_kernel(kernel("slow", "gemm", 40.0, blocks=8))
    assert text.startswith("Kernels take 60.0 of 70.0 us (85.7%). The slowest is slow with 40.0 us a step: ")
    assert "its 8 blocks leave 124 of 132 multiprocessors idle. Split its work over more blocks." in text
    assert "its 1 block leaves 131 of 132" in of_kernel(kernel("slow", "gemm", 40.0, blocks=1))
    unknown = msgspec.structs.replace(sample.results(), limits=None)
    seen = profile(BUSY, [kernel("slow", "gemm", 40.0, blocks=8)])
    assert "its 8 blocks leave most multiprocessors idle" in next_step(unknown, Profiled(STAGE, seen, 77.0)).bound


def test_a_kernel_that_may_only_wait_for_others_is_not_blamed_without_saying_so() -> None:
    seen = profile(BUSY, [kernel("quick", "layer", 30.0), kernel("slow", "gemm", 40.0, blocks=8)])
    text = advice(msgspec.structs.replace(seen, overlap_us=10.0))
    assert "with 40.0 us a step (kernels overlap here, so it may only wait for another one): " in text
    assert "none of the 2 can be blamed alone" in advice(msgspec.structs.replace(seen, overlap_us=40.0))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"occupancy": 0.125, "blocks": 4096}, "room for 12.5% of a multiprocessor's warps, and its 4,096 blocks take"),
        ({"occupancy": 0.125, "blocks": 128}, "moves 4.0 MB at 100 GB/s, 2.4% of the memory's rate. Use each loaded"),
        ({"occupancy": 0.5}, "moves 4.0 MB at 100 GB/s, 2.4% of the memory's rate. Use each loaded number"),
        ({"occupancy": 0.5, "kind": "layer"}, "2.4% of the memory's rate. Change its access pattern"),
        ({"bytes": 120_000_000}, "moves 120.0 MB at 3,000 GB/s, 70.8% of the memory's rate. Fuse it with a neighbour"),
        ({"bytes": None}, "its 256 blocks fill the GPU. Round its factors to 16 bits"),
        ({"bytes": None, "kind": "update"}, "Join the update to the products"),
        ({"bytes": None, "kind": "fused"}, "Fuse it with a neighbour, so that its result stays on the chip."),
        ({"bytes": None, "name": "nvjet_sm90_tst"}, "Try another algorithm of the library"),
    ],
)
def test_a_kernel_that_fills_the_chip_is_judged_by_room_then_by_bytes(
    changes: dict[str, object], expected: str
) -> None:
    slow = msgspec.structs.replace(kernel("slow", "gemm", 40.0, blocks=256), occupancy=0.5, bytes=4_000_000)
    assert expected in of_kernel(msgspec.structs.replace(slow, **changes))


def test_launching_asks_for_a_graph_and_with_a_graph_for_a_longer_one() -> None:
    launching = Split(10.0, 0.0, 1.0, 30.0, 2.0)
    text = advice(profile(launching, own_kernels()))
    assert "30.0 of 43.0 us (69.8%)" in text
    assert "8 launches a step take it 24.0 us under the profiler. Capture the steps in a CUDA graph" in text
    assert "Put more steps into one graph." in advice(profile(launching, own_kernels(), as_graph=True))
    persistent = profile(launching, [kernel("epoch", "fused", 10.0)], kernels_per_step=0.002)
    assert "Run more steps in one launch." in advice(persistent)


def test_calls_in_every_step_that_a_graph_cannot_hold_come_first() -> None:
    seen = profile(Split(10.0, 0.0, 1.0, 60.0, 2.0), own_kernels())
    assert "and its other code takes more. Capture" in advice(seen)
    calls = [*seen.calls, CallUse("cudaMalloc", 468.0, 9.0), CallUse("cudaFree", 468.0, 5.0)]
    allocating = msgspec.structs.replace(
        seen, calls=calls, allocations_per_epoch={"cudaMalloc": 468.0, "cudaFree": 468.0}
    )
    assert "takes the host 14.0 us a step under the profiler. Allocate once" in advice(allocating)
    assert "Capture" in advice(msgspec.structs.replace(allocating, allocations_per_epoch={"cudaMalloc": 4.0}))
    copies = [CopyUse("host to device", 468.0, 188e6, 9.9)]
    calls = [*seen.calls, CallUse("cudaMemcpyAsync", 468.0, 20.0)]
    copying = advice(msgspec.structs.replace(seen, calls=calls, copies=copies))
    assert "Copying each batch takes it 20.0 us. Keep the data on the GPU: " in copying


def test_waiting_asks_for_fewer_read_backs_but_not_for_less_than_none() -> None:
    waiting = Split(10.0, 0.0, 1.0, 2.0, 30.0)
    assert "468 synchronisations an epoch. Read results less often." in advice(
        profile(waiting, own_kernels(), reads=True)
    )
    assert "waits at the end of each epoch" in advice(profile(waiting, own_kernels()))


def test_gaps_between_queued_kernels_ask_for_fusion() -> None:
    text = advice(profile(Split(10.0, 0.0, 24.0, 2.0, 1.0), own_kernels()))
    assert "8 kernels a step, with 3.00 us before each. Fuse kernels" in text


def test_copies_name_their_direction() -> None:
    seen = profile(Split(1.0, 20.0, 2.0, 2.0, 1.0), own_kernels())
    copies = [CopyUse("fill", 468.0, 4.0, 0.1), CopyUse("host to device", 468.0, 188e6, 19.9)]
    text = advice(msgspec.structs.replace(seen, copies=copies))
    assert "most of it copies, host to device: 468 an epoch with 188.0 MB. Keep the data on the GPU" in text
    fills = [CopyUse("fill", 468.0, 4.0, 0.1)]
    assert "Let a kernel that runs anyway write" in advice(msgspec.structs.replace(seen, copies=fills))


@pytest.mark.parametrize("split", [BUSY, Split(1.0, 20.0, 2.0, 2.0, 1.0)])
def test_a_profile_that_names_nothing_says_so(split: Split) -> None:
    assert "does not name them" in advice(profile(split, []))


@pytest.mark.parametrize(
    ("step_us", "expected"), [(3.0, "Matrix products take 2.09 us of them at 50 TFLOP/s"), (1.0, "")]
)
def test_a_library_at_the_rate_of_the_gpu_is_bound_by_arithmetic(step_us: float, expected: str) -> None:
    run = sample.results()
    assert run.limits is not None
    rate = Limit("gemm_float32", "matrix product, float32", "TFLOP/s", 50.0, 50.0, 50.0)
    run = msgspec.structs.replace(run, limits=msgspec.structs.replace(run.limits, limits=[rate]))
    cases: list[tuple[str, Kind, bool]] = [
        ("cutlass_80", "gemm", True),
        ("cutlass_80", "fused", False),
        ("mine", "gemm", False),
    ]
    for name, kind, found in cases:
        seen = profile(Split(step_us, 0.0, 0.0, 0.0, 0.0), [kernel(name, kind, step_us, blocks=256)])
        bound = next_step(run, Profiled(STAGE, seen, step_us)).bound
        assert not found or expected in bound
        assert ("Matrix products" in bound) == (found and bool(expected))
