from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.profile import Split
from ladder.records.run import Results
from ladder.records.statistics import BOOTSTRAP_PROCESSES
from reports.facts.time_breakdown import Change, chain, changes
from tests.reports import sample
from tests.reports.profiles import own_kernels, profile


def with_split(run: Results, name: str, split: Split) -> Results:
    return sample.replace_stage(run, name, profiles=[profile(split, own_kernels())])


def with_step(run: Results, name: str, step_us: float) -> Results:
    timing = next(stage for stage in run.stages if stage.name == name).timing
    assert timing is not None
    return sample.replace_stage(run, name, timing=replace(timing, step_us=step_us))


def pair(below_us: float, rung_us: float, below: Split, rung: Split) -> Results:
    run = with_step(with_step(sample.unprofiled_results(), "naive", below_us), "async", rung_us)
    return with_split(with_split(run, "naive", below), "async", rung)


def seen(run: Results, name: str, split: Split, *, launches: float = 8.0) -> Results:
    """The stage with a profile as seen, and as fitted."""
    (shown,) = next(stage for stage in run.stages if stage.name == name).profiles
    replaced = replace(shown, seen=split, step_us=split.total_us, launches_per_step=launches)
    return sample.replace_stage(run, name, profiles=[replaced])


def seen_pair(below: Split, rung: Split, *, launches: tuple[float, float] = (8.0, 8.0)) -> Results:
    """Two rungs of 80 and 50 us per step, with fitted parts of that sum and these seen totals."""
    run = pair(80.0, 50.0, Split(80, 0, 0, 0, 0), Split(50, 0, 0, 0, 0))
    return seen(seen(run, "naive", below, launches=launches[0]), "async", rung, launches=launches[1])


def only_change(run: Results) -> Change:
    (change,) = changes(run)
    return change


def test_a_difference_is_the_sum_of_its_parts_and_what_they_leave() -> None:
    change = only_change(pair(80.0, 50.0, Split(30, 5, 10, 20, 15), Split(20, 0, 12, 18, 1)))
    assert change.timed_us == pytest.approx(-30)
    assert list(change.parts_us.values()) == pytest.approx([-10, -5, 2, -2, -14])
    assert change.rest_us == pytest.approx(-1)
    assert sum(change.parts_us.values()) + change.rest_us == pytest.approx(change.timed_us)


@pytest.mark.parametrize(("launching_us", "explained"), [(31.6, False), (31.4, True), (28.6, True), (28.4, False)])
def test_a_difference_is_explained_to_5_percent(launching_us: float, explained: bool) -> None:
    change = only_change(seen_pair(Split(30, 0, 0, 60, 0), Split(30, 0, 0, launching_us, 0)))
    assert change.is_explained is explained


def test_between_two_graphs_the_gpus_work_is_held_against_the_difference() -> None:
    below, rung = Split(80, 1, 5, 40, 0), Split(51, 0, 4, 10, 0)
    change = only_change(seen_pair(below, rung, launches=(1 / 468, 1 / 468)))
    assert change.leaves_out_host
    assert change.explained == pytest.approx(1)
    assert change.seen_us == pytest.approx(-61)
    one_by_one = only_change(seen_pair(below, rung, launches=(8.0, 1 / 468)))
    assert not one_by_one.leaves_out_host
    assert one_by_one.explained == pytest.approx(61 / 30)


@pytest.mark.parametrize(("rung_us", "is_noise"), [(98.1, True), (97.9, False), (101.9, True), (102.2, False)])
def test_a_difference_of_less_than_2_percent_is_noise(rung_us: float, is_noise: bool) -> None:
    run = pair(100.0, rung_us, Split(50, 0, 0, 50, 0), Split(50, 0, 0, 10, 0))
    for name, us in (("naive", 100.0), ("async", rung_us)):
        run = sample.with_processes(run, name, [us] * BOOTSTRAP_PROCESSES)
    assert only_change(run).is_noise == is_noise
    assert (only_change(run).explained is None) == is_noise


@pytest.mark.parametrize(
    ("below_us", "rung_us", "is_noise"),
    [
        ([78.0, 82.0], [48.0, 52.0], False),
        ([49.0, 82.0], [48.0, 52.0], True),  # the times of their processes overlap
        ([80.0] * 9 + [49.0], [50.0] * 5 + [49.0] * 5, False),  # enough processes to see that one is an exception
        ([80.0] * 5 + [49.0] * 5, [50.0] * 5 + [49.0] * 5, True),
    ],
)
def test_differences_within_a_stage_are_noise(below_us: list[float], rung_us: list[float], is_noise: bool) -> None:
    run = pair(80.0, 50.0, Split(80, 0, 0, 0, 0), Split(50, 0, 0, 0, 0))
    run = sample.with_processes(sample.with_processes(run, "naive", below_us), "async", rung_us)
    assert only_change(run).is_noise is is_noise


def test_gaps_in_a_graph_stay_in_proportion_to_the_work() -> None:
    run = seen_pair(Split(80, 0, 0, 10, 0), Split(55, 0, 5, 20, 1), launches=(8.0, 1 / 468))
    rung = only_change(run).rung
    assert rung.step_us == 50.0
    assert rung.parts_us == pytest.approx(
        {"kernels": 55 * 50 / 60, "copies": 0, "between queued kernels": 5 * 50 / 60, "host launching": 0,
         "host waiting": 0}
    )  # fmt: skip
    idle = only_change(seen_pair(Split(80, 0, 0, 10, 0), Split(40, 0, 4, 9, 3), launches=(8.0, 1 / 468))).rung
    assert list(idle.parts_us.values()) == pytest.approx([40, 0, 4, 4.5, 1.5])
    launched = only_change(seen_pair(Split(80, 0, 0, 10, 0), Split(55, 0, 5, 20, 1))).rung
    assert launched.parts_us["kernels"] == 50  # as recorded


def test_the_way_leads_to_the_fastest_rung_and_begins_where_profiles_do() -> None:
    run = with_step(sample.results(), "bf16-gemm", 30.0)
    assert [change.rung.stage.name for change in chain(run)] == ["async", "cublas", "bf16-gemm"]
    broken = sample.replace_stage(run, "async", profiles=[])
    assert [change.rung.stage.name for change in chain(broken)] == ["bf16-gemm"]
    assert chain(sample.unprofiled_results()) == []
