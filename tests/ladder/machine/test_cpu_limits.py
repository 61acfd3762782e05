"""The limits of the CPU, measured here and invented, the floors computed from them, and times that none reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

from common.cpu.cores import Caches, caches
from common.cpu.host import Replay
from common.problem import Problem
from ladder.machine import cpu_limits
from ladder.machine.cpu_limits import cpu_cheat_limit
from ladder.records.limits_record import CpuLimits, DesignFloor, StepBounds
from ladder.records.profile import Profile, Split
from stages.registry import rung
from tests.ladder.harness import NUMPY, Watcher, prepare

if TYPE_CHECKING:  # Numba compiles it on import
    from common.cpu.primitives import CpuPrimitives

SAMPLES = {
    "call": [0.4, 0.3, 0.5],
    "blas_call": [0.1, 0.2, 0.1],
    "barrier": [0.25, 0.2, 0.3],
    "read_memory_with_all": [19.0, 20.0, 18.0],
    "write_memory": [9.0, 10.0, 8.0],
    "product": [90.0, 100.0, 95.0],
}
READS = {"l1": 200.0, "l2": 100.0, "l3": 50.0, "memory": 15.0}
SIZES = Caches(32 << 10, 512 << 10, 32 << 20)


class FakePrimitives:
    """Primitives that return the samples above."""

    caches = SIZES

    def __init__(self, cores: int = 2) -> None:
        self.cores = cores

    def __getattr__(self, name: str) -> Callable[[], list[float]]:
        return lambda: SAMPLES[name]

    def read(self, level: str) -> list[float]:
        return [0.9 * READS[level], READS[level], 0.8 * READS[level]]

    def multiply_add(self, cores: int = 1) -> list[float]:
        return [100.0 * cores, 110.0 * cores, 105.0 * cores]


def measured(cores: int = 2) -> CpuLimits:
    return cpu_limits.measure_cpu_limits(lambda: cast("CpuPrimitives", FakePrimitives(cores)))


def profile(launches: float, barriers_per_epoch: float = 0.0) -> Profile:
    split = Split(40.0, 0.0, 0.0, 1.0, 0.0)
    return Profile(
        tool="stamps", epochs=[8, 9], plain_step_us=41.0, step_us=41.0, seen=split, split=split, kernels_per_step=5.0,
        launches_per_step=launches, graph_launches_per_epoch=0.0, syncs_per_epoch=barriers_per_epoch,
        sync_us_per_step=0.0, allocations_per_epoch={}, busy_share=1.0, kernels=[], copies=[], calls=[], timeline=[],
        timeline_us=0.0,
    )  # fmt: skip


def floor(
    name: str, seen: Profile, detail: str = "CPU, 1 thread", record: CpuLimits | None = None, **sizes: Any
) -> DesignFloor:
    problem = Problem(**{"inputs": 784, "classes": 10, "batch_size": 128, **sizes})
    found = cpu_limits.floor_of(record or measured(), rung(name), problem, 468, seen, detail)
    assert found is not None
    return found


def test_a_floor_above_the_measured_step_is_told_and_not_shown() -> None:
    found = floor("cpu-bytes", profile(1 / 468))
    shown, unknown, told = (cpu_limits.bounds_of(0.1, found, found.total_us * ratio) for ratio in (1.0, 2.0, 0.5))
    assert shown == unknown == StepBounds(0.1, found)
    assert (told.design, told.cheat_limit_us) == (None, 0.1)
    assert told.no_floor.endswith(": the CPU was slower meanwhile")


@pytest.mark.alone
def test_this_cpu_has_every_limit_and_nearer_caches_are_not_slower() -> None:
    record = cpu_limits.measure_cpu_limits()
    found = {limit.name: limit for limit in record.limits}
    names = {primitive.name for primitive in cpu_limits.PRIMITIVES if primitive.least_cores <= record.cpu.cores}
    assert set(found) == names
    assert all(0 < limit.min <= limit.median <= limit.max for limit in record.limits)
    assert found["l1_read"].best > 0.8 * found["l2_read"].best
    assert found["l2_read"].best > 0.8 * found["memory_read"].best
    assert found["l1_read"].best > found["memory_read"].best
    assert found["blas_product"].best < 1.5 * found["multiply_add"].best, "the multiply-adds use all vectors"
    assert found["call"].best < 100
    assert cpu_limits.rates_of(record) is not None


def test_one_core_has_no_barrier() -> None:
    record = measured(cores=1)
    assert record.get("barrier") is None
    assert set(record.skipped.values()) == {"this process may use one core only"}
    assert floor("cpu-bytes", profile(1 / 468), record=record).total_us > 0


def test_calls_and_barriers_add_to_the_kernels() -> None:
    one_by_one = floor("cpu-loops", profile(8.0))
    assert one_by_one.launching_us == pytest.approx(8 * 0.3)
    assert one_by_one.total_us == pytest.approx(one_by_one.launching_us + one_by_one.kernels_us)
    cores = floor("cpu-cores", profile(2 / 468, 936.0), "CPU, 2 threads")
    assert cores.waiting_us == pytest.approx(2 * 0.2)
    assert cores.total_us == pytest.approx(2 / 468 * 0.3 + cores.kernels_us + 0.4)
    assert cores.arithmetic == "float32, 2 threads"


def test_the_longest_of_arithmetic_and_bytes_bounds_the_kernels() -> None:
    flops = 2 * 2 * 128 * 784 * 10
    assert floor("cpu-bytes", profile(1 / 468)).kernels_us == pytest.approx(flops / 110e3)
    assert floor("cpu-bytes", profile(1 / 468)).bound_by == "arithmetic"
    assert floor("cpu-cores", profile(2 / 468), "CPU, 2 threads").kernels_us == pytest.approx(flops / 220e3)
    narrow = floor("cpu-tiles", profile(1 / 468), classes=2)  # float32 images, of which memory brings each once
    assert narrow.bound_by == "reading the images from memory"
    assert narrow.kernels_us == pytest.approx(128 * 784 * 4 / 15e3)


def test_images_that_a_cache_holds_come_from_it() -> None:
    few = floor("cpu-tiles", profile(1 / 468), classes=2, batch_size=1)
    assert few.kernels_us < 1.0
    assert "memory" not in few.bound_by


def test_a_reference_and_a_missing_limit_have_no_floor() -> None:
    record, problem = measured(), Problem(784, 10)
    without = replace(record, limits=[limit for limit in record.limits if limit.name != "l2_read"])
    assert cpu_limits.floor_of(without, rung("cpu-bytes"), problem, 468, profile(1.0), "") is None
    assert cpu_limits.floor_of(record, rung("numpy"), problem, 468, profile(1.0), "") is None
    assert cpu_limits.floor_of(record, rung("cpu-bytes"), problem, 468, None, "") is None


def test_the_start_of_a_thread_does_not_count_as_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    from common.cpu import primitives

    monkeypatch.setattr(primitives, "SAMPLES", 3)
    cpu = primitives.CpuPrimitives(cores=1)
    run = cpu._team.run

    def late(lists: list[Replay]) -> None:
        time.sleep(0.5)
        run(lists)

    monkeypatch.setattr(cpu._team, "run", late)
    samples = cpu.barrier()
    assert len(samples) == 3 * primitives.STRETCHES
    assert min(samples) < 0.5e6 / (primitives.MEETINGS * primitives.STRETCHES)


def test_caches_are_read_from_linux_or_taken_as_typical(tmp_path: Path) -> None:
    assert caches(tmp_path / "none") == Caches()
    told = (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"))
    for index, texts in enumerate(told):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in zip(("level", "type", "size"), texts, strict=True):
            (folder / name).write_text(f"{text}\n")
    assert caches(tmp_path) == Caches(48 << 10, 2 << 20, Caches().l3)


SOFTMAX, MNIST_DENSITY = Problem(784, 10), 0.19


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_limits, "_operations_a_cycle", lambda: 128)


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize("cores", [1, 4])
def test_a_tenth_of_a_microsecond_a_step_is_impossible(cores: int) -> None:
    assert 0.1 < cpu_cheat_limit(SOFTMAX, cores, MNIST_DENSITY) < 1.0


@pytest.mark.usefixtures("avx512")
def test_more_cores_and_fewer_pixels_lower_the_limit_and_more_units_raise_it() -> None:
    limit = cpu_cheat_limit(SOFTMAX, 2, MNIST_DENSITY)
    assert cpu_cheat_limit(SOFTMAX, 64, MNIST_DENSITY) < limit < cpu_cheat_limit(SOFTMAX, 2, 1.0)
    assert cpu_cheat_limit(Problem(784, 10, hidden=(64,)), 2, MNIST_DENSITY) > limit


@pytest.mark.usefixtures("avx512")
def test_where_one_core_is_faster_than_an_exchange_it_is_the_limit() -> None:
    tiny = Problem(4, 2, batch_size=1)
    assert cpu_cheat_limit(tiny, 64, 1.0) == cpu_cheat_limit(tiny, 1, 1.0) < cpu_limits.EXCHANGE_US


@pytest.mark.usefixtures("in_process", "avx512")
def test_a_cpu_stage_passes_it_and_an_impossible_time_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for status in ("passed", "failed"):
        if status == "failed":
            monkeypatch.setattr("ladder.run.bounds.cpu_cheat_limit", lambda *_: 1e6)
        folder = tmp_path / status
        folder.mkdir()
        (stage,) = prepare(folder, NUMPY).run(Watcher()).stages
        assert (stage.status, (stage.reason or "").startswith("cheat limit")) == (status, status == "failed")
        (check,) = (check for check in stage.checks if check.what.startswith("cheat limit"))
        assert check.passed == (status == "passed")
        assert check.error is not None
        assert status == "failed" or 0.0 < check.error < 0.1
