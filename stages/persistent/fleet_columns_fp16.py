"""Fleet columns, float16: four multiprocessors hold a network with hidden layers in float16.

Why: in float32's class a network with three hidden layers of 128 needs eight multiprocessors, since each factor is the
sum of two float16. An H200 holds fifteen such clusters: sixty-four networks take five turns.

Change: launch. The kernel of `cluster-fp16` trains each network in a cluster of four multiprocessors, or of eight if
four do not hold it. The chip holds thirty clusters of four at once, so that sixty-four networks take three turns. The
rung takes networks with hidden layers only.

Expect: each multiprocessor has twice the units, but factors and messages are half as long. So a turn takes 9 us per
step where fleet-columns takes 8.4. On an H200 sixty-four of 784-128-128-128-10 in batches of 32 take 27 us instead of
41.8, and thirty take 9 instead of 17.5.

Predict: on H200: 64 of 784-128x3-10, batch 32: 24 to 30 us; 30 of 784-128x3-10, batch 32: 8 to 10 us.

Found: in a trial sixty-four of 784-128x3-10 take about three fifths of the time of `fleet-columns`, as predicted: three
turns take the place of five. No run with every check has timed it, and nothing has timed thirty, which should gain
most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from common.cost import Arithmetic
from common.problem import Problem
from common.vocabulary import Regime
from stages.engine.fleet import FleetLaunch
from stages.engine.recipe import Precision, Recipe
from stages.engine.workspace import Setup
from stages.persistent import cluster_plan, fleet_columns
from stages.persistent.cluster_plan import ROUNDED, ClusterMlp
from stages.persistent.fleet_columns import HIDDEN_BLOCKS

BLOCKS = (4, HIDDEN_BLOCKS)  # of a network, the first that hold it


class SmallFloat16Clusters(FleetLaunch):
    """An epoch of several networks in small clusters in float16; MisfitError for a GPU that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    regime: ClassVar[Regime] = "one kernel"
    precision: ClassVar[Precision] = "float16"
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)

    def __init__(self, setups: Sequence[Setup], recipe: Recipe) -> None:  # noqa: ARG002
        first = setups[0]
        problem, steps = first.problem, len(first.tensors.batches)
        rates = [setup.problem.learning_rate for setup in setups]
        self._train = ClusterMlp(first, ROUNDED, rates, blocks_for(problem, steps))

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        if not problem.hidden:
            return "Needs at least one hidden layer."
        return cluster_plan.misfit(problem, steps, ROUNDED, blocks_for(problem, steps))

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of all networks' epochs."""
        self._train(with_metrics)


def blocks_for(problem: Problem, steps: int) -> int:
    """The blocks of a network's cluster: as few as hold it; the most if none do."""
    fitting = (blocks for blocks in BLOCKS if not cluster_plan.misfit(problem, steps, ROUNDED, blocks))
    return next(fitting, BLOCKS[-1])


STAGE = fleet_columns.STAGE.climb(
    "fleet-columns-fp16",
    "Small clusters, float16",
    words="float16, 4 multiprocessors a network",
    launch=SmallFloat16Clusters,
)
