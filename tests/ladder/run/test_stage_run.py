"""A row takes in what profilers and floors say of it."""

from __future__ import annotations

import pytest

from ladder.measure.protocol import JobResult
from ladder.measure.timing import Plan
from ladder.records.limits import Floor
from ladder.records.profile import Split, Tool
from ladder.records.run import Process
from ladder.run.stage_run import StageRun
from ladder.verify.gates import check
from stages.registry import load_entry
from tests.ladder.harness import NUMPY
from tests.reports.profiles import own_kernels, profile

STEPS = 100


@pytest.fixture
def row() -> StageRun:
    """A stage that passed on the GPU, with 10 us a step."""
    measured = StageRun(load_entry(NUMPY), STEPS)
    process = Process(0, 0.1, [], [2 * STEPS * 10e-6], None, [])
    report = JobResult(device="gpu", plan=Plan(2, 1, 0), process=process)
    measured.add(report, [check("first update", 0.0, 1.0)], 0.9, shortened=False)
    return measured


def test_a_profile_takes_the_place_of_the_reason_why_there_was_none(row: StageRun) -> None:
    row.not_watched("nsys", "not found")
    assert row.wants_watching("nsys")
    assert row.result().unprofiled == {"nsys": "not found"}
    row.watched(profile(Split(5, 0, 1, 3, 1), own_kernels(), tool="nsys"))
    assert not row.wants_watching("nsys")
    assert row.result().unprofiled == {}
    assert [seen.tool for seen in row.result().profiles] == ["nsys"]


def test_cupti_is_shown_before_nsys_and_nsys_where_it_is_alone(row: StageRun) -> None:
    shown = []
    tools: tuple[Tool, ...] = ("nsys", "cupti")
    for tool in tools:
        row.watched(profile(Split(5, 0, 1, 3, 1), own_kernels(), tool=tool))
        shown.append(row.profile.tool if row.profile else None)
    assert shown == ["nsys", "cupti"]


@pytest.mark.parametrize(("physical_us", "status"), [(9.0, "passed"), (11.0, "failed")])
def test_a_time_below_the_physical_floor_fails_the_row(row: StageRun, physical_us: float, status: str) -> None:
    row.judge_speed(Floor(physical_us, None))
    result = row.result()
    assert result.status == status
    assert (result.timing is None) == (status == "failed")
    assert (result.reason or "").startswith("" if status == "passed" else "physical floor")
    assert result.floor == Floor(physical_us, None)
