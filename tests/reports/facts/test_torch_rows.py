"""The rows of a ladder over one's own model, and the comparison of two such runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ladder.records.torch_run import TorchCheck, TorchResults, failure_of, worst_of
from reports.facts.torch_comparison import compare_torch_runs
from reports.facts.torch_rows import TorchRow, live_ratio, torch_rows, torch_verdict
from reports.facts.two_runs import CannotCompareError, Comparison, StageVerdict
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


def test_the_worst_check_is_the_one_nearest_to_its_limit() -> None:
    near, far = TorchCheck("near", 3e-6, LIMIT, LESS_EXACT), TorchCheck("far", 4e-4, 1e-2, 1.0)
    assert row_of("eager", with_rung(RUN, "eager", checks=[far, near])).worst == near
    assert worst_of([near, far, endless := TorchCheck("not finite", None, 1.0, 1.0)]) == endless
    assert worst_of([TorchCheck("wrong", 9.0, 1.0, 1.0), endless]) == endless
    equal, unequal = (TorchCheck("seeds", error, 0.0, 0.0) for error in (0.0, 1.0))
    assert worst_of([equal, near]) == near
    assert worst_of([TorchCheck("wrong", 9.0, 1.0, 1.0), unequal]) == unequal


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


def test_a_change_left_out_costs_what_it_does_with_caches_as_cold() -> None:
    steps, name = 10 * STEPS_PER_EPOCH, "step-graph-without-resident"  # it ran later, and found warm caches
    changes = ["eager", "no-item", "fused-optimizer", "step-graph"]
    warm = a_rung(name, "step-graph", 300.0, first_step_s=0.01, group="left out", changes=changes)
    run = a_torch_run(epochs=10)
    verdict = verdict_of(replace(run, rungs=[*run.rungs, warm]))
    change = next(change for change in verdict.changes if change.name == "resident")
    assert change.costs == pytest.approx((0.5 + steps * 301.5e-6) / (0.5 + steps * 201e-6))
    assert row_of(name, replace(run, rungs=[*run.rungs, warm])).first_step_s == 0.5
    slow = replace(warm, processes=[a_process(300.0, 0.7)])
    assert row_of(name, replace(run, rungs=[*run.rungs, slow])).first_step_s == 0.7


def test_the_verdict_compares_whole_trainings_with_eager_mode_and_the_fused_optimizer() -> None:
    verdict = verdict_of(RUN)
    steps = 3000 * STEPS_PER_EPOCH
    own_s = 12.0 + steps * 100.5e-6
    assert verdict.chosen.name == "compiled-graph"
    assert verdict.versus_eager.times == pytest.approx((0.1 + steps * 2613e-6) / own_s)
    assert verdict.versus_fused.times == pytest.approx((0.1 + steps * 1005e-6) / own_s)
    assert not verdict.stays_eager


@pytest.mark.parametrize(("spread", "is_noise"), [(1.02, False), (1.3, False), (4.0, True)])
def test_a_gain_is_noise_where_the_runs_of_a_process_scatter_as_far(spread: float, *, is_noise: bool) -> None:
    on_cpu = a_torch_run(environment={"cpu": {"model": "a CPU"}})
    slow = with_rung(on_cpu, "eager", processes=[a_process(238_000.0, spread=spread)])
    ratio = row_of("resident", with_rung(slow, "resident", processes=[a_process(56_000.0)])).versus_eager
    assert ratio is not None
    assert ratio.times == pytest.approx(4.25)
    assert ratio.is_noise is is_noise


@pytest.mark.parametrize("calm", [0, 1])
def test_a_gain_on_a_cpu_is_noise_where_other_work_disturbed_all_processes(calm: int) -> None:
    """Threads wait for the one without a core: the same rung took 231 ms a step, and 8.6 ms a moment before."""
    busy, eager = a_process(231_688.0), [a_process(231_688.0)] * calm
    busy = replace(busy, measured=replace(busy.measured, disturbed=["other processes kept cores busy"]))
    run = with_rung(a_torch_run(environment={"cpu": {"model": "a CPU"}}), "eager", processes=[*eager, busy])
    base, own = run.rungs[0], a_rung("resident", "eager", None, processes=[a_process(20_315.0)])
    assert live_ratio(base, own).is_noise is not bool(calm)
    ratio = row_of("resident", with_rung(run, "resident", processes=own.processes)).versus_eager
    assert ratio is not None
    assert ratio.is_noise is not bool(calm)


def test_a_rung_that_is_faster_by_its_median_alone_is_not_recommended() -> None:
    rung = a_rung("no-item", "eager", 2000.0, changes=["eager", "no-item"])
    noisy = with_rung(
        a_torch_run(rungs=[RUN.rungs[0], rung]), "no-item", processes=[a_process(2300.0), a_process(2610.0)]
    )
    verdict = verdict_of(noisy)
    assert verdict.chosen.name == "no-item"
    assert verdict.stays_eager


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


BASE = a_torch_run()
NAMES = ("runs/a", "runs/b")


def timed(step_us: float, processes: int = 8) -> TorchResults:
    steps = [step_us * (1 + number * 1e-4) for number in range(processes)]
    return with_rung(BASE, "step-graph", processes=[a_process(value) for value in steps])


def compared(base: TorchResults, new: TorchResults, **options: bool) -> tuple[Comparison, StageVerdict]:
    comparison = compare_torch_runs(base, new, NAMES, **options)
    return comparison, next(rung for rung in comparison.stages if rung.name == "step-graph")


@pytest.mark.parametrize(
    ("new_us", "verdict", "code"), [(200.0, "SAME", 0), (150.0, "FASTER", 0), (260.0, "SLOWER", 1)]
)
def test_a_verdict_follows_from_the_interval_of_the_ratio(new_us: float, verdict: str, code: int) -> None:
    comparison, rung = compared(timed(200.0), timed(new_us))
    assert rung.verdict == verdict
    assert rung.ratio == pytest.approx(new_us / 200.0)
    assert comparison.exit_code == code


def test_few_processes_leave_a_small_difference_undecided() -> None:
    base, new = timed(200.0, 2), timed(204.0, 2)
    comparison, rung = compared(base, new)
    assert rung.words == "SAME within 5.8%"
    assert comparison.exit_code == 0
    assert compared(base, new, strict=True)[0].exit_code == 2


def test_a_rung_that_is_no_longer_right_is_a_regression() -> None:
    comparison, rung = compared(BASE, with_rung(BASE, "step-graph", status="wrong"))
    assert rung.regression
    assert comparison.exit_code == 1
    assert rung.remarks == ["passed in the first run, wrong in the new run"]
    comparison, rung = compared(BASE, without_rungs(BASE, "step-graph"))
    assert not rung.regression
    assert (comparison.exit_code, comparison.lost) == (0, ["step-graph"])
    assert compared(BASE, without_rungs(BASE, "step-graph"), strict=True)[0].exit_code == 2


def test_other_work_is_not_compared_and_other_circumstances_are_named() -> None:
    with pytest.raises(CannotCompareError, match="batch size 128 and 64"):
        compare_torch_runs(BASE, a_torch_run(batch_size=64), NAMES)
    with pytest.raises(CannotCompareError, match="no rung was timed in both"):
        compare_torch_runs(BASE, a_torch_run(rungs=BASE.rungs[5:6]), NAMES)
    other = replace(BASE, environment={**BASE.environment, "gpu": {"name": "NVIDIA H100"}})
    comparison = compare_torch_runs(BASE, other, NAMES)
    assert [warning.split()[1] for warning in comparison.warnings] == ["machine"]


def test_a_change_left_out_is_not_compared() -> None:
    names = [rung.name for rung in compare_torch_runs(BASE, BASE, NAMES).stages]
    assert names == [rung.name for rung in BASE.rungs if rung.group != "left out"]
