from __future__ import annotations

from msgspec.structs import replace

from ladder.records.run import CANNOT_DECIDE, StageDoc
from reports.facts.study_points import StudyResults
from reports.facts.verdict import study_sentences, verdict_sentences
from tests.reports import sample
from tests.reports.study_sample import study_results


def test_a_single_difference_within_the_noise_is_one() -> None:
    run = sample.results()
    cublas = next(stage for stage in run.stages if stage.name == "cublas")
    run = sample.replace_stage(run, "bf16-gemm", timing=cublas.timing, processes=cublas.processes)
    assert verdict_sentences(run)[1].endswith("; 1 differs by no more than noise.")


def test_predictions_and_disturbed_stages_are_counted() -> None:
    doc = StageDoc("w", "c", "e", predict="784-256-10, batch 128: 40 us.")
    run = sample.replace_stage(sample.results(), "async", doc=doc)
    processes = [replace(one, disturbed=["busy"]) for one in run.stages[6].processes]
    assert run.stages[6].name == "async"
    last = verdict_sentences(sample.replace_stage(run, "async", processes=processes))[-1]
    assert "1 of 1 prediction was hit" in last
    assert "1 of 9 timed stages had a disturbed process." in last


def test_a_run_without_a_timed_rung_or_without_any_time_says_so() -> None:
    first, *_ = verdict_sentences(sample.synthetic_results())
    assert first == "No rung was timed; `numpy`, the fastest reference, takes 1,295 us per step."
    assert verdict_sentences(sample.nothing_passed())[0] == "No stage of this run has a time."


def test_checks_that_rounding_decides_are_not_counted_as_passed() -> None:
    naive = next(stage for stage in sample.results().stages if stage.name == "naive")
    checks = [replace(naive.checks[0], note=CANNOT_DECIDE), *naive.checks[1:]]
    run = sample.replace_stage(sample.results(), "naive", checks=checks)
    assert "9 stages passed every check that rounding does not decide, " in verdict_sentences(run)[-1]


def test_another_precision_is_named_on_both_sides() -> None:
    run = sample.replace_stage(sample.results(), "cublas", status="failed", reason="x")
    run = sample.replace_stage(run, "async", status="failed", reason="x")
    first, *_ = verdict_sentences(run)
    assert "`bf16-gemm`, trains a step in 45.9 us in bf16: 1.86x as fast as `naive` in float32 and" in first


def test_a_study_has_its_largest_and_its_smallest_lead() -> None:
    results = study_results([64, 128, 256])
    largest, smallest, trust = study_sentences(results)
    assert largest.startswith("At hidden ")
    assert largest.endswith(", the fastest reference at least as exact: the largest lead of any point's fastest rung.")
    assert smallest.startswith("The smallest is ")
    assert " at 2 points passed every check" in trust
    one = StudyResults(results.study, {"hidden-64": results.runs["hidden-64"]})
    assert len(study_sentences(one)) == 2


def test_a_study_without_references_tells_of_the_largest_effect() -> None:
    results = study_results([64, 128, 256])
    run = sample.results()
    run = replace(run, stages=[stage for stage in run.stages if stage.group != "reference"])
    first, *_ = study_sentences(StudyResults(results.study, {"hidden-64": run}))
    assert first == "The largest effect: at hidden 64 `async` is 2.00x (1.98-2.10) as fast as `naive`."
