from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.run import Results, Timing
from reports.facts.stage_facts import StageFacts, all_stage_facts
from tests.reports import sample


def row(run: Results, name: str) -> StageFacts:
    return next(row for row in all_stage_facts(run) if row.name == name)


def without(run: Results, name: str) -> Results:
    return replace(run, stages=[stage for stage in run.stages if stage.name != name])


def test_ratios_are_above_one_for_faster_rows() -> None:
    run = sample.results()
    fast = row(run, "async")  # 20 ms, naive 40 ms, JAX 25 ms
    assert fast.versus_parent is not None
    assert fast.versus_parent.times == pytest.approx(2.0)
    assert fast.versus_naive == pytest.approx(2.0)
    assert fast.lead is not None
    assert fast.lead.reference.name == "jax-scan"
    assert fast.lead.ratio.times == pytest.approx(0.025 / 0.02)
    assert row(run, "torch-eager").versus_naive == pytest.approx(0.2)
    assert row(run, "naive").versus_parent is None
    assert row(without(run, "naive"), "async").versus_parent is None
    failed = row(sample.replace_stage(run, "naive", status="failed", reason="first update", metrics=None), "async")
    assert (failed.versus_parent, failed.versus_naive) == (None, None)
    assert failed.lead is not None


def processes_of(run: Results, name: str, *steps_us: float) -> Results:
    """The run with processes of these times of a step, and their median."""
    run = sample.with_processes(run, name, list(steps_us))
    shown = next(stage for stage in run.stages if stage.name == name)
    assert shown.timing is not None
    timing = Timing.of(
        shown.processes, epochs=shown.timing.epochs, steps_per_epoch=shown.timing.steps_per_epoch, shortened=False
    )
    return sample.replace_stage(run, name, timing=timing)


def test_one_process_of_a_rung_that_the_host_launches_shows_no_small_effect() -> None:
    run = processes_of(processes_of(sample.results(), "naive", 80.0), "async", 64.0)
    shown = row(run, "async").versus_parent
    assert shown is not None
    assert shown.is_noise
    assert shown.text == "1.25x, within noise"
    shown = row(processes_of(run, "async", 32.0), "async").versus_parent
    assert shown is not None
    assert not shown.is_noise


@pytest.mark.parametrize("status", ["failed", "crashed", "skipped"])
def test_a_row_that_did_not_pass_gets_no_time(status: str) -> None:
    shown = row(sample.replace_stage(sample.results(), "async", status=status, reason="because\nof this"), "async")
    assert (shown.epoch_s, shown.step_us, shown.prepare_s, shown.gpu_memory_mib) == (None, None, None, None)
    assert (shown.launches_per_step, shown.times_floor, shown.times_cheat_limit) == (None, None, None)
    assert (shown.versus_parent, shown.versus_naive, shown.lead) == (None, None, None)
    assert shown.verdict == f"{status}: because of this"
