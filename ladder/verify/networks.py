"""Checks of several networks that trained together: each has parameters of its own, whether or not it is judged."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.problem import Problem
from ladder.records.run import Check
from ladder.verify.gates import check, worst_of
from ladder.verify.other_runs import RunEnd, verify_losses

OWN_CHECK = "networks, share of their first parameters lost"
LOSS_CHECK = "networks, loss won by the judged one's"
OWN_SHORTFALL = 0.5  # of the least that a judged network retains; one with another's parameters retains nothing


def verify_networks(problem: Problem, ends: Sequence[RunEnd], judged: Sequence[int]) -> list[Check]:
    """Check that every network comes from its own first parameters and, at equal rates, has learned as the judged ones.

    `ends` are what all networks have come to, `judged` the numbers of those that the gates found right.
    """
    least = min(ends[network].displacement.retained for network in judged)
    lost = max(_lost(end.displacement.retained, least) for end in ends)
    checks = [check(OWN_CHECK, lost, OWN_SHORTFALL)]
    if not problem.learning_rates:
        first = ends[judged[0]]
        won = [one for end in ends for one in verify_losses(problem.alone(0), first, [end])]
        checks += [
            check(LOSS_CHECK, one.error if one.error is not None else math.nan, one.limit) for one in worst_of(won)
        ]
    return checks


def _lost(retained: float, least: float) -> float:
    """How much less of its first parameters a network retains than the judged ones, as a share."""
    return math.inf if math.isnan(retained) else max(0.0, 1.0 - retained / least) if least > 0 else 0.0
