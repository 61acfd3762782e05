"""The roofline: where its dots and roofs stand, and that no words cover each other."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ladder.records.limits_record import DesignFloor, StepBounds
from ladder.records.run import Results
from reports.figures.roofline import Roof, RooflinePoint, drawn, headline, points
from tests.reports import sample
from tests.reports.figures.svg import words


def with_roofs() -> Results:
    """The sample with limits of 100 TFLOP/s, 10 TB/s to L2 and 5 TB/s to memory; `naive` runs at 10 TFLOP/s."""
    run = sample.results()
    assert run.limits is not None
    rates = (("gemm_float32", "TFLOP/s", 100), ("l2_read", "GB/s", 10_000), ("memory_copy", "GB/s", 5_000))
    first, *_ = run.limits.limits
    limits = [
        msgspec.structs.replace(first, name=name, unit=unit, min=rate, median=rate, max=rate)
        for name, unit, rate in rates
    ]
    run = msgspec.structs.replace(run, limits=msgspec.structs.replace(run.limits, limits=limits))
    for name, byte_count in (("naive", 1e9), ("async", 1e7)):
        (stage,) = (stage for stage in run.stages if stage.name == name)
        assert stage.timing is not None
        design = DesignFloor(1.0, 1.0, 0.0, 0.0, 1e7 * stage.timing.step_us, byte_count, "float32")
        run = sample.replace_stage(run, name, bounds=StepBounds(0.5, design))
    return run


def test_a_point_is_the_products_by_time_and_by_bytes() -> None:
    found = {point.stage.name: point for point in points(with_roofs())}
    assert list(found) == ["naive", "async"]
    assert found["naive"].rate == found["async"].rate == pytest.approx(10.0)
    flops = 1e7 * sample_step_us("naive")
    assert found["naive"].intensity == pytest.approx(flops / 1e9)


def sample_step_us(name: str) -> float:
    """Microseconds per step of a stage of the sample."""
    (stage,) = (stage for stage in sample.results().stages if stage.name == name)
    assert stage.timing is not None
    return stage.timing.step_us


def test_the_roof_is_the_path_until_the_unit_is_reached() -> None:
    roof = Roof({"float32": 50.0, "bfloat16": 100.0, "float16": 90.0}, {"L2": 10.0, "memory": 5.0})
    stage = points(with_roofs())[0].stage
    assert [roof.over(RooflinePoint(stage, at, 1.0)) for at in (1, 100)] == [("L2", 10), ("bfloat16", 100)]
    half = msgspec.structs.replace(stage, precision="float16")  # under its own unit, not the fastest
    assert roof.over(RooflinePoint(half, 100, 1.0)) == ("float16", 90)


def test_the_headline_names_the_roof_above_the_fastest() -> None:
    run = with_roofs()
    assert run.limits is not None
    found = [point for point in points(run) if point.stage.name == "async"]
    (own,) = found
    free = msgspec.structs.replace(own.stage, bounds=StepBounds(0.5, None))
    roof = Roof.of(run.limits)
    assert headline(replace(own, stage=free), roof) == "async: 10 TFLOP/s, 10% of what float32 allows"
    # A floor of 20 us in 42.7, most of it launches, is a lower roof than the chip's.
    design = DesignFloor(20.0, 1.0, 0.0, 0.0, 1e7 * sample_step_us("async"), 1e7, "float32")
    waiting = replace(own, stage=msgspec.structs.replace(own.stage, bounds=StepBounds(0.5, design)))
    assert (
        headline(waiting, roof) == "async: 10 TFLOP/s; its design's floor is 20.0 of its 42.7 us (47%), mostly launches"
    )
    assert headline(points(run)[0], Roof.of(run.limits)) in words(drawn(run).svg())
