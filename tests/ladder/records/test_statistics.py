"""Confidence intervals, known values and simulated coverage, and numbers in a file that no measurement has."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from ladder.records import statistics
from ladder.records.foreign import ResultsError
from ladder.records.run import _impossible_number, load
from ladder.records.statistics import (
    BOOTSTRAP_PROCESSES,
    CPU_SPREAD,
    GPU_SPREAD,
    HOST_SPREAD,
    PRIOR,
    RESAMPLES,
    VERDICT_CONFIDENCE,
    median_interval,
    ratio_interval,
    student,
)
from reports.facts.launch_regimes import assumed_spread
from reports.facts.times import step_times_us

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
# Distributions of the logarithms of times, in units of their spread.
LIKE: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "normal": lambda random, count: random.normal(size=count),
    "with outliers (t, 3 degrees)": lambda random, count: random.standard_t(3, size=count),
    "of two modes": lambda random, count: (random.random(count) < 0.5) + 0.1 * random.normal(size=count),
    "skewed (exponential)": lambda random, count: random.exponential(size=count),
}
SPREADS = {True: 0.10, False: 0.01}  # by whether there are few processes: intervals then assume a spread of 10 %


@pytest.mark.parametrize(
    ("confidence", "freedom", "value"),
    # Two-sided values from published tables of Student's t.
    [(0.95, 1, 12.7062), (0.95, 2, 4.3027), (0.95, 10, 2.2281), (0.99, 4, 4.6041), (0.995, 2, 14.0890)],
)
def test_students_t_agrees_with_published_tables(confidence: float, freedom: int, value: float) -> None:
    assert student(confidence, freedom) == pytest.approx(value, rel=1e-4)


def test_an_interval_is_the_same_in_every_call() -> None:
    assert statistics.Interval(50.0, 49.0, 52.0).half_width == pytest.approx(0.03)
    times = list(np.random.default_rng(1).normal(100, 2, 9))
    assert median_interval(times) == median_interval(times)
    assert ratio_interval(times, times[:7]) == ratio_interval(times, times[:7])


def test_intervals_follow_the_unit_and_the_order_of_the_sides() -> None:
    random = np.random.default_rng(2)
    base, new = random.normal(100, 2, 9), random.normal(110, 2, 12)
    for count in (3, 9):  # below and above the bootstrap's minimum
        one, longer = ratio_interval(base[:count], new), ratio_interval(base[:count], new * 1.5)
        assert tuple(longer) == pytest.approx([end * 1.5 for end in one])
        back = ratio_interval(new, base[:count])
        assert back.value == pytest.approx(1 / one.value)
        assert back.low == pytest.approx(1 / one.high, rel=0.01)
        assert back.high == pytest.approx(1 / one.low, rel=0.01)


@pytest.mark.parametrize("count", [1, 5, 6, 30])
def test_an_interval_contains_its_value(count: int) -> None:
    times = np.random.default_rng(count).normal(100, 2, count)
    known = median_interval(times)
    assert known.low <= known.value <= known.high
    assert known.value == pytest.approx(np.median(times), rel=0.01)


@pytest.mark.parametrize("count", [BOOTSTRAP_PROCESSES, BOOTSTRAP_PROCESSES + 1])
def test_many_processes_are_resampled_with_replacement(count: int) -> None:
    times = np.exp(np.random.default_rng(count).normal(size=count))
    drawn = np.random.default_rng(statistics.SEED).integers(0, count, (RESAMPLES, count), dtype=np.uint16)
    medians = np.sort(np.exp(np.median(np.log(times)[drawn], axis=1)))
    ends = medians[[int(0.025 * RESAMPLES) - 1, -int(0.025 * RESAMPLES)]]
    assert median_interval(times) == pytest.approx((np.exp(np.median(np.log(times))), *ends))


def test_few_processes_are_held_against_the_assumed_spread_and_against_their_own() -> None:
    calm, wild = ratio_interval([50.0] * 2, [50.0] * 2), ratio_interval([50.0, 100.0], [50.0, 100.0])
    assert calm.high == pytest.approx(math.exp(student(0.995, 10) * CPU_SPREAD))
    own = math.sqrt((PRIOR * CPU_SPREAD**2 + math.log(2) ** 2) / 10)
    assert wild.high == pytest.approx(math.exp(student(0.995, 10) * own))
    assert ratio_interval([50.0] * 2, [50.0] * 2, spread=GPU_SPREAD).high == pytest.approx(1.0365, abs=1e-4)


def missed(like: str, sides: tuple[int, int], confidence: float) -> float:
    """The share of 800 intervals of the ratio of two like sides that miss 1."""
    random = np.random.default_rng(0)
    spread = SPREADS[min(sides) < BOOTSTRAP_PROCESSES]
    misses = 0
    for _ in range(800):
        base, new = (np.exp(spread * LIKE[like](random, count)) for count in sides)
        interval = ratio_interval(base, new, confidence)
        misses += not interval.low <= 1 <= interval.high
    return misses / 800


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("sides", [(6, 6), (6, 24), (12, 12)])
def test_intervals_have_nearly_the_nominal_coverage(like: str, sides: tuple[int, int]) -> None:
    # The nominal 0.005, which the bootstrap of few processes nearly keeps.
    assert missed(like, sides, VERDICT_CONFIDENCE) < 0.015
    assert 0.05 < missed(like, sides, 0.8) < 0.3  # nominal 0.2: the interval is not too wide either


def test_recorded_stages_scatter_no_further_than_is_assumed_of_them() -> None:
    spreads: dict[float, list[float]] = {HOST_SPREAD: [], CPU_SPREAD: [], GPU_SPREAD: []}
    for path in REFERENCE.glob("*/*/results.json.gz"):
        for stage in load(path).stages:
            times = step_times_us(stage)
            if len(times) > 1:
                spreads[assumed_spread(stage)].append(float(np.std(np.log(times), ddof=1)))
    for assumed, found in spreads.items():
        assert len(found) > 20
        assert assumed / 2.1 < math.sqrt(np.square(found).mean()) <= assumed


@pytest.mark.parametrize(
    ("runs_s", "slower", "said"),
    [([], 1.0, "a process has no time"), ([0.0], 1.0, "a process has no time"), ([1.0], 2.0, "lies outside its range")],
)
def test_times_that_contradict_each_other_are_refused(
    runs_s: list[float], slower: float, said: str, tmp_path: Path
) -> None:
    results = load(min(REFERENCE.glob("*/*/results.json.gz")))
    stage = next(stage for stage in results.stages if stage.timing is not None)
    assert stage.timing is not None
    spread = stage.timing.epoch_s
    timing = replace(stage.timing, epoch_s=replace(spread, median=spread.max * slower))
    stage = replace(stage, timing=timing, processes=[replace(stage.processes[0], runs_s=runs_s)])
    (tmp_path / "results.json").write_bytes(msgspec.json.encode(replace(results, stages=[stage])))
    with pytest.raises(ResultsError, match=said):
        load(tmp_path)


@pytest.mark.parametrize("text", ["1e300", "1E300", "-2.5e-308", "1e+200", "1" * 101])
@pytest.mark.parametrize("around", ['{"a":[%s]}', '{"a": %s}', "[0.5, %s]"])
def test_a_number_whose_square_no_float_holds_is_found_however_it_is_written(text: str, around: str) -> None:
    assert "is no measurement" in _impossible_number((around % text).encode())


@pytest.mark.parametrize("text", ['"604e834ba891046e6505"', "1.5e-99", "0", '"a:1e300"', '"1e300"'])
def test_hashes_and_other_texts_are_no_numbers(text: str) -> None:
    assert not _impossible_number(f'{{"a":[{text}]}}'.encode())
