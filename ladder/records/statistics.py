"""Confidence intervals of a median and of a ratio of medians, from the times of fresh processes.

The sampling unit is a process, not a run: runs of one process share its memory layout and clocks, and agree far better
with each other than with runs of the next process. docs/statistics.md gives reasons, sources and measurements.

From `BOOTSTRAP_PROCESSES` processes on, the interval is a percentile bootstrap (B. Efron, R. Tibshirani: An
Introduction to the Bootstrap, 1993, chapter 13). Fewer values are too few to resample: their logarithms are taken as
normally distributed, and the interval is Student's with a moderated variance (G. Smyth: Linear models and empirical
Bayes methods, 2004). Recorded processes of such stages count as `PRIOR` degrees of freedom beside these processes' own,
since two processes may differ by chance; since they may agree by chance, the assumed variance is the least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BOOTSTRAP_PROCESSES = 8  # at least, for a bootstrap
# Standard deviations of the logarithm, of recorded stages by what sets their pace.
HOST_SPREAD = 0.15  # the host launches every step: 0.14 over 48 stages
CPU_SPREAD = 0.10  # 0.07 over 46 stages
GPU_SPREAD = 0.01  # 0.009 over 326 stages
PRIOR = 8  # degrees of freedom that such an assumption counts for
MEDIAN_CONFIDENCE = 0.95  # of a median's interval
VERDICT_CONFIDENCE = 0.995  # of a ratio's interval: fewer than one verdict in a hundred is false
RESAMPLES = 10_000
Times = Sequence[float] | NDArray[np.float64]  # one per process, in any unit
SEED = 0


class Interval(NamedTuple):
    """A value and the ends of its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the ends, as a share of the value."""
        return (self.high - self.low) / 2 / self.value


def median_interval(times: Times, confidence: float = MEDIAN_CONFIDENCE) -> Interval:
    """The median of at least one process's times, all above zero."""
    logs = np.log(times)
    middle = median(logs.tolist())
    if len(logs) < BOOTSTRAP_PROCESSES:
        return _of_few(middle, [logs], confidence, CPU_SPREAD)
    return _percentiles(middle, _resampled_medians(logs, SEED), confidence)


def ratio_interval(
    base: Times, new: Times, confidence: float = VERDICT_CONFIDENCE, spread: float = CPU_SPREAD
) -> Interval:
    """The new processes' median time as a multiple of the base's; above 1 is slower. `spread` is of such stages."""
    logs = [np.log(base), np.log(new)]
    middle = median(logs[1].tolist()) - median(logs[0].tolist())
    if min(map(len, logs)) < BOOTSTRAP_PROCESSES:
        return _of_few(middle, logs, confidence, spread)
    resampled = _resampled_medians(logs[1], SEED + 1) - _resampled_medians(logs[0], SEED)
    return _percentiles(middle, resampled, confidence)


def _resampled_medians(logs: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The medians (RESAMPLES,) of samples drawn with replacement, each as large as `logs`; the seed fixes the draws."""
    ordered = np.sort(logs)
    below, above = _middle_ranks(len(logs), seed)
    return (ordered[below] + ordered[above]) / 2


@lru_cache(maxsize=64)
def _middle_ranks(count: int, seed: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The ranks of the two middle elements of each resample, both (RESAMPLES,); equal for an odd count."""
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count), dtype=np.uint16)
    drawn.sort(axis=1)
    return drawn[:, (count - 1) // 2].copy(), drawn[:, count // 2].copy()


def _percentiles(middle: float, resampled: NDArray[np.float64], confidence: float) -> Interval:
    below = int((1 - confidence) / 2 * (RESAMPLES - 1))  # no interpolation: both ends are resampled values
    ordered = np.partition(resampled, (below, -1 - below))
    return Interval(math.exp(middle), math.exp(ordered[below]), math.exp(ordered[-1 - below]))


def _of_few(middle: float, groups: Sequence[NDArray[np.float64]], confidence: float, spread: float) -> Interval:
    """Student's interval with the variance of all groups, moderated by the assumed one and never below it."""
    freedom = PRIOR + sum(len(group) - 1 for group in groups)
    squares = PRIOR * spread**2 + sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    error = math.sqrt(max(spread**2, squares / freedom) * sum(1 / len(group) for group in groups))
    half = student(confidence, freedom) * error
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


@lru_cache
def student(confidence: float, freedom: int) -> float:
    """The two-sided quantile of Student's t: |t| stays below it with this confidence. `freedom` is 1 or more.

    The density is integrated numerically over the angle, where t = sqrt(freedom) tan(angle).
    """
    angles = np.linspace(0, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    within = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(np.interp(confidence, within / within[-1], angles))
