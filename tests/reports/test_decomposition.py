from __future__ import annotations

import msgspec
import pytest

from ladder.profile_data import Split
from ladder.results import Results
from reports.decomposition import all_profiled, chain, changes, doubts, profiled
from tests.reports import sample
from tests.reports.profiles import own_kernels, profile


def with_split(run: Results, name: str, split: Split) -> Results:
    return sample.replace_stage(run, name, profiles=[profile(split, own_kernels())])


def with_step(run: Results, name: str, step_us: float) -> Results:
    timing = next(stage for stage in run.stages if stage.name == name).timing
    assert timing is not None
    return sample.replace_stage(run, name, timing=msgspec.structs.replace(timing, step_us=step_us))


def pair(below_us: float, rung_us: float, below: Split, rung: Split) -> Results:
    run = with_step(with_step(sample.unprofiled_results(), "naive", below_us), "async", rung_us)
    return with_split(with_split(run, "naive", below), "async", rung)


def test_a_difference_is_the_sum_of_its_parts_and_what_they_leave() -> None:
    (change,) = changes(pair(80.0, 50.0, Split(30, 5, 10, 20, 15), Split(20, 0, 12, 18, 1)))
    assert change.timed_us == pytest.approx(-30)
    assert list(change.parts_us.values()) == pytest.approx([-10, -5, 2, -2, -14])
    assert change.unexplained_us == pytest.approx(-1)
    assert change.explained == pytest.approx(1 - 1 / 30)
    assert sum(change.parts_us.values()) + change.unexplained_us == pytest.approx(change.timed_us)


def test_parts_that_go_the_other_way_explain_nothing() -> None:
    (change,) = changes(pair(80.0, 50.0, Split(30, 0, 0, 50, 0), Split(60, 0, 0, 50, 0)))
    assert change.unexplained_us == pytest.approx(-60)
    assert change.explained == 0


@pytest.mark.parametrize(("rung_us", "explained"), [(98.1, False), (97.9, True), (101.9, False), (102.2, True)])
def test_a_difference_within_the_noise_has_nothing_to_explain(rung_us: float, explained: bool) -> None:
    run = pair(100.0, rung_us, Split(50, 0, 0, 50, 0), Split(50, 0, 0, 10, 0))
    (change,) = changes(run)
    assert (change.explained is not None) == explained
    assert bool(doubts(run)) == explained


@pytest.mark.parametrize(("waiting_us", "named"), [(21.0, False), (22.0, True), (18.4, True)])
def test_a_rung_is_named_when_less_than_95_percent_is_explained(waiting_us: float, named: bool) -> None:
    told = doubts(pair(50.0, 30.0, Split(30, 0, 0, 20, 0), Split(30, 0, 0, 0, waiting_us - 20)))
    assert bool(told) == named


def test_the_sentence_says_what_is_not_explained() -> None:
    told = doubts(pair(80.0, 50.0, Split(30, 0, 0, 50, 0), Split(30, 0, 0, 30, 0)))
    assert told == [
        "async is 30.0 us/step faster than naive; the parts explain 66.7% of that, and -10.0 us are not explained."
    ]
    slower = doubts(pair(50.0, 80.0, Split(30, 0, 0, 20, 0), Split(30, 0, 0, 40, 0)))
    assert slower[0].startswith("async is 30.0 us/step slower than naive; the parts explain 66.7%")


def test_cupti_is_shown_before_nsys_whatever_their_order() -> None:
    stage = next(stage for stage in sample.results().stages if stage.name == "cublas")
    for profiles in (stage.profiles, stage.profiles[::-1]):
        shown = profiled(msgspec.structs.replace(stage, profiles=profiles))
        assert shown is not None
        assert shown.profile.tool == "cupti"
    only = profiled(msgspec.structs.replace(stage, profiles=[p for p in stage.profiles if p.tool == "nsys"]))
    assert only is not None
    assert only.profile.tool == "nsys"


def test_a_stage_that_did_not_pass_is_not_shown_even_with_a_profile() -> None:
    run = with_split(sample.unprofiled_results(), "sparse-metrics", Split(1, 0, 0, 0, 0))
    assert all_profiled(run) == []


def test_references_have_parts_and_no_change() -> None:
    run = sample.results()
    names = [one.stage.name for one in all_profiled(run)]
    assert names == ["naive", "async", "cublas", "bf16-gemm", "torch-eager", "jax-scan"]
    assert [change.rung.stage.name for change in changes(run)] == ["async", "cublas", "bf16-gemm"]


def test_a_rung_without_a_profile_breaks_the_way_and_the_longest_piece_is_taken() -> None:
    run = sample.results()
    assert [change.rung.stage.name for change in chain(run)] == ["async", "cublas", "bf16-gemm"]
    broken = sample.replace_stage(run, "async", profiles=[])
    assert [change.rung.stage.name for change in chain(broken)] == ["bf16-gemm"]
    assert chain(sample.unprofiled_results()) == []


def test_where_two_rungs_climb_from_one_the_longer_way_is_taken() -> None:
    branched = sample.replace_stage(sample.results(), "async", below=None)
    branched = sample.replace_stage(branched, "bf16-gemm", below="naive")
    assert [change.rung.stage.name for change in changes(branched)] == ["cublas", "bf16-gemm"]
    assert [change.rung.stage.name for change in chain(branched)] == ["cublas"]
