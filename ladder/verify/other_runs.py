"""Checks that hold for all timed runs of a process, of which the oracle repeats only one: their results and times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from common.data.dataset import Split
from common.oracle import evaluate
from common.problem import Params, Problem
from ladder.measure.displacement import Displacement
from ladder.measure.timing import SCHEDULER_DELAY_S
from ladder.records.run import Check, Process
from ladder.verify.gates import LATE_START_LAYERS, check, no_occasion, worst_of

OWN_CHECK = "networks, share of their first parameters lost"
OWN_SHORTFALL = 0.5  # of the least that a judged network retains; one with another's parameters retains nothing
CHANCE = 1.0  # standard deviation by which an update may by chance point back along the first weights
LOSS_CHECK = "timed runs, loss won by the judged one's"
WAY_CHECK = "timed runs, way lost by the judged one's"
CLOCK_CHECK = "timed runs, difference from Linux's clock"
JUDGED_CHECK = "judged run, shorter than any other by"
RUN_ALONE = "a process has one run and no warm-up (--repeats, --warmups, --budget)"
LOSS_IMAGES = 1000  # of the test images
LOSS_SHORTFALL = 0.5
# Of the way of softmax regression: honest runs had 0.035 at most. With a hidden layer they had 0.28, at rates close to
# diverging, and with three that have just begun 0.25.
WAY_SHORTFALL = 0.2
LEAST_WON = (0.3, 0.3, 0.6, 0.6)  # by the judged run, of its loss, by hidden layers; before, chance decides
NARROW_LAYER = 32  # units; below, chance decides how many of them die, and with them what a run wins
CLOCK_DIFFERENCE = 0.1  # of a run, beside delays; the recorded runs have 0
DELAYS_S = 2 * SCHEDULER_DELAY_S  # at the begin and at the end of a run
JUDGED_SHORTFALL = 0.5  # of the shortest other run: warm-ups may have half as many epochs


@dataclass(frozen=True)
class RunEnd:
    """A timed run's way from its first parameters, and the loss on some test images that it won on it."""

    displacement: Displacement
    before: float
    after: float

    @classmethod
    def of(cls, initial: Params, final: Params, test: Split, *, alone: bool = False) -> Self:
        """From a run's first and last parameters, by the harness's own float64 forward pass.

        One that is `alone` has no losses: there is no other run to compare them with.
        """
        some = test.first(min(LOSS_IMAGES, len(test.images)))
        before, after = (
            math.nan if alone else evaluate(params.weights, params.biases, some.images, some.labels).mean_loss
            for params in (initial, final)
        )
        return cls(Displacement.of(initial, final.weights, final.biases), before, after)

    @property
    def won(self) -> float:
        """The loss before, less the loss after."""
        return self.before - self.after


def verify_losses(problem: Problem, judged: RunEnd, others: Sequence[RunEnd]) -> list[Check]:
    """Check that the median of the other runs wins as much loss as the judged one, where correct stages do.

    In softmax regression, none of them may go a far shorter way either.
    """
    by_chance = min(problem.hidden, default=NARROW_LAYER) < NARROW_LAYER or len(problem.hidden) >= LATE_START_LAYERS
    if not others or by_chance or not judged.won > LEAST_WON[len(problem.hidden)] * judged.before:
        return []
    won = statistics.median(end.won / judged.won if math.isfinite(end.won) else 0.0 for end in others)
    checks = [check(LOSS_CHECK, max(0.0, 1.0 - won), LOSS_SHORTFALL)]
    if problem.is_logistic:
        ways = [way if math.isfinite(way := end.displacement.distance) else 0.0 for end in others]
        shortfall = 1.0 - min(ways) / (judged.displacement.distance or math.nan)
        checks.append(check(WAY_CHECK, max(shortfall, 0.0), WAY_SHORTFALL))  # NaN stays
    return checks


def verify_clock(process: Process, stamped_s: Sequence[float | None]) -> Check:
    """Check the process's times by the kernel's: `stamped_s` are the seconds of all warm-ups and timed runs.

    The median difference counts. A time that is not positive fails, and so does a phase that ends before it begins, or
    a run that was not stamped, unless the kernel stamps nothing.
    """
    told = [*process.warmups_s, *process.runs_s]
    if min(process.took_s.values(), default=0.0) < -DELAYS_S:  # no phase ends before it begins
        return check(CLOCK_CHECK, math.nan, CLOCK_DIFFERENCE)
    if len(told) != len(stamped_s) or not all(0.0 < run_s < math.inf for run_s in (*told, *(process.gpu_runs_s or ()))):
        return check(CLOCK_CHECK, math.nan, CLOCK_DIFFERENCE)
    differences = [
        max(0.0, abs(seconds - seen) - DELAYS_S) / seen
        for seconds, seen in zip(process.runs_s, stamped_s[len(process.warmups_s) :], strict=True)
        if seen is not None
    ]
    return check(CLOCK_CHECK, statistics.median(differences or [0.0]), CLOCK_DIFFERENCE)


def verify_judged_time(process: Process, judged: int) -> Check:
    """Check that the judged run is not the only short one: all stages of a round start it from the same parameters."""
    others = [*process.warmups_s, *process.runs_s[:judged], *process.runs_s[judged + 1 :]]
    if not others:
        return no_occasion(JUDGED_CHECK, RUN_ALONE)
    took = process.runs_s[judged] + DELAYS_S
    return check(JUDGED_CHECK, max(0.0, 1.0 - took / min(others)), JUDGED_SHORTFALL)


def verify_networks(problem: Problem, ends: Sequence[RunEnd], judged: Sequence[int]) -> list[Check]:
    """Check that every network comes from its own first parameters and, at equal rates, has learned as the judged ones.

    `ends` are what all networks have come to, `judged` the numbers of those that the gates found right.
    """
    least = min(ends[network].displacement.retained for network in judged)
    checks = [check(OWN_CHECK, max(_lost(problem, end.displacement, least) for end in ends), OWN_SHORTFALL)]
    if not problem.learning_rates:
        losses = (verify_losses(problem.alone(0), ends[judged[0]], [end]) for end in ends)
        checks += worst_of(check for won in losses for check in won)
    return checks


def _lost(problem: Problem, moved: Displacement, least: float) -> float:
    """How much less of its first weights a network retains than the judged ones, beyond chance, as a share."""
    if math.isnan(moved.retained):
        return math.inf
    squared = sum(layer.fan_out for layer in problem.layers) / 3.0  # of the first weights, which are uniform
    widest = max(1.0 / (3.0 * layer.fan_in) for layer in problem.layers)  # the variance of one of them
    chance = CHANCE * moved.distance * math.sqrt(widest) / squared
    return max(0.0, 1.0 - (moved.retained + chance) / least) if least > 0 else 0.0
