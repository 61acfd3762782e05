"""The verdict that an interval allows, and ratios of times; tests/golden/comparisons.txt has verdicts on whole runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from ladder.records.statistics import GPU_SPREAD, HOST_SPREAD, Interval
from reports.facts.many_runs import compare_machines
from reports.facts.ratios import Times, ratio_of
from reports.facts.two_runs import CannotCompareError, Verdict, compare, in_words, verdict_of
from tests.golden.comparisons import NAMES, naive, pairs_of_runs
from tests.reports.recorded import times

# The verdict that an interval allows; tests/golden/comparisons.txt has those on whole runs.


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
    assert in_words("SAME", 1 / 1.0312, 1.02) == "SAME within 3.2%"  # rounded up
    assert in_words("SAME", 0.99, 1.02) == "SAME within 2.0%"
    assert (in_words("FASTER", 0.8, 0.9), in_words(None, None, None)) == ("FASTER", "")


@settings(derandomize=True, max_examples=20, deadline=None)
@given(some.permutations(times(50.0, processes=8, scatter=0.1)), some.floats(0.5, 2.0))
def test_the_order_of_processes_and_the_unit_of_time_decide_nothing(mixed: list[float], unit: float) -> None:
    base, new = times(51.0, processes=8), [us * unit for us in mixed]
    (known,) = compare(naive(*base), naive(*times(50.0, processes=8, scatter=0.1)), NAMES).stages
    (found,) = compare(naive(*(us * unit for us in base)), naive(*new), NAMES).stages
    assert found.verdict == known.verdict
    assert found.ratio == pytest.approx(known.ratio)


def test_a_third_run_changes_no_verdict_of_two() -> None:
    """Of any pair of the golden file, one whose few processes were all disturbed among them."""
    found: dict[str, set[str]] = {"two": set(), "several": set()}
    for title, (base, new) in pairs_of_runs().items():
        try:
            two, several = compare(base, new, NAMES), compare_machines([("a", base), ("b", new), ("c", base)])
        except CannotCompareError:
            continue
        cells = {row.name: row.cells[1] for row in several.rows}
        for one in two.stages:
            cell = cells[one.name]
            found["two"].add(f"{title}, {one.name}: {one.verdict} {one.ratio} {one.low} {one.high}")
            found["several"].add(f"{title}, {one.name}: {cell.verdict} {cell.ratio} {cell.low} {cell.high}")
    assert len(found["two"]) > 40
    assert found["several"] == found["two"]


# When a ratio of two stages' times is within the noise.


def _times(*values_us: float, by_host: bool = False) -> Times:
    spread = HOST_SPREAD if by_host else GPU_SPREAD
    return Times(sorted(values_us)[len(values_us) // 2], values_us, spread=spread)


@pytest.mark.parametrize(
    ("base", "own", "is_noise"),
    [
        (_times(77.8, 95.8, by_host=True), _times(1.24), False),  # a second process of the parent changes no lead
        (_times(77.8, by_host=True), _times(1.24), False),
        (_times(50.0, by_host=True), _times(45.0), True),
        (_times(50.0), _times(45.0), False),
        (_times(50.0), _times(48.0), True),
        (_times(50.0, 50.0), _times(48.0, 48.0), False),
        (_times(62.0, 71.0, by_host=True), _times(74.0, 83.0, by_host=True), True),  # they do not overlap, by chance
        (_times(50.0, 50.0), _times(49.5, 49.5), True),  # less than 2 %
        (Times(50.0, []), _times(45.0), False),
    ],
)
def test_few_processes_decide_by_the_spread_of_recorded_ones(base: Times, own: Times, is_noise: bool) -> None:
    assert ratio_of(base, own).is_noise is is_noise
    assert ratio_of(own, base).is_noise is is_noise
