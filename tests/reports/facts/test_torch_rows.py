from __future__ import annotations

from typing import Any

import pytest

from ladder.records.torch_run import TorchCheck, TorchResults, failure_of, worst_of
from reports.facts.torch_rows import Programs, TorchRow, broken, live_ratio, ratio, torch_rows, torch_verdict
from tests.reports.torch_sample import (
    LESS_EXACT,
    LIMIT,
    STEPS_PER_EPOCH,
    a_process,
    a_rung,
    a_torch_run,
    with_rung,
    without_rungs,
)

RUN = a_torch_run()


def row_of(name: str, run: TorchResults = RUN) -> TorchRow:
    return next(row for row in torch_rows(run) if row.name == name)


def verdict_of(run: TorchResults) -> Any:
    verdict = torch_verdict(run)
    assert verdict is not None
    return verdict


def test_a_time_is_the_median_over_processes_and_its_range_that_of_runs() -> None:
    run = with_rung(RUN, "eager", processes=[a_process(2000, spread=1.9), a_process(2400, spread=1.1)])
    spread = row_of("eager", run).step_us
    assert spread is not None
    assert (spread.median, spread.min, spread.max) == pytest.approx((2200, 2000 / 1.9**0.5, 3800))


def test_a_speedup_ranges_as_runs_do_so_that_eager_mode_cannot_look_steady() -> None:
    gain = row_of("compiled-graph").versus_eager
    assert gain is not None
    assert not gain.is_noise
    assert gain.times == pytest.approx(26)
    assert gain.high / gain.low > 1.9


def test_a_speedup_within_noise_is_one_and_does_not_pay_off() -> None:
    row = row_of("no-item")
    assert row.versus_eager is not None
    assert row.versus_eager.is_noise
    assert row.pays_after is None


def test_a_slower_rung_keeps_its_row_and_never_pays_off() -> None:
    row = row_of("workers")
    assert row.versus_parent is not None
    assert row.versus_parent.times == pytest.approx(0.5, rel=0.02)
    assert row.pays_after is None


def test_a_rung_pays_off_once_the_time_that_it_saves_exceeds_its_preparation() -> None:
    row = row_of("compiled-graph")
    assert row.pays_after == pytest.approx((12.0 - 0.1) / (2613.0 - 100.5) * 1e6)
    assert row.pays_after_epochs == pytest.approx((row.pays_after or 0) / STEPS_PER_EPOCH)


@pytest.mark.parametrize(
    ("name", "regime"),
    [
        ("eager", "host"),
        ("compile", "host"),
        ("step-graph", "graph"),
        ("compiled-graph", "graph"),
        ("compiled-graph-without-step-graph", "host"),
        ("graphed-callables", "graph"),
    ],
)
def test_changes_say_what_launches_the_kernels(name: str, regime: str) -> None:
    assert row_of(name).regime == regime
    assert row_of(name, a_torch_run(environment={"cpu": {"model": "a CPU"}})).regime == "CPU"


def test_rungs_come_before_those_with_a_change_left_out_and_common_recipes() -> None:
    groups = [row.rung.group for row in torch_rows(a_torch_run(rungs=RUN.rungs[::-1]))]
    assert groups == sorted(groups, key=["ladder", "left out", "instead"].index)
    assert row_of("compiled-graph-without-step-graph").label == "without step-graph"


def test_the_worst_check_is_the_one_nearest_to_its_limit() -> None:
    near, far = TorchCheck("near", 3e-6, LIMIT, LESS_EXACT), TorchCheck("far", 4e-4, 1e-2, 1.0)
    assert row_of("eager", with_rung(RUN, "eager", checks=[far, near])).worst == near
    assert worst_of([near, far, endless := TorchCheck("not finite", None, 1.0, 1.0)]) == endless


def test_the_check_that_decides_is_of_parameters_where_they_are_as_wrong() -> None:
    loose, far = TorchCheck("losses after 4 steps", 5.0, 4.0, 1e3), TorchCheck("losses after 8 steps", 9e9, 4.0, 1e3)
    of_one = TorchCheck("parameters after 8 steps", 5300.0, 4.0, 1e3, "0.weight")
    assert worst_of([loose, far, of_one]) == of_one
    assert worst_of([loose, far, TorchCheck("parameters after 4 steps", 5.0, 4.0, 1e3)]) == far
    told = "parameters after 8 steps: 0.weight: 5,300 times eager's error, limit 4, wrong above 1,000"
    assert failure_of([loose, far, of_one]) == f"{told}; 2 more fail"
    counts, seeds = TorchCheck("step counts", None, 0.0, 0.0), TorchCheck("seeds", 0.0, 0.0, 0.0)
    assert failure_of([loose, seeds]) == "losses after 4 steps: 5, limit 4"
    assert failure_of([counts, loose]) == "step counts: not finite or not equal; 1 more fails"
    assert failure_of([seeds]) == ""


def test_broken_rungs_are_those_without_the_right_to_a_time() -> None:
    assert [row.name for row in broken(torch_rows(RUN))] == ["amp-bf16", "graph-channels-last", "graph-tf32"]


def test_a_rung_whose_preparation_takes_long_overtakes_a_quick_one_later() -> None:
    verdict = verdict_of(a_torch_run(epochs=20))
    assert verdict.chosen.name == "step-graph"
    after, other = verdict.overtaken
    assert other.name == "compiled-graph"
    whole = {
        row.name: row.first_step_s + after * STEPS_PER_EPOCH * row.rung.step_us / 1e6 for row in (verdict.chosen, other)
    }
    assert whole["step-graph"] == pytest.approx(whole["compiled-graph"])
    assert verdict_of(RUN).overtaken is None
    assert verdict_of(a_torch_run(epochs=1)).overtaken[1].name == "step-graph"  # before compiled-graph


def test_the_verdict_compares_whole_trainings_with_eager_mode_and_the_fused_optimizer() -> None:
    verdict = verdict_of(RUN)
    steps = 3000 * STEPS_PER_EPOCH
    own_s = 12.0 + steps * 100.5e-6
    assert verdict.chosen.name == "compiled-graph"
    assert verdict.versus_eager.times == pytest.approx((0.1 + steps * 2613e-6) / own_s)
    assert verdict.versus_fused.times == pytest.approx((0.1 + steps * 1005e-6) / own_s)
    assert not verdict.stays_eager


def test_fewer_epochs_take_a_rung_that_is_ready_sooner() -> None:
    chosen = [verdict.chosen.name for epochs in (1, 30, 3000) if (verdict := torch_verdict(a_torch_run(epochs=epochs)))]
    assert chosen == ["fused-optimizer", "step-graph", "compiled-graph"]


def test_a_gain_within_noise_is_no_reason_to_leave_eager_mode() -> None:
    verdict = verdict_of(a_torch_run(rungs=RUN.rungs[:2]))
    assert verdict.stays_eager
    faster = a_rung("no-item", "eager", 1300.0, changes=["eager", "no-item"])
    verdict = verdict_of(a_torch_run(rungs=[RUN.rungs[0], faster]))
    assert not verdict.stays_eager


def test_a_rung_that_is_faster_by_its_median_alone_is_not_recommended() -> None:
    rung = a_rung("no-item", "eager", 2000.0, changes=["eager", "no-item"])
    noisy = with_rung(
        a_torch_run(rungs=[RUN.rungs[0], rung]), "no-item", processes=[a_process(2300.0), a_process(2610.0)]
    )
    verdict = verdict_of(noisy)
    assert verdict.chosen.name == "no-item"
    assert verdict.stays_eager


def test_a_rung_that_has_paid_off_is_not_named_as_one_for_later() -> None:
    slow = [rung for rung in RUN.rungs if rung.name in ("eager", "compiled-graph")]
    verdict = torch_verdict(a_torch_run(epochs=48, rungs=slow))  # it pays off after 47.4, and saves less than 5 %
    assert verdict is not None
    assert verdict.stays_eager
    assert verdict.later is None


def test_a_verdict_that_stays_in_eager_mode_names_the_rung_that_pays_off_first() -> None:
    slow = [rung for rung in RUN.rungs if rung.name in ("eager", "compile", "compiled-graph")]
    verdict = verdict_of(a_torch_run(epochs=1, rungs=slow))
    assert verdict.stays_eager
    assert verdict.later.name == "compiled-graph"


def test_a_less_exact_rung_is_named_only_where_it_is_faster_beyond_noise() -> None:
    verdict = verdict_of(RUN)
    assert verdict.in_any_precision.name == "graph-bf16"
    alike = with_rung(RUN, "graph-bf16", processes=[a_process(step_us, 12.0) for step_us in (100.0, 100.4)])
    verdict = verdict_of(alike)
    assert verdict.in_any_precision is None


def test_a_change_costs_what_leaving_it_out_costs_and_noise_is_marked() -> None:
    verdict = verdict_of(RUN)
    costs = {change.name: change.costs for change in verdict.changes}
    assert costs["no-item"] is None
    assert not any(change.is_noise for change in verdict.changes)
    steps = 3000 * STEPS_PER_EPOCH
    whole = (12.0 + steps * 130.65e-6) / (12.0 + steps * 100.5e-6)
    assert costs["fused-optimizer"] == pytest.approx(whole)
    processes = [a_process(100.2, 12.0), a_process(125.0, 12.0)]
    verdict = verdict_of(with_rung(RUN, "compiled-graph-without-fused-optimizer", processes=processes))
    assert [change.is_noise for change in verdict.changes if change.name == "fused-optimizer"] == [True]


def test_a_change_that_the_recipe_was_not_timed_without_costs_what_it_does_in_the_fastest_rung() -> None:
    run = with_rung(RUN, "compiled-graph-without-fused-optimizer", processes=[a_process(101.0, 12.0)] * 2)
    verdict = verdict_of(run)
    assert verdict.chosen.name == "compiled-graph-without-fused-optimizer"
    of_graph = next(change for change in verdict.changes if change.name == "step-graph")
    steps = 3000 * STEPS_PER_EPOCH
    assert of_graph.whole == "compiled-graph"
    assert of_graph.costs == pytest.approx((20.0 + steps * 653.25e-6) / (12.0 + steps * 100.5e-6))


def test_a_run_without_times_has_no_verdict() -> None:
    assert torch_verdict(a_torch_run(rungs=[])) is None
    assert torch_verdict(without_rungs(RUN, "eager")) is not None


def test_a_ratio_needs_two_times() -> None:
    refused = RUN.rung("amp-bf16")
    eager = RUN.rung("eager")
    assert refused is not None
    assert eager is not None
    assert ratio(eager, refused, RUN) is None
    assert ratio(None, eager, RUN) is None
    assert live_ratio(eager, eager).is_noise


def test_the_lines_to_write_are_those_that_the_difference_adds() -> None:
    programs = Programs("a\nb\nc\n", "a\n++x\ny\nc\n")
    assert programs.added == 2
    assert "-b" in programs.diff
