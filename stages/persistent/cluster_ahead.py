"""Cluster ahead: one hidden layer; the first layer works one step ahead, in four more clusters.

Why: in persistent-cluster the 784-wide product and its exchange lie on the critical path: a step cannot begin before
the step before it has updated the first layer's weights. It uses 16 of 132 multiprocessors.

Change: launch. x(t) W(t) = x(t) W(t-1) - rate x(t) x(t-1)^T dh(t-1), as for softmax regression. A head cluster keeps
that small product and the output layer, sixteen units a block. Four more clusters multiply by W(t-1) and update it.
Both sides exchange through L2, in units of sixteen bytes that carry their step's tag: no flags, no fences. Of up to
1,024 units, a block has 32 or 64; with 64, warpgroups multiply.

Expect: 2.8 to 3.0 us per step for 784-256-10 with batches of 128: a miniature without updates, biases and totals took
2.55 us on an H100, and these should add 0.2 to 0.4. 6.5 us for 784-1024-10 with sixteen warps in a block of the first
layer, since eight took 9.43. 5.6 us with warpgroups, since a trial in launches of 40 steps took 5.80.

Predict: on H200: 784-256-10, batch 128: 2.9 us; 784-1024-10, batch 128: 6.5 us.

Found: it takes half of its parent's time, as predicted, since the 784-wide product has left the critical path. The
first layer's loop still binds, though it has two steps' time. 784-1024-10 beat its estimate once warpgroups multiplied,
which read a factor from shared memory once; networks of more hidden layers are not taken.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from common.cost import Arithmetic, Exchanges
from common.errors import MisfitError
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import cuda_graph
from stages.engine.misfit import require_cluster, require_shared_bytes
from stages.engine.parts import float32, int32
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Setup
from stages.persistent import ahead_plan, persistent_cluster
from stages.persistent.fragments import fragments
from stages.persistent.persistent_cluster import NeighbourGrams


class AheadEpoch(cuda_graph.EpochByItself):
    """An epoch by five clusters; MisfitError for a problem or a GPU that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    regime: ClassVar[Regime] = "one kernel"
    halves: ClassVar[int] = ahead_plan.EXACT  # float16 summands of a factor
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", 3, image_products=2),)

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors = setup.problem, setup.tensors
        plan = ahead_plan.AheadPlan(problem, self.halves)
        require_shared_bytes(setup.device, plan.shared_bytes)
        file, macros = "cluster/cluster_ahead.cu", plan.macros
        self._train = setup.kernel(file, "cluster_ahead", plan.blocks, plan.shared_bytes, macros=macros)
        at_once = require_cluster(self._train, ahead_plan.THREADS, plan.blocks)
        if at_once < ahead_plan.CLUSTERS:
            needed = f"{ahead_plan.CLUSTERS} clusters of {plan.blocks} blocks"
            raise MisfitError(f"Needs {needed} at once; this GPU runs {at_once}.")
        pixels = [images for images, _ in tensors.batches]
        self._images = fragments(setup.device, pixels, plan.pairs, plan.slice_tiles * ahead_plan.SHARES)
        self._grams = NeighbourGrams(setup, self._images, plan.blocks, ahead_plan.CLUSTERS, self.halves)
        steps = len(tensors.batches)
        self._labels = setup.device.empty((steps, plan.pairs * ahead_plan.EDGE), np.int32)
        self._labels[...] = 0
        for own, (_, labels) in zip(self._labels, tensors.batches, strict=True):
            own[: problem.batch_size] = labels
        (weights, last_weights), (bias, last_bias) = tensors.weights, tensors.biases
        self._parameters = (weights, bias, last_weights, last_bias, tensors.totals)
        self._mailboxes = [setup.device.empty((words,), np.uint32) for words in plan.mailbox_words]
        for mailbox in self._mailboxes:
            setup.device.zero(mailbox)
        self._sizes = tuple(map(int32, (steps, problem.inputs, problem.hidden[0], problem.batch_size)))
        self._rate, self._begun = float32(problem.learning_rate / problem.batch_size), 0

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        return ahead_plan.misfit(problem, steps, cls.halves)

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:  # noqa: ARG003
        """Dependent cluster hops of a step: partial logits, and dlogits."""
        return Exchanges(cluster_hops=2)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        products = self._grams.begin()
        data = (self._images, self._labels, *products, *self._parameters, *self._mailboxes, *self._sizes)
        flags = (self._grams.number, int32(self._begun), self._rate, int32(with_metrics))
        self._train(ahead_plan.CLUSTERS, ahead_plan.THREADS, *data, *flags)
        self._grams.end()
        self._begun = (self._begun + len(self._labels)) % ahead_plan.ROUNDS


STAGE = persistent_cluster.STAGE.climb(
    "cluster-ahead", "Cluster ahead", words="first layer one step ahead, four clusters", launch=AheadEpoch
)
