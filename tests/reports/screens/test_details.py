"""The tables of a run's details, columns, parts of a step, changes, limitsand machine."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from ladder.records.run import OracleRecord, Results
from reports.screens.blocks import Heading
from reports.screens.details import all_columns, details
from tests.reports import sample
from tests.reports.reporting import rows_of, table_below


def rows(run: Results, title: str) -> list[dict[str, str]]:
    return rows_of(table_below(details(run), title))


def titles(run: Results) -> list[str]:
    return [block.text for block in details(run) if isinstance(block, Heading)]


def row(found: list[dict[str, str]], name: str) -> dict[str, str]:
    return next(row for row in found if next(iter(row.values())) == name)


def test_every_column_of_a_stage_has_its_number_or_a_dash() -> None:
    found = rows_of(all_columns(sample.replace_stage(sample.results(), "async", precision="tf32")))
    cublas, numpy = row(found, "cublas"), row(found, "numpy")
    assert (cublas["Precision"], cublas["Launches/step"], cublas["GPU memory"]) == ("float32", "0.002", "710 MiB")
    assert (numpy["Launches/step"], numpy["GPU memory"]) == ("-", "-")
    assert row(found, "torch-amp")["Prepare"] == "125 s"
    assert (row(found, "async")["Precision"], row(found, "async")["x of from"]) == ("tf32", "2.00x (1.98-2.10)")
    assert row(found, "async")["x of the fastest reference"] == "1.25x, within noise"
    assert (numpy["Test accuracy"], cublas["Test accuracy"]) == ("97.62% (3 epochs)", "97.62%")


def test_cycles_need_a_clock_and_floors_need_limits() -> None:
    assert {"Cycles/step", "x floor"} <= set(rows_of(all_columns(sample.results()))[0])
    run = replace(sample.results(), limits=None)
    for stage in run.stages:
        processes = [replace(process, gpu_states=[]) for process in stage.processes]
        run = sample.replace_stage(run, stage.name, processes=processes, bounds=None)
    assert not {"Cycles/step", "x floor"} & set(rows_of(all_columns(run))[0])
    assert "ycles" not in all_columns(run).note([])


def test_the_parts_of_every_profiled_step_add_up() -> None:
    found = [list(row.values()) for row in rows(sample.results(), "Where a step's time goes")]
    assert found[0] == ["naive", "38.0", "1.0", "6.0", "20.0", "20.0", "85.0", "85.5", "+10%"]
    assert len(found) == 6
    for line in found:
        assert sum(map(float, line[1:6])) == pytest.approx(float(line[6]))


def test_scaled_down_work_shows_the_seen_time() -> None:
    naive = next(stage for stage in sample.results().stages if stage.name == "naive")
    profiles = [replace(one, seen=replace(one.seen, kernels_us=40.0)) for one in naive.profiles]
    found = rows(sample.replace_stage(sample.results(), "naive", profiles=profiles), "Where")
    assert found[0]["Kernels"] == "38.0 (seen 40.0)"


def test_every_change_has_its_parts_a_rest_and_what_the_profiles_saw() -> None:
    run = sample.results()
    table = table_below(details(run), "What each rung changed")
    rung, parent, timed, *parts, seen = rows_of(table)[0].values()
    assert (rung, parent, timed, seen) == ("async", "naive", "-42.7", "109%")
    assert sum(map(float, filter(None, parts))) == pytest.approx(-42.7, abs=0.3)  # as rounded
    assert "Of 3 differences, the profiles saw 0 to within 5% of the timed difference, but not async" in table.note([])
    naive = next(stage for stage in run.stages if stage.name == "naive")
    table = table_below(details(sample.replace_stage(run, "async", timing=naive.timing)), "What each rung changed")
    assert rows_of(table)[0]["Seen"] == "within noise"
    assert "1 of 3 differences is within the noise. Of the other 2, " in table.note([])


def test_a_run_without_profiles_says_nothing_of_them() -> None:
    assert not {"Where a step's time goes", "What each rung changed"} & set(titles(sample.unprofiled_results()))
    run = sample.results()
    for name in ("async", "bf16-gemm"):
        run = sample.replace_stage(run, name, profiles=[])
    assert "Where a step's time goes" in titles(run)
    assert "What each rung changed" not in titles(run)


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"gpu": "H200"}, ("gpu", "H200")),
        ({"gpu": {"driver_version": 580}}, ("gpu driver version", "580")),
        ({"gpu": None}, ("gpu", "-")),
        ({"ok": False}, ("ok", "False")),
        ({"cpus": ["a", "b"]}, ("cpus", "a, b")),
    ],
)
def test_the_environment_may_be_flat_or_nested(environment: dict[str, object], line: tuple[str, str]) -> None:
    found = rows(replace(sample.results(), environment=environment), "Problem")
    assert line in [tuple(row.values()) for row in found]


@pytest.mark.parametrize(
    ("device", "not_on_gpu", "told"),
    [
        ("gpu", "", "the GPU"),
        ("gpu", "no room", "the GPU, not all on a GPU: no room"),
        ("cpu", "no CUDA device", "the CPU, not on a GPU: no CUDA device"),
    ],
)
def test_the_oracle_s_device_is_told(device: Literal["cpu", "gpu"], not_on_gpu: str, told: str) -> None:
    run = sample.results()
    assert "Oracle trained on" not in [row["Item"] for row in rows(run, "Problem")]  # recorded before its device
    oracle = OracleRecord(0.9, [], None, device, not_on_gpu)
    assert row(rows(replace(run, oracle=oracle), "Problem"), "Oracle trained on")["Value"] == told


def test_the_parts_of_a_run_s_time_come_longest_first() -> None:
    took_s = {"checking": 0.4, "compiling": 20.0, "stages' processes": 61.0}
    found = rows(replace(sample.results(), seconds=100.0, took_s=took_s), "Problem")
    assert row(found, "Recorded")["Value"].endswith("compiled stages (stages' processes 61, compiling 20)")
