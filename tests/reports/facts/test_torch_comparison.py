from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.torch_run import TorchResults
from reports.facts.torch_comparison import compare_torch_runs
from reports.facts.two_runs import CannotCompareError, Comparison, StageVerdict
from tests.reports.torch_sample import a_process, a_torch_run, with_rung, without_rungs

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
