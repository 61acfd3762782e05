"""Which primitives are measured, which are skipped and why, the floors computed from them, and how long they hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from common.cost import HEADROOM, Design, Exchanges
from common.errors import UsageError
from common.problem import Problem
from ladder.machine import environment, limits
from ladder.machine.environment import ROOT
from ladder.machine.limits import keep_limits, kept_limits
from ladder.records.limits_record import SHARED, Chip, DesignFloor, Limit, LimitsRecord, StepBounds
from ladder.records.run import GpuState
from stages.devices.ddp_peer import STAGE
from tests.ladder import gpus

# Three samples of each, in the order of limits.PRIMITIVES.
SAMPLES = {
    "launch": [3.7, 3.5, 3.6],
    "launch_and_wait": [8.0, 7.5, 7.6],
    "launch_and_read": [14.0, 13.5, 15.0],
    "graph_node": [0.9, 0.86, 0.88],
    "dependent_graph_node": [0.5, 0.52, 0.51],
    "block_barrier": [0.015, 0.014, 0.016],
    "grid_barrier": [0.92, 0.91, 0.93],
    "cluster_barrier": [0.19, 0.2, 0.21],
    "cluster_hop": [0.25, 0.26, 0.24],
    "load_latency": [0.14, 0.15, 0.13],
    "memory_copy": [4300.0, 4200.0, 4250.0],
    "memory_read": [4700.0, 4600.0, 4650.0],
    "memory_update": [4350.0, 4250.0, 4280.0],
    "l2_read": [5900.0, 5800.0, 6000.0],
    "product": [700.0, 800.0, 750.0],
    "graph_node_after_two_streams": [1.15, 1.17, 1.16],
    "peer_hop": [0.7, 0.8, 0.75],
    "peer_copy": [390.0, 385.0, 380.0],
}


class FakePrimitives:
    """Primitives that return the samples above; those given as exceptions raise them."""

    multiprocessors = 132
    l2_bytes = 60 << 20
    on_chip_bytes = 132 * (228 + 256) << 10
    block_shared_bytes = 227 << 10

    def __init__(self, **changed: list[float] | Exception) -> None:
        self._samples: dict[str, list[float] | Exception] = {**SAMPLES, **changed}
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., list[float]]:
        def measure(*arguments: Any) -> list[float]:
            self.asked.append((name, arguments))
            samples = self._samples[name]
            if isinstance(samples, Exception):
                raise samples
            return samples

        return measure


def measured(gpu: FakePrimitives) -> LimitsRecord:
    return limits.measure_limits(cast(Any, lambda: gpu))


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an H200 and all packages."""
    gpus.show(monkeypatch, gpus.H200)
    monkeypatch.setattr(limits, "missing", lambda needs: None)


@pytest.mark.usefixtures("h200")
def test_every_primitive_has_a_row_with_its_spread() -> None:
    gpu = FakePrimitives()
    record = measured(gpu)
    assert [limit.name for limit in record.limits] == [primitive.name for primitive in limits.PRIMITIVES]
    assert len({limit.name for limit in record.limits}) == len({limit.title for limit in record.limits})
    assert record.skipped == {}
    launch, copy = record.get("launch"), record.get("memory_copy")
    assert launch is not None
    assert (launch.median, launch.min, launch.max, launch.best) == (3.6, 3.5, 3.7, 3.5)
    assert launch.spread == pytest.approx(0.2 / 3.6)
    assert copy is not None
    assert (copy.unit, copy.best) == ("GB/s", 4300.0)
    assert ("graph_node", (132,)) in gpu.asked
    assert [arguments for name, arguments in gpu.asked if name.startswith("cluster")] == [(2,), (16,), (2,), (16,)]
    precisions = [arguments[0] for name, arguments in gpu.asked if name == "product"]
    assert precisions == ["float32", "tf32", "bfloat16", "float16"]
    assert [name for name, _ in gpu.asked[-3:]] == ["graph_node_after_two_streams", "peer_hop", "peer_copy"]
    assert msgspec.json.decode(msgspec.json.encode(record), type=LimitsRecord) == record


def test_primitives_that_an_older_gpu_lacks_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.show(monkeypatch, gpus.RTX_3060)
    monkeypatch.setattr(limits, "missing", lambda needs: environment.missing(n for n in needs if n.startswith("sm_")))
    gpu = FakePrimitives()
    record = measured(gpu)
    too_old = "needs sm_90 or newer, this GPU is sm_86"
    expected = {p.title: too_old for p in limits.PRIMITIVES if "cluster" in p.name or "dependent" in p.name}
    assert len(expected) == 5
    assert record.skipped == expected
    assert not {"cluster_barrier", "cluster_hop", "dependent_graph_node"} & {name for name, _ in gpu.asked}
    rates = limits.rates_of(record)
    assert rates is not None
    assert rates.exchange_us == 0.91


class SharedGpuMonitor:
    """A monitor whose first `times` readings show another process."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __enter__(self) -> SharedGpuMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> list[GpuState]:
        self.times -= 1
        return [GpuState(1980, 45, 300.0, [], other_processes=int(self.times >= 0))]


@pytest.mark.usefixtures("h200")
def test_a_primitive_disturbed_by_another_process_is_measured_again_then_skipped() -> None:
    once = limits.measure_limits(cast(Any, FakePrimitives), cast(Any, lambda: SharedGpuMonitor(1)))
    assert once.skipped == {}
    assert limits.rates_of(once) is not None
    first = limits.PRIMITIVES[0]
    both = limits.measure_limits(cast(Any, FakePrimitives), cast(Any, lambda: SharedGpuMonitor(limits.ATTEMPTS)))
    assert both.skipped == {first.title: SHARED}
    assert limits.rates_of(both) is None


@pytest.mark.usefixtures("h200")
def test_a_failing_primitive_is_skipped_with_the_reason() -> None:
    record = measured(FakePrimitives(grid_barrier=RuntimeError("CUDA_ERROR_NOT_SUPPORTED: no\nmore")))
    assert record.skipped == {"grid barrier, a block per SM": "RuntimeError: CUDA_ERROR_NOT_SUPPORTED: no"}
    assert record.get("grid_barrier") is None
    assert record.get("cluster_barrier_2") is not None


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize("sample", [0.0, -0.1, float("nan")])
def test_a_sample_that_is_no_positive_time_is_skipped(sample: float) -> None:
    record = measured(FakePrimitives(block_barrier=[0.01, sample, 0.02]))
    (reason,) = record.skipped.values()
    assert reason.startswith("lost in noise: samples from ")


@pytest.mark.usefixtures("h200")
def test_bounds_use_the_best_samples() -> None:
    record = measured(FakePrimitives())
    found = limits.bounds(record, Problem(784, 10), "float32", Design(kernels=8, launches=8, waits=1, read_backs=1))
    assert found is not None
    assert found.design is not None
    assert found.design.launching_us == pytest.approx(8 * 3.5)
    # Each of the seven operations is shorter than a node, and so is the eighth kernel.
    assert found.design.kernels_us == pytest.approx(8 * 0.86)
    assert found.design.waiting_us == pytest.approx((7.5 - 3.5) + (13.5 - 3.5))
    assert found.design_floor_us == pytest.approx(28 + 14)
    pixels_us = 128 * 784 / 6e6
    assert found.cheat_limit_us == pytest.approx((pixels_us + 0.24) / HEADROOM)
    early = Design(kernels=3, launches=0.01, are_dependents=True)
    dependents = limits.bounds(record, Problem(784, 10), "float32", early)
    assert dependents is not None
    assert dependents.design is not None
    assert dependents.design.kernels_us == pytest.approx(3 * 0.5)
    without = limits.bounds(record, Problem(784, 10), "float32", None)
    assert without == StepBounds(found.cheat_limit_us, None)
    assert without.design_floor_us is None


@pytest.mark.usefixtures("h200")
def test_on_several_gpus_the_floor_is_of_a_share_and_the_gradients_way() -> None:
    problem = Problem(784, 10, (256,), batch_size=8192, gpus=2)
    counts = SimpleNamespace(kernels_per_step=7, launches_per_step=0.1, syncs_per_epoch=0, copies=[])
    found = limits.bounds_of(measured(FakePrimitives()), STAGE, problem, 7, cast(Any, counts))
    assert found is not None
    assert found.design is not None
    assert found.design.flops == 4096 * 2 * (2 * 784 * 256 + 3 * 256 * 10)
    assert found.design.kernels_us == pytest.approx(6 * 0.86 + 0.7 + 203_530 * 4 / 390e3)


@pytest.mark.usefixtures("h200")
def test_exchanges_within_a_kernel_set_a_floor_of_their_own() -> None:
    design = Design(kernels=0.01, launches=0.01, exchanges=Exchanges(cluster_hops=4, grid_barriers=2))
    found = limits.bounds(measured(FakePrimitives()), Problem(784, 10), "float32", design)
    assert found is not None
    assert found.design is not None
    assert found.design.exchanging_us == pytest.approx(4 * 0.24 + 2 * 0.91)
    assert found.design_floor_us == pytest.approx(found.design.exchanging_us)
    no_clusters = measured(FakePrimitives(cluster_hop=RuntimeError("no")))
    found = limits.bounds(no_clusters, Problem(784, 10), "float32", design)
    assert found is not None
    assert found.design is not None
    assert found.design.exchanging_us == pytest.approx(6 * 0.91)


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(
    "names",
    ["launch", "launch_and_wait", "launch_and_read", "graph_node", "memory_copy", "l2_read", "product",
     "cluster_hop grid_barrier"],
)  # fmt: skip
def test_no_bounds_where_a_primitive_or_every_exchange_is_missing(names: str) -> None:
    record = measured(FakePrimitives(**dict.fromkeys(names.split(), RuntimeError("no"))))
    assert limits.bounds(record, Problem(784, 10), "float32", None) is None
    assert StepBounds(2.0, DesignFloor(1.0, 0.5, 0.25)).design_floor_us == 2.0  # never faster than the problem allows
    assert StepBounds(1.0, DesignFloor(1.0, 3.0, 0.25)).design_floor_us == 3.25


def test_without_a_gpu_measuring_raises_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.hide(monkeypatch)
    with pytest.raises(UsageError, match=r"^limits: no CUDA device: no NVIDIA driver .*; they can only be measured"):
        limits.measure_limits()


@pytest.mark.skipif(environment.missing(("cuda",)) is None, reason="there is a GPU")
def test_without_a_gpu_the_process_prints_one_line_and_writes_no_record(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ladder.machine.limits", str(tmp_path / "limits.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("limits: no CUDA device")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


MACHINE: dict[str, Any] = {"gpu": {"name": "H200", "driver": "580.65"}, "cpu": {"model": "EPYC"}, "libraries": {}}
LIMITS = LimitsRecord(Chip(132, 60 << 20, 0), [Limit("launch", "launch", "us", 3.0, 2.9, 3.1)], {}, 7.0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))


def test_they_are_found_again_and_say_when_they_were_measured() -> None:
    assert kept_limits(MACHINE) is None
    keep_limits(MACHINE, LIMITS)
    found = kept_limits(MACHINE)
    assert found is not None
    assert found.measured
    assert replace(found, measured="") == LIMITS


def test_another_driver_or_source_has_limits_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep_limits(MACHINE, LIMITS)
    assert kept_limits({**MACHINE, "gpu": {"name": "H200", "driver": "590.10"}}) is None
    changed = tmp_path / "primitives.py"
    changed.write_text("samples = 3\n")
    monkeypatch.setattr(limits, "MEASURED_BY", (changed,))
    assert kept_limits(MACHINE) is None


def test_the_next_day_measures_anew_and_forgets_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep_limits(MACHINE, LIMITS)
    (kept,) = (tmp_path / "limits").iterdir()
    kept.rename(kept.with_name(f"2020-01-01.{kept.name.partition('.')[2]}"))
    assert kept_limits(MACHINE) is None
    keep_limits(MACHINE, LIMITS)
    assert [file.name for file in (tmp_path / "limits").iterdir()] == [kept.name]


def test_disturbed_limits_and_damaged_files_are_not_used(tmp_path: Path) -> None:
    keep_limits(MACHINE, replace(LIMITS, skipped={"launch": SHARED}))
    assert kept_limits(MACHINE) is None
    keep_limits(MACHINE, LIMITS)
    (kept,) = (tmp_path / "limits").iterdir()
    kept.write_text("{}")
    assert kept_limits(MACHINE) is None
