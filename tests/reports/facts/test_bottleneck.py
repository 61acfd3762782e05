from __future__ import annotations

import msgspec
import pytest

from ladder.records.profile import CopyUse, KernelUse, Profile, Split
from reports.facts.bottleneck import next_step
from reports.facts.time_breakdown import Profiled
from tests.reports import sample
from tests.reports.profiles import kernel, own_kernels, profile

STAGE = sample.results().stages[0]
BUSY = Split(60.0, 1.0, 2.0, 3.0, 4.0)


def advice(seen: Profile) -> str:
    return next_step(Profiled(STAGE, seen, seen.plain_step_us))


def of_kernel(slow: KernelUse) -> str:
    return advice(profile(BUSY, [kernel("quick", "layer", 1.0), slow]))


def test_a_kernel_of_few_blocks_leaves_multiprocessors_idle() -> None:
    text = of_kernel(kernel("slow", "gemm", 40.0, blocks=8))
    assert text.startswith("Kernels take 60.0 of 70.0 us (85.7%). The slowest is slow with 40.0 us a step: ")
    assert "its 8 blocks keep at most 8 multiprocessors busy" in text


def test_a_kernel_that_may_only_wait_for_others_is_not_blamed_without_saying_so() -> None:
    seen = profile(BUSY, [kernel("quick", "layer", 30.0), kernel("slow", "gemm", 40.0, blocks=8)])
    text = advice(msgspec.structs.replace(seen, overlap_us=10.0))
    assert "with 40.0 us a step (kernels overlap here, so it may only wait for another one): " in text


@pytest.mark.parametrize(
    ("occupancy", "moved", "expected"),
    [
        (0.125, 4_000_000, "32 registers a thread and 2.0 kB of shared memory a block leave room for 12.5%"),
        (0.5, 4_000_000, "moves 4.0 MB at 100 GB/s"),
        (0.5, None, "Try another algorithm"),
        (None, None, "Try another algorithm"),
    ],
)
def test_a_kernel_that_fills_the_chip_is_judged_by_warps_then_by_bytes(
    occupancy: float | None, moved: int | None, expected: str
) -> None:
    slow = kernel("slow", "gemm", 40.0, blocks=256)
    assert expected in of_kernel(msgspec.structs.replace(slow, occupancy=occupancy, bytes=moved))


def test_launching_asks_for_a_graph_and_with_a_graph_for_a_longer_one() -> None:
    launching = Split(10.0, 0.0, 1.0, 30.0, 2.0)
    text = advice(profile(launching, own_kernels()))
    assert "30.0 of 43.0 us (69.8%)" in text
    assert "8 launches a step, 3.00 us of host time each. Capture the steps in a CUDA graph" in text
    assert "Put more steps into one graph." in advice(profile(launching, own_kernels(), as_graph=True))


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
    assert "most of it copies, host to device: 468 an epoch with 188.0 MB" in text


@pytest.mark.parametrize("split", [BUSY, Split(1.0, 20.0, 2.0, 2.0, 1.0)])
def test_a_profile_that_names_nothing_says_so(split: Split) -> None:
    assert "does not name them" in advice(profile(split, []))
