"""The state of a stage takes in profiles and floors."""

from __future__ import annotations

import pytest

from ladder.measure.protocol import JobResult
from ladder.measure.timing import Plan
from ladder.records.limits import StepBounds
from ladder.records.profile import Split, Tool
from ladder.records.run import Process
from ladder.run.stage_run import StageRun
from ladder.verify.gates import check
from stages.registry import load_entry
from tests.ladder.harness import NUMPY
from tests.reports.profiles import own_kernels, profile

STEPS = 100


@pytest.fixture
def stage_run() -> StageRun:
    """A stage that passed on the GPU with 10 us per step."""
    measured = StageRun(load_entry(NUMPY), STEPS)
    process = Process(0, 0.1, [], [2 * STEPS * 10e-6], None, [])
    result = JobResult(device="gpu", plan=Plan(2, 1, 0), process=process)
    measured.add_process(result, [check("first update", 0.0, 1.0)], 0.9, shortened=False)
    return measured


def test_a_profile_replaces_the_reason_why_there_was_none(stage_run: StageRun) -> None:
    stage_run.set_unprofiled("nsys", "not found")
    assert stage_run.needs_profile("nsys")
    assert stage_run.result().unprofiled == {"nsys": "not found"}
    stage_run.add_profile(profile(Split(5, 0, 1, 3, 1), own_kernels(), tool="nsys"))
    assert not stage_run.needs_profile("nsys")
    assert stage_run.result().unprofiled == {}
    assert [seen.tool for seen in stage_run.result().profiles] == ["nsys"]


def test_cuptis_profile_is_shown_before_nsyss(stage_run: StageRun) -> None:
    shown = []
    tools: tuple[Tool, ...] = ("nsys", "cupti")
    for tool in tools:
        stage_run.add_profile(profile(Split(5, 0, 1, 3, 1), own_kernels(), tool=tool))
        shown.append(stage_run.profile.tool if stage_run.profile else None)
    assert shown == ["nsys", "cupti"]


@pytest.mark.parametrize(("cheat_limit_us", "status"), [(9.0, "passed"), (11.0, "failed")])
def test_a_time_below_the_cheat_limit_fails_the_stage(stage_run: StageRun, cheat_limit_us: float, status: str) -> None:
    stage_run.check_speed(StepBounds(cheat_limit_us, None))
    result = stage_run.result()
    assert result.status == status
    assert (result.timing is None) == (status == "failed")
    assert (result.reason or "").startswith("" if status == "passed" else "cheat limit")
    assert result.bounds == StepBounds(cheat_limit_us, None)
