"""Checks of several networks that trained together: each has parameters of its own, whether or not it is judged."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.problem import Problem
from ladder.measure.displacement import Displacement
from ladder.records.run import Check
from ladder.verify.gates import check, worst_of
from ladder.verify.other_runs import RunEnd, verify_losses

OWN_CHECK = "networks, share of their first parameters lost"
LOSS_CHECK = "networks, loss won by the judged one's"
OWN_SHORTFALL = 0.5  # of the least that a judged network retains; one with another's parameters retains nothing
CHANCE = 1.0  # standard deviation by which an update may by chance point back along the first weights


def verify_networks(problem: Problem, ends: Sequence[RunEnd], judged: Sequence[int]) -> list[Check]:
    """Check that every network comes from its own first parameters and, at equal rates, has learned as the judged ones.

    `ends` are what all networks have come to, `judged` the numbers of those that the gates found right.
    """
    least = min(ends[network].displacement.retained for network in judged)
    lost = max(_lost(problem, end.displacement, least) for end in ends)
    checks = [check(OWN_CHECK, lost, OWN_SHORTFALL)]
    if not problem.learning_rates:
        first = ends[judged[0]]
        won = [one for end in ends for one in verify_losses(problem.alone(0), first, [end])]
        checks += [
            check(LOSS_CHECK, one.error if one.error is not None else math.nan, one.limit) for one in worst_of(won)
        ]
    return checks


def _lost(problem: Problem, moved: Displacement, least: float) -> float:
    """How much less of its first weights a network retains than the judged ones, beyond chance, as a share."""
    if math.isnan(moved.retained):
        return math.inf
    squared = sum(layer.fan_out for layer in problem.layers) / 3.0  # of the first weights, which are uniform
    widest = max(1.0 / (3.0 * layer.fan_in) for layer in problem.layers)  # the variance of one of them
    chance = CHANCE * moved.distance * math.sqrt(widest) / squared
    return max(0.0, 1.0 - (moved.retained + chance) / least) if least > 0 else 0.0
