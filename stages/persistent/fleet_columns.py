"""Fleet columns: small clusters, in each of which a few softmax regressions are columns of one product.

Why: sixteen multiprocessors are many for a softmax regression. Most of a step of `fleet-cluster` is waiting for
messages to all of them, every network reads the images anew, and sixty-four networks take five turns.

Change: launch. A cluster has four multiprocessors, and trains as many networks as are needed for all to run at once.
They see the same images, so that their classes are columns of one product, up to thirty-two of a warp group. Messages
grow with a cluster's multiprocessors, and so fall to a quarter. No products of neighbouring batches are made: half of
the images are multiplied while the other half's messages travel. No bit of a network's parameters depends on its
neighbours. A network with hidden layers has eight multiprocessors for itself, if they hold it.

Expect: on an H100, which holds thirty-one such clusters, the tensor cores need 1.35 us per step for sixty-four softmax
regressions, three a cluster. Two exchanges of 0.35 us and the softmax come on top: 2.4 us per step of all, 0.04 a
network-step, instead of 9.3. Thirty-one networks, one a cluster, take 1.6. So do seven, which stay `fleet-cluster`'s.

Predict: on H100: 64 of 784-10, batch 128: 2.1 to 2.7 us; 31 of 784-10, batch 128: 1.4 to 1.8 us; 7 of 784-10,
batch 128: 1.4 to 1.8 us.

Found: waiting was underrated, so the predictions are missed: seven softmax regressions take nearly as long as
sixty-four, and most of a step is messages, softmax, and what starts and ends each phase (docs/notebook/fleets.md). So
it loses to `fleet-cluster` with seven networks, and wins from thirty on, most with sixty-four softmax regressions
(study `fleet`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from common.cost import Arithmetic
from common.problem import Problem
from common.vocabulary import Regime
from stages.engine.fleet import FleetLaunch
from stages.engine.misfit import require_cluster, require_shared_bytes
from stages.engine.parts import int32
from stages.engine.recipe import Recipe
from stages.engine.workspace import Array, Device, Setup
from stages.persistent import cluster_plan, fleet_cluster
from stages.persistent.cluster_plan import ClusterMlp
from stages.persistent.fragments import EDGE, fragments
from stages.persistent.persistent_cluster import fragment_counts, regression_misfit

BLOCKS, THREADS, STAGES = 4, 256, 2  # fleet_columns.cu
MOST_NETWORKS, MOST_COLUMNS = 4, 32  # of a cluster: two warps a network, and the rows of a warp group's product
PART = 13  # chunks of features that are multiplied at once
HIDDEN_BLOCKS = 8  # of a network with hidden layers


class SmallClusters(FleetLaunch):
    """An epoch of several networks in small clusters; MisfitError for a GPU that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    regime: ClassVar[Regime] = "one kernel"
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = fleet_cluster.ClusterForEach.arithmetic

    def __init__(self, setups: Sequence[Setup], recipe: Recipe) -> None:  # noqa: ARG002
        first = setups[0]
        rates = [setup.problem.learning_rate for setup in setups]
        if first.problem.hidden:
            self._train: Callable[[bool], None] = ClusterMlp(first, learning_rates=rates, blocks=HIDDEN_BLOCKS)
        else:
            self._train = ColumnsOfOneProduct(first, rates)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        if problem.hidden:
            return cluster_plan.misfit(problem, steps, blocks=HIDDEN_BLOCKS)
        if problem.batch_size % EDGE:
            return f"Batch size {problem.batch_size} is not a multiple of {EDGE}."
        return regression_misfit(problem, steps)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of all networks' epochs."""
        self._train(with_metrics)


class ColumnsOfOneProduct:
    """An epoch of several softmax regressions, a few in each cluster; MisfitError for a GPU that does not fit.

    `setup` is the first network's. Their parameters lie one after the other, and so do their totals.
    """

    def __init__(self, setup: Setup, learning_rates: Sequence[float]) -> None:
        problem, tensors, count = setup.problem, setup.tensors, len(learning_rates)
        most = min(MOST_NETWORKS, MOST_COLUMNS // problem.classes)
        require_shared_bytes(setup.device, shared_bytes(problem, most))
        at_once = require_cluster(_kernel(setup, most), THREADS, BLOCKS)
        turns = -(-count // (at_once * most))
        networks = -(-count // (at_once * turns))
        self._train = _kernel(setup, networks)
        self._clusters = -(-count // networks)
        labels = setup.device.empty((len(tensors.batches), problem.batch_size), np.int32)
        for own, (_, batch) in zip(labels, tensors.batches, strict=True):
            own[...] = batch
        images = chunks(setup.device, fragments(setup.device, [images for images, _ in tensors.batches]))
        rates = setup.device.upload(np.array(learning_rates, np.float32))
        sizes = (len(tensors.batches), problem.inputs, tensors.parameters.flat.size, count)
        self._arguments = (images, labels, tensors.weights[0], tensors.biases[0], tensors.totals, rates)
        self._sizes = tuple(map(int32, sizes))

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of all networks' epochs."""
        self._train(self._clusters, THREADS, *self._arguments, *self._sizes, int32(with_metrics))


def _kernel(setup: Setup, networks: int) -> Any:
    """The kernel for so many networks a cluster."""
    own, sizes = shared_bytes(setup.problem, networks), macros(setup.problem, networks)
    return setup.kernel("cluster/fleet_columns.cu", "fleet_columns", BLOCKS, own, macros=sizes)


def macros(problem: Problem, networks: int) -> tuple[tuple[str, str], ...]:
    """What the kernel is compiled for."""
    pairs, tiles = fragment_counts(problem)
    sizes = (BLOCKS, networks, problem.classes, tiles, pairs, shared_bytes(problem, networks))
    return (("SIZES", ",".join(map(str, sizes))),)


def chunks(device: Device, four: Array) -> Array:
    """All images of the same eight features together: fragments as (steps, 2 tiles, 2 pairs, 8, 8)."""
    steps, tiles, pairs = four.shape[:3]
    whole = device.empty((steps, 2 * tiles, 2 * pairs, 8, 8), np.float16)
    whole.reshape(steps, tiles, 2, pairs, 2, 8, 8)[...] = four.transpose(0, 1, 4, 2, 3, 5, 6)
    return whole


def shared_bytes(problem: Problem, networks: int) -> int:
    """Shared memory of a block that trains so many networks: struct Shared of fleet_columns.cu."""
    pairs, tiles = fragment_counts(problem)
    parts, halves = -(-2 * -(-tiles // BLOCKS) // PART), -(-pairs // BLOCKS)
    images = STAGES * parts * PART * 2 * pairs * 8 * 16
    dlogits = 2 * pairs * 2 * MOST_COLUMNS * 16 + networks * halves * 4 * problem.classes * 16
    partial_logits = halves * BLOCKS * networks * problem.classes * 16 * 4
    totals, barriers = networks * BLOCKS * halves * 16, (2 * STAGES + 2 * halves + 1) * 8
    return -(-(images + dlogits + partial_logits + totals + barriers) // 128) * 128


STAGE = fleet_cluster.STAGE.climb(
    "fleet-columns", "Networks as columns", words="a few networks as columns, 4 multiprocessors", launch=SmallClusters
)
