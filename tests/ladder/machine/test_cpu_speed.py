"""The CPU speed probe, its median, and when a stage's process reads it; names of processors, from made-up files."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import pytest

from ladder.machine import environment
from ladder.machine.cpu_speed import CpuSpeedProbe, Paces, pace_of
from ladder.measure import measurement
from ladder.records.run import HostState
from ladder.run import session
from tests.ladder.harness import NUMPY, Watcher, prepare
from tests.ladder.in_process import BenchHere, judge_in_this_process


def test_a_reading_is_the_median_of_the_products_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = CpuSpeedProbe(2)
    one_s, all_s = probe.read()
    assert 0 < one_s < 10
    assert 0 < all_s < 10
    monkeypatch.setattr("ladder.machine.cpu_speed.READING_S", 0.0)
    took = iter([9.0, 2.0, 9.0, 1.0])  # the first of each wakes the threads
    monkeypatch.setattr(probe, "_product_s", lambda: next(took))
    assert probe.read() == (2.0, 1.0)

    now = iter(range(10))
    monkeypatch.setattr("ladder.machine.cpu_speed.READING_S", 4.5)
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    took = iter([9.0, 7.0, 1.0, 1.0, 3.0, 3.0])
    probe.cores = 1
    assert probe.read() == (3.0, 3.0)


@pytest.mark.parametrize(("own_s", "pace"), [(0.99, (1.0, 1)), (1.4, (1.0, 1)), (1.6, (5.0, 4)), (3.9, (5.0, 4))])
def test_the_pace_is_of_the_cores_that_the_stage_keeps_busy(own_s: float, pace: tuple[float, int]) -> None:
    readings = [Paces(1.2, 5.0), Paces(1.0, 6.0)]
    states = [HostState(0.0, 0.0, over_s=2.0, own_s=2 * own_s, cores=4)]
    assert pace_of(readings, states, 4) == pace
    assert pace_of(readings, [], 4) == (5.0, 4)  # a system without accounting
    assert pace_of(readings[:1], states, 4) == (None, 0)


@pytest.mark.parametrize("readings", [(2.0, 1.0), (1.0, 2.0)])
def test_the_faster_reading_of_before_imports_and_after_runs_counts(
    readings: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_this_process(monkeypatch)
    monkeypatch.setattr(session, "Bench", BenchHere)
    values, order = iter(Paces(2 * one_s, one_s) for one_s in readings), []

    def read(self: CpuSpeedProbe) -> Paces:
        order.append("probe")
        return next(values)

    def noted(name: str) -> None:
        done = getattr(measurement, name)

        def note(*args: Any, **options: Any) -> Any:
            order.append(name)
            return done(*args, **options)

        monkeypatch.setattr(measurement, name, note)

    monkeypatch.setattr(CpuSpeedProbe, "read", read)
    for name in ("import_packages", "timed_run", "measure"):
        noted(name)
    (stage,) = prepare(tmp_path, NUMPY, threads=None, rounds=1).run(Watcher()).stages
    (process,) = stage.processes
    assert process.pace_s == (2.0 if process.pace_cores == 1 else 1.0)
    assert order[:2] == ["probe", "import_packages"]
    assert order[order.index("measure") :][:2] == ["measure", "probe"]
    assert order.count("probe") == 2


@pytest.mark.parametrize(
    ("cpuinfo", "told", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9B14\nflags\t: avx2\n", "", "AMD EPYC 9B14"),
        ("CPU part\t: 0xd4f\n", "Vendor ID:      ARM\n  Model name:   Neoverse-V2\n", "ARM Neoverse-V2"),  # Grace
        (
            "",  # DGX Spark
            "Vendor ID: ARM\n  Model name: Cortex-X925\n    Model: 1\n  Model name: Cortex-A725\n",
            "ARM Cortex-X925 + ARM Cortex-A725",
        ),
    ],
)
def test_a_processor_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpuinfo: str, told: str, name: str
) -> None:
    for file, text in {"cpuinfo": cpuinfo, "told": told, "lscpu": f"#!/bin/sh\ncat {tmp_path}/told\n"}.items():
        (tmp_path / file).write_text(text)
    (tmp_path / "lscpu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert environment.cpu_name(tmp_path / "cpuinfo") == name


def test_without_names_python_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without lscpu
    monkeypatch.setattr(platform, "processor", lambda: "riscv64")
    assert environment.cpu_name(tmp_path / "absent") == "riscv64"
    monkeypatch.setattr(platform, "processor", str)
    assert environment.cpu_name(tmp_path / "absent") == "unknown"
