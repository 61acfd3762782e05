"""How sure a median and a ratio of medians are, from the times of fresh processes.

The unit is a process, never a run: runs of one process share its memory layout and its clocks, and agree with each
other far better than with the next process's. docs/statistics.md has the reasons, the sources and what was measured.

From `ENOUGH` processes on, the interval is the percentile bootstrap's: processes are drawn with replacement, and the
middle of what their medians do is kept (B. Efron, R. Tibshirani: An Introduction to the Bootstrap, 1993, chapter 13).
With fewer, a bootstrap knows only the few values that it saw, so the logarithms are taken as normal, and the
interval is the wider of two: Student's, from the spread that these processes show, and that of processes which
scatter by `SPREAD_OF_FEW`, since two that agree by chance say nothing about a third.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ENOUGH = 8
SPREAD_OF_FEW = 0.10  # standard deviation of the logarithm; nearly nine of ten recorded stages are below it
OF_A_MEDIAN = 0.95  # how often an interval of a median is to hold the truth
OF_A_VERDICT = 0.995  # and one of a ratio, so that fewer than one verdict in a hundred is false
RESAMPLES = 10_000
Times = Sequence[float] | NDArray[np.float64]  # one of each process, in any unit
SEED = 0


class Interval(NamedTuple):
    """A value, and between what it may lie."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of what lies between the ends, as a share of the value."""
        return (self.high - self.low) / 2 / self.value


def median_interval(times: Times, confidence: float = OF_A_MEDIAN) -> Interval:
    """The median of the processes' times, each above zero; there is at least one."""
    logs = np.log(times)
    middle = median(logs.tolist())
    if len(logs) < ENOUGH:
        return _of_few(middle, [logs], confidence)
    return _percentiles(middle, _resampled_medians(logs, SEED), confidence)


def ratio_interval(base: Times, new: Times, confidence: float = OF_A_VERDICT) -> Interval:
    """How many times as long the new processes take as those of the base, by their medians; above 1 is slower."""
    logs = [np.log(base), np.log(new)]
    middle = median(logs[1].tolist()) - median(logs[0].tolist())
    if min(map(len, logs)) < ENOUGH:
        return _of_few(middle, logs, confidence)
    resampled = _resampled_medians(logs[1], SEED + 1) - _resampled_medians(logs[0], SEED)
    return _percentiles(middle, resampled, confidence)


def _resampled_medians(logs: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The medians (RESAMPLES,) of as many processes as there are, drawn with replacement; the same in every call."""
    ordered = np.sort(logs)
    below, above = _middle_ranks(len(logs), seed)
    return (ordered[below] + ordered[above]) / 2


@lru_cache(maxsize=64)
def _middle_ranks(count: int, seed: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The ranks of the two in the middle of every resample, which are one where their number is odd."""
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count), dtype=np.uint16)
    drawn.sort(axis=1)
    return drawn[:, (count - 1) // 2].copy(), drawn[:, count // 2].copy()


def _percentiles(middle: float, resampled: NDArray[np.float64], confidence: float) -> Interval:
    below = int((1 - confidence) / 2 * (RESAMPLES - 1))  # ends are values that occurred: never between two of them
    ordered = np.partition(resampled, (below, -1 - below))
    return Interval(math.exp(middle), math.exp(ordered[below]), math.exp(ordered[-1 - below]))


def _of_few(middle: float, groups: Sequence[NDArray[np.float64]], confidence: float) -> Interval:
    """The wider of Student's interval, with the variance of all groups together, and that of the spread to expect."""
    root = math.sqrt(sum(1 / len(group) for group in groups))
    half = NormalDist().inv_cdf((1 + confidence) / 2) * SPREAD_OF_FEW * root
    freedom = sum(len(group) - 1 for group in groups)
    if freedom:
        squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
        half = max(half, student(confidence, freedom) * math.sqrt(squares / freedom) * root)
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


@lru_cache
def student(confidence: float, freedom: int) -> float:
    """How many standard errors Student's t keeps within, so often, with so many degrees of freedom (1 or more).

    By integration of the density, with t = sqrt(freedom) tan(angle).
    """
    angles = np.linspace(0, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    within = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(np.interp(confidence, within / within[-1], angles))
