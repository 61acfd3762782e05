"""Verdicts on runs whose differences are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from msgspec.structs import replace

from ladder.records.run import Results, StageCode
from ladder.records.statistics import Interval
from reports.facts.two_runs import (
    CannotCompareError,
    Comparison,
    StageVerdict,
    Verdict,
    compare,
    in_words,
    side_of,
    verdict_of,
)
from tests.reports import sample
from tests.reports.recorded import run, stage, times

NAMES = ("a", "b")


def verdict(found: Comparison, name: str) -> StageVerdict:
    return next(one for one in found.stages if one.name == name)


def only(base: list[float], new: list[float], **options: object) -> Comparison:
    """Two runs of one stage."""
    return compare(run(stage("naive", base)), run(stage("naive", new)), NAMES, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict"),
    [
        (0.99, 1.0, 1.01, "SAME"),
        (1 / 1.02, 1.0, 1.02, "SAME"),
        (1 / 1.1, 1.0, 1.1, "SAME"),
        (1 / 1.1001, 1.0, 1.01, "AMBIGUOUS"),
        (0.99, 1.0, 1.1001, "AMBIGUOUS"),
        (1.001, 1.0051, 1.01, "SLOWER"),
        (1.001, 1.0049, 1.01, "SAME"),  # certain, but within what two recordings may differ by
        (1.001, 1.0049, 1.12, "AMBIGUOUS"),
        (0.999, 1.02, 1.05, "SAME"),
        (1.0, 1.02, 1.12, "AMBIGUOUS"),
        (1.2, 1.3, 1.4, "SLOWER"),
        (0.7, 0.8, 0.9, "FASTER"),
        (0.99, 1 / 1.0051, 0.999, "FASTER"),
        (0.99, 1 / 1.0049, 0.999, "SAME"),
        (0.7, 0.9, 1.001, "AMBIGUOUS"),
    ],
)
def test_the_boundaries_of_verdicts(low: float, value: float, high: float, verdict: Verdict) -> None:
    assert verdict_of(Interval(value, low, high)) == verdict
    assert verdict_of(Interval(1.0, 0.87, 1.15), 0.15) == "SAME"


def test_the_same_names_how_far_its_interval_reaches() -> None:
    found = verdict(only(times(50.0), times(50.0)), "naive")
    assert found.words == "SAME within 0.3%"
    assert in_words("SAME", 1 / 1.0312, 1.02) == "SAME within 3.2%"  # rounded up
    assert in_words("SAME", 0.99, 1.02) == "SAME within 2.0%"
    assert (in_words("FASTER", 0.8, 0.9), in_words(None, None, None)) == ("FASTER", "")


def test_two_processes_show_that_a_rung_paced_by_the_gpu_is_the_same() -> None:
    base, new = (run(replace(stage("cuda-graph", times(us, processes=2)), regime="graph")) for us in (18.0, 18.1))
    found = compare(base, new, NAMES)
    assert verdict(found, "cuda-graph").verdict == "SAME"
    assert found.undecided == ["cuda-graph"]  # a regression of 2 % is not ruled out
    assert compare(base, new, NAMES, strict=True).exit_code == 2
    assert compare(base, new, NAMES, threshold=0.05, strict=True).exit_code == 0
    by_host, new_by_host = (run(replace(one.stages[0], regime="host")) for one in (base, new))
    assert verdict(compare(by_host, new_by_host, NAMES), "cuda-graph").verdict == "AMBIGUOUS"


def test_a_run_has_no_verdict_against_itself() -> None:
    one = run(stage("naive", times(50.0, scatter=0.3)))
    found = compare(one, one, NAMES, strict=True)
    assert (found.same_run, found.exit_code, found.stages) == (True, 0, [])
    longer = sample.replace_stage(one, "naive", processes=one.stages[0].processes[:-1])  # resumed since
    assert not compare(longer, one, NAMES).same_run


def on_cpu(step_us: float, *paces_s: float | None, cpu: str = "a CPU") -> Results:
    """Twelve processes of NumPy, with these CPU speed readings in turn."""
    numpy = stage("numpy", times(step_us), group="reference")
    processes = [
        replace(process, pace_s=pace_s)
        for process, pace_s in zip(numpy.processes, itertools.cycle(paces_s), strict=False)
    ]
    results = run(replace(numpy, processes=processes))
    return replace(results, environment={**results.environment, "cpu": {"model": cpu}})


@pytest.mark.parametrize(
    ("step_us", "pace_s", "expected", "alone"),
    [
        (130.0, 1.3, "AMBIGUOUS", "SLOWER"),
        (109.0, 1.09, "SAME", "SLOWER"),
        (100.0, 1.3, "AMBIGUOUS", "SAME"),
        (77.0, 1 / 1.3, "AMBIGUOUS", "FASTER"),
        (150.0, 1.3, "SLOWER", "SLOWER"),
        (130.0, 1.0, "SLOWER", "SLOWER"),
        (100.0, 1.0, "SAME", "SAME"),
        (130.0, None, "SLOWER", "SLOWER"),
    ],
)
def test_a_difference_that_the_cpu_speed_explains_is_none(
    step_us: float, pace_s: float | None, expected: Verdict, alone: Verdict
) -> None:
    found = verdict(compare(on_cpu(100.0, 1.0), on_cpu(step_us, pace_s), NAMES), "numpy")
    remarks = [f"{alone} by its times alone, which the host's CPU speed may explain"] if expected != alone else []
    remarks += ["only one run recorded the host's CPU speed"] if pace_s is None else []
    assert (found.verdict, found.remarks) == (expected, remarks)
    assert found.ratio == pytest.approx(step_us / 100)


@pytest.mark.parametrize("wild", [5.0, 65.0])
def test_a_few_wild_paces_hide_nothing(wild: float) -> None:
    """A reading beside busy cores is many times slower and does not stand for the others."""
    found = verdict(compare(on_cpu(100.0, 1.0), on_cpu(105.0, 1.0, wild, 1.0), NAMES), "numpy")
    assert (found.verdict, found.regression, found.remarks) == ("SLOWER", True, [])


def test_paces_that_not_all_processes_have_are_none() -> None:
    (numpy,) = on_cpu(100.0, 1.0).stages
    assert side_of(numpy).paces_s == [1.0] * 12
    other = replace(numpy.processes[0], pace_s=None)
    assert side_of(replace(numpy, processes=[other, *numpy.processes[1:]])).paces_s == []


def test_the_pace_of_another_cpu_is_part_of_the_answer() -> None:
    found = verdict(compare(on_cpu(100.0, 1.0), on_cpu(130.0, 1.3, cpu="another CPU"), NAMES), "numpy")
    assert (found.verdict, found.remarks) == ("SLOWER", [])


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.0199, 0), (1.0201, 1), (0.5, 0)])
def test_only_a_slowdown_beyond_the_threshold_is_a_regression(factor: float, code: int) -> None:
    base = times(50.0)
    found = only(base, [time * factor for time in base])
    assert found.exit_code == code
    assert found.regressions == ["naive"] * code
    assert only(base, [time * factor for time in base], threshold=0.03).exit_code == 0


def test_a_slower_median_that_may_be_chance_is_no_regression() -> None:
    found = only(times(50.0, scatter=0.3), times(52.0, scatter=0.3))
    assert verdict(found, "naive").verdict == "AMBIGUOUS"
    assert (found.exit_code, found.undecided) == (0, ["naive"])
    assert only(times(50.0, scatter=0.3), times(52.0, scatter=0.3), strict=True).exit_code == 2
    assert only(times(50.0), times(52.0), threshold=0.03).exit_code == 1


def test_strict_passes_intervals_without_a_regression() -> None:
    found = only(times(50.0), times(50.0), strict=True)
    assert (found.exit_code, found.undecided) == (0, [])
    may_be_faster = only([50.0] * 8, [50.0] * 5 + [45.0] * 3, strict=True)
    assert verdict(may_be_faster, "naive").verdict == "AMBIGUOUS"
    assert may_be_faster.exit_code == 0


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_few_processes_tell_large_differences_only(processes: int) -> None:
    base = times(50.0, processes=processes, scatter=0.0001)
    assert verdict(only(base, [time * 1.1 for time in base]), "naive").verdict == "AMBIGUOUS"
    assert verdict(only(base, [time * 2.5 for time in base]), "naive").verdict == "SLOWER"
    assert "fewer than 8 processes" in " ".join(verdict(only(base, base), "naive").remarks)


def test_a_few_processes_that_were_all_disturbed_decide_nothing() -> None:
    for number, disturbed, found in ((8, 8, "SLOWER"), (4, 1, "SLOWER"), (4, 4, "AMBIGUOUS")):
        base, new = (run(stage("naive", times(us, processes=number))) for us in (50.0, 100.0))
        processes = [
            replace(process, disturbed=["heat"] * (nth < disturbed))
            for nth, process in enumerate(new.stages[0].processes)
        ]
        judged = compare(base, sample.replace_stage(new, "naive", processes=processes), NAMES)
        assert verdict(judged, "naive").verdict == found
        assert judged.exit_code == (found == "SLOWER")
    assert "SLOWER by its times, of which one run has disturbed ones alone" in verdict(judged, "naive").remarks


@pytest.mark.parametrize("status", ["failed", "crashed"])
def test_a_stage_that_no_longer_passes_is_a_regression(status: str) -> None:
    base = run(stage("naive", times(50.0)), stage("async", times(40.0)))
    new = sample.replace_stage(base, "async", status=status, reason="no\nluck", timing=None)
    found = compare(base, new, NAMES)
    assert (found.exit_code, found.regressions) == (1, ["async"])
    assert verdict(found, "async").remarks == [f"{status} in the new run (no luck)"]
    later = sample.replace_stage(new, "naive", processes=stage("naive", times(60.0)).processes)
    assert verdict(compare(new, later, NAMES), "async").remarks == [f"{status} in both runs (no luck)"]
    assert compare(new, base, NAMES).exit_code == 0  # a stage that now passes is no regression


def test_a_newly_skipped_stage_fails_the_gate() -> None:
    base = run(stage("naive", times(50.0)), stage("async", times(40.0)))
    new = sample.replace_stage(base, "async", status="skipped", reason="no CUDA device", timing=None)
    found = compare(base, new, NAMES)
    assert (found.exit_code, found.regressions, found.lost) == (2, [], ["async"])
    assert verdict(found, "async").verdict is None
    assert compare(new, base, NAMES, strict=True).exit_code == 0  # the base had no time to lose
    slower = sample.replace_stage(new, "naive", processes=stage("naive", times(60.0)).processes)
    assert compare(base, slower, NAMES).exit_code == 1


def test_an_absent_stage_counts_with_strict() -> None:
    base, new = run(stage("naive", times(50.0)), stage("async", times(40.0))), run(stage("naive", times(50.0)))
    found = compare(base, new, NAMES)
    assert (found.exit_code, found.lost) == (0, ["async"])
    assert compare(base, new, NAMES, strict=True).exit_code == 2
    assert compare(new, base, NAMES, strict=True).exit_code == 0


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (StageCode("a", "b"), StageCode("a", "c"), "its kernels differ"),
        (StageCode("a", None), StageCode("b", None), "its sources differ"),
        (StageCode("a", "b"), StageCode("b", "c"), "its sources and kernels differ"),
        (StageCode("a", "b", timer="c"), StageCode("a", "b", timer="d"), "its timer differs"),
        (StageCode("a", "b"), StageCode("a", "b", scheme=3), ""),  # nobody knows
        (StageCode("a", "b"), StageCode("a", "b"), ""),
        (None, StageCode("a", "b"), ""),
    ],
)
def test_other_code_is_told(then: StageCode | None, now: StageCode, said: str) -> None:
    base, new = (run(stage("naive", times(50.0))) for _ in range(2))
    base = sample.replace_stage(base, "naive", code=then)
    for changes in ({}, {"status": "crashed", "timing": None}):
        (found,) = compare(base, sample.replace_stage(new, "naive", code=now, **changes), NAMES).stages
        assert [remark for remark in found.remarks if "differ" in remark] == ([said] if said else [])


def test_remarks_on_a_verdict() -> None:
    base = run(stage("naive", times(50.0)))
    timing, processes = base.stages[0].timing, base.stages[0].processes
    assert timing is not None
    disturbed = [replace(processes[0], disturbed=["heat"]), *processes[1:]]
    new = sample.replace_stage(
        base, "naive", timing=replace(timing, epochs=1), precision="bfloat16", device="cpu", processes=disturbed
    )
    (found,) = compare(base, new, NAMES).stages
    assert found.ratio == pytest.approx(2.0)  # of a step, independent of the number of epochs
    assert found.remarks == [
        "runs of 2 and 1 epochs",
        "its precision changed from float32 to bfloat16",
        "its device changed from gpu to cpu",
        "1 of 24 processes were disturbed",
    ]


def with_times(results: Results, *run_s: float) -> Results:
    (process, *_) = results.stages[0].processes
    processes = [replace(process, runs_s=[seconds]) for seconds in run_s]
    return sample.replace_stage(results, "naive", processes=processes)


def test_runs_without_a_common_time_cannot_be_compared() -> None:
    base = run(stage("naive", times(50.0)))
    for new in (
        run(stage("async", times(50.0))),
        run(),
        sample.replace_stage(base, "naive", processes=[]),
        with_times(base, 0.0, 1.0),
        with_times(base, -1.0),
        with_times(base, float("inf")),
        with_times(base, float("nan")),
        sample.replace_stage(base, "naive", status="skipped", timing=None),
    ):
        with pytest.raises(CannotCompareError, match="a and b: no stage was timed in both"):
            compare(base, new, NAMES)


def test_the_same_processes_in_another_order_are_the_same() -> None:
    mixed = np.random.default_rng(0).permutation(times(50.0)).tolist()
    assert only(times(50.0), mixed).stages == only(times(50.0), times(50.0)).stages


def test_variables_that_libraries_read_are_told() -> None:
    base, new = (
        replace(on_cpu(100.0, 1.0), environment={**on_cpu(100.0, 1.0).environment, "variables": held})
        for held in ({"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "2"})
    )
    assert compare(base, new, NAMES).warnings == ["Environment variables differ: OPENBLAS_CORETYPE Haswell, none."]
    old = on_cpu(100.0, 1.0)
    told = "Environment variables differ: OMP_NUM_THREADS not recorded, 2."
    assert compare(old, new, NAMES).warnings == [told]
