"""Persistent cluster: 16 multiprocessors train an epoch and keep the weights; others may multiply ahead.

Why: in a graph a step is still eight kernels, about 1 us apart, and each fetches its predecessor's results from
memory. Softmax regression has only 31 KB of weights, and 4 MFLOP a step.

Change: launch. One thread-block cluster of sixteen multiprocessors trains an epoch: weights in registers, logits and
their gradients through distributed shared memory. It absorbs gemm, epilogue, head and update. A second kernel on the
rest of the chip multiplies each batch with the one before it, so that most of a step overlaps with the step before.
It does so anew in every epoch, while the previous epoch is trained. Networks of one to four hidden layers, if shared
memory can hold them, use another kernel (cluster_plan.py).

Expect: 0.6 to 1.1 us per step for softmax regression with batches of 128 (docs/notebook/persistent-cluster-softmax.md
has the cycles), some sixteen times faster than its parent. With hidden layers 4.0 us for 784-128-128-128-10 with
batches of 32, 6.9 us for 784-256-10 with batches of 128, and 10.8 us for 784-256-256-256-10 with batches of 32.

Predict: on H200: 784-10, batch 128: 0.6 to 1.1 us; 784-256-10, batch 128: 6.9 us; 784-128x3-10, batch 32: 4 us;
784-256x3-10, batch 32: 10.8 us.

Found: softmax regression takes a fifteenth of its parent's time, just above the estimate. Two loops limit it equally,
the warps that multiply and the exchange, so shortening one alone gains nothing. 784-256-10 beats its estimate, and
784-128x3-10 misses by far, since messages take twice the expected time; larger networks do not fit on sixteen
multiprocessors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np

from common.cost import Arithmetic, Exchanges
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import cuda_graph
from stages.engine.misfit import require_cluster, require_shared_bytes, with_closest
from stages.engine.parts import int32
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import MOST_ELEMENTS, Array, Setup
from stages.persistent import cluster_plan
from stages.persistent.fragments import EDGE, fragments

BLOCKS, THREADS, SHARED_BYTES = 16, 576, 212 * 1024  # persistent_cluster.cu
GRAM_THREADS, GRAM_BYTES = 256, 192 * 1024  # neighbour_grams.cu
LANES = 32
MOST_IMAGES = 128  # of a batch: eight a block
MOST_FEATURES = 1024  # including the bias: 64 a block
MOST_CLASSES = 16


class ClusterEpoch(cuda_graph.EpochByItself):
    """An epoch by one cluster of blocks; MisfitError for a problem or a GPU that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    regime: ClassVar[Regime] = "one kernel"
    halves: ClassVar[int] = cluster_plan.EXACT  # float16 summands of a factor in networks with hidden layers
    # Every pair of halves; a pixel is one half.
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", 4, image_products=2, multiprocessors=BLOCKS),)

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        hidden = setup.problem.hidden
        self._train = cluster_plan.ClusterMlp(setup, self.halves) if hidden else ClusterRegression(setup)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        if problem.hidden:  # `divided-batch` takes no hidden layers
            return with_closest(cluster_plan.misfit(problem, steps, cls.halves), "persistent-grid")
        return regression_misfit(problem, steps)

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:  # noqa: ARG003
        """Dependent cluster hops of a step.

        Softmax regression exchanges twice in a step but works one step ahead, so a step waits for one exchange.
        """
        shared_bytes = block_shared_bytes or cluster_plan.MOST_SHARED_BYTES  # 0: older records lack it
        plan = cluster_plan.plan_for(problem, cls.halves, shared_bytes) if problem.hidden else None
        return Exchanges(cluster_hops=plan.hops if plan else 1, terms=plan.terms if plan else {})

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._train(with_metrics)


class ClusterRegression:
    """An epoch of softmax regression by a cluster for each network; MisfitError for a GPU that does not fit.

    Of several networks, which share the batches, `setup` is the first one's. Their parameters lie one after the other,
    and so do their totals.
    """

    def __init__(self, setup: Setup, learning_rates: Sequence[float] = ()) -> None:
        problem, tensors = setup.problem, setup.tensors
        self._steps, self._pairs, self._tiles = len(tensors.batches), *fragment_counts(problem)
        rates = np.array(learning_rates or [problem.learning_rate]) * (EDGE * self._pairs / problem.batch_size)
        self._networks, self._learning_rates = len(rates), setup.device.upload(rates.astype(np.float32))
        self._parameters = (tensors.weights[0], tensors.biases[0], tensors.totals, self._learning_rates)
        stride = tensors.parameters.flat.size
        self._sizes = (self._steps, self._pairs, self._tiles, problem.inputs, problem.classes, stride)
        require_shared_bytes(setup.device, SHARED_BYTES)
        self._train = self._loaded(setup, 1)
        if self._networks > require_cluster(self._train, THREADS, BLOCKS):
            self._train = self._loaded(setup, 2)
        self._images = fragments(setup.device, [images for images, _ in tensors.batches])
        self._grams = NeighbourGrams(setup, self._images, BLOCKS, self._networks)
        self._labels = setup.device.empty((self._steps, EDGE * self._pairs), np.int32)
        self._labels[...] = -1
        for own, (_, labels) in zip(self._labels, tensors.batches, strict=True):
            own[: problem.batch_size] = labels

    def _loaded(self, setup: Setup, at_a_time: int) -> Any:
        """The training kernel, so many of whose blocks fit a multiprocessor."""
        padded = setup.problem.batch_size % EDGE > 0
        macros = (("BLOCKS_A_MULTIPROCESSOR", str(at_a_time)), ("IS_PADDED", str(int(padded))))
        shared_bytes, file = SHARED_BYTES // at_a_time, "cluster/persistent_cluster.cu"
        return setup.kernel(file, "persistent_cluster", BLOCKS, shared_bytes, macros=macros)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        products = self._grams.begin()
        data, flags = (self._images, self._labels, *products), (self._grams.number, int32(with_metrics))
        self._train(self._networks, THREADS, *data, *self._parameters, *map(int32, self._sizes), *flags)
        self._grams.end()


class NeighbourGrams:
    """Products of each batch with the one before it, made anew for every epoch.

    They are made beside the training if the GPU has room for both, else before it. The training takes `clusters` of
    `blocks`; `halves` are the float16 summands of a product.
    """

    def __init__(self, setup: Setup, images: Array, blocks: int, clusters: int, halves: int = 2) -> None:
        macros = (("GRAM_HALVES", str(halves)),)
        file = "cluster/neighbour_grams.cu"
        self._multiply = setup.kernel(file, "neighbour_grams", blocks, GRAM_BYTES, macros=macros)
        self._device, self._images = setup.device, images
        at_once = require_cluster(self._multiply, GRAM_THREADS, blocks)
        self._is_beside = at_once > clusters
        self._clusters = at_once - clusters if self._is_beside else at_once
        self._steps, self._tiles, self._pairs = images.shape[:3]
        shape = (max(self._steps - 1, 1), 2 * self._pairs, self._pairs, LANES, 4 * halves)
        # By an epoch's parity: products with a flag a step, and the event that frees their memory.
        empty = setup.device.empty
        self._products = [(empty(shape, np.float16), empty(shape[:1], np.int32)) for _ in range(2)]
        self._free = [setup.device.event() for _ in range(2)]
        for (_, ready), free in zip(self._products, self._free, strict=True):
            setup.device.zero(ready)
            free.record(setup.device.stream)  # after set-up, for which the second stream does not wait by itself
        self._epochs = 0

    @property
    def number(self) -> np.int32:
        """The value of this epoch's flags."""
        return np.int32(self._epochs)

    def begin(self) -> tuple[Array, Array]:
        """Enqueue the next epoch's products; returns them and their flags.

        The products wait only for the training two epochs ago. The host runs epochs ahead of the GPU, unless it has
        waited for totals, so they run beside the previous epoch's training. The training waits for the flag of each
        step and ends after all products: the streams need no join.
        """
        self._epochs += 1
        parity = self._epochs % 2
        products, free = self._products[parity], self._free[parity]
        with self._device.beside(0, after=free) if self._is_beside else nullcontext():
            sizes = map(int32, (self._steps, self._pairs, self._tiles))
            self._multiply(self._clusters, GRAM_THREADS, self._images, *products, *sizes, self.number)
        return products

    def end(self) -> None:
        """The epoch's training, which has read the products, is enqueued."""
        self._free[self._epochs % 2].record(self._device.stream)


def regression_misfit(problem: Problem, steps: int) -> str:
    """Why softmax regression does not fit the cluster, as a sentence; empty if it fits."""
    if problem.batch_size > MOST_IMAGES:
        return f"Batch size {problem.batch_size} exceeds the limit of {MOST_IMAGES}."
    if problem.inputs >= MOST_FEATURES:
        return f"{problem.inputs} inputs exceed the limit of {MOST_FEATURES - 1}."
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
    pairs, tiles = fragment_counts(problem)
    most = steps * pairs * max(tiles, 2 * pairs) * EDGE * EDGE
    return f"{steps:,} steps exceed the limit of {MOST_ELEMENTS:,} numbers." if most > MOST_ELEMENTS else ""


def fragment_counts(problem: Problem) -> tuple[int, int]:
    """Numbers of fragments of sixteen: of a batch's images, and of the features with the bias."""
    return -(-problem.batch_size // EDGE), -(-(problem.inputs + 1) // EDGE)


STAGE = cuda_graph.STAGE.climb(
    "persistent-cluster",
    "Persistent cluster",
    words="on 16 multiprocessors; others work ahead",
    group="beyond",
    closest="divided-batch",
    launch=ClusterEpoch,
)
