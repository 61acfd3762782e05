"""Fleet cluster: a cluster of multiprocessors for each of several networks, as many as the chip holds.

Why: `persistent-cluster` trains on 16 multiprocessors of 132. A sweep trains its networks in a row, and each run makes
the products of neighbouring batches anew, which depend on the data alone.

Change: launch. One kernel has a cluster for each network. Clusters do not wait for each other, so that the GPU starts
the next one where one has ended. The products are made once an epoch for all networks: beside the training where there
is room, else by all multiprocessors before it. Each network has, bit for bit, the parameters that it has alone.

Expect: softmax regressions in batches of 128 on an H100, which holds seven clusters. Six train beside their products:
1.2 us per step of all, 0.20 a network-step. Seven fill the chip, and their products come first, 0.12 us: 1.3 us, 0.19 a
network-step. Sixty-four take ten turns: 11.5 us, 0.18 a network-step. JAX's `vmap` took 16.2 for seven and 28.7 for
sixty-four in a trial. Seven of 784-128-128-128-10 in batches of 32 take as long as one, 6.5 us, 0.93 a network-step,
where `vmap` took 55; sixty-four take ten turns, 65 us.

Predict: on H100: 6 of 784-10, batch 128: 1.2 us; 7 of 784-10, batch 128: 1.3 us; 64 of 784-10, batch 128: 11.5 us;
7 of 784-128x3-10, batch 32: 6.5 us; 64 of 784-128x3-10, batch 32: 65 us.

Found: as predicted, as many networks as the chip has clusters take hardly longer than one. Sixty-four softmax
regressions beat the estimate, since two clusters share their multiprocessors; sixty-four of 784-128x3-10 take their
turns. A cluster still spends most of a step waiting for messages, so from thirty networks on `fleet-columns` is faster
(study `fleet`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from common.cost import Arithmetic
from common.problem import Problem
from common.vocabulary import Regime
from stages.engine.fleet import FleetLaunch
from stages.engine.recipe import Recipe
from stages.engine.workspace import Setup
from stages.persistent import cluster_plan, persistent_cluster
from stages.persistent.persistent_cluster import ClusterEpoch, ClusterRegression, regression_misfit


class ClusterForEach(FleetLaunch):
    """An epoch of several networks, each by a cluster; MisfitError for a GPU that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ClusterEpoch.needs
    regime: ClassVar[Regime] = "one kernel"
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = ClusterEpoch.arithmetic

    def __init__(self, setups: Sequence[Setup], recipe: Recipe) -> None:  # noqa: ARG002
        first = setups[0]
        rates = [setup.problem.learning_rate for setup in setups]
        if first.problem.hidden:
            self._train: Callable[[bool], None] = cluster_plan.ClusterMlp(first, learning_rates=rates)
        else:
            self._train = ClusterRegression(first, rates)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        return cluster_plan.misfit(problem, steps) if problem.hidden else regression_misfit(problem, steps)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of all networks' epochs."""
        self._train(with_metrics)


STAGE = persistent_cluster.STAGE.climb(
    "fleet-cluster",
    "A cluster a network",
    words="a cluster for each of several networks",
    closest="persistent-grid",  # which trains them in a row
    launch=ClusterForEach,
)
