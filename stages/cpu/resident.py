"""CPU resident: each core keeps its share of the weights for the whole epoch; only sums of logits travel.

Why: with images shared out, each core reads all weights, half of which the other core has just written: 15 KB a step
move between caches.

Change: launch. The pixels are shared out instead: a core owns the weights of its pixels, which stay in its first-level
cache. Each multiplies all images by its weights; the cores meet; each adds up the partial logits of some images and
runs their head; they meet again, and each updates its own weights. `persistent-cluster` is its cousin.

Expect: 5 KB of partial logits travel instead of 15 KB of weights, and a core converts half of the bytes once instead
of twice: some 4 us less with two cores, more with more.

Predict: on CPU with 2 cores: 784-10, batch 128: 4 us less than cpu-cores.

Found: half of the estimate is gained, which is within noise. By the profile products gain, and the cores wait less for
each other than in `cpu-cores`. But partial logits have to be added up and meetings stay, so that nearly a third of a
step is no product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from common.cpu.cores import usable_cores
from common.problem import Problem
from stages.classic.cuda_graph import EpochByItself
from stages.cpu import cores
from stages.cpu.bytes import HostBytes
from stages.cpu.cores import VECTOR
from stages.cpu.products import FEW_COLUMNS
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Array, Setup

if TYPE_CHECKING:
    from common.cpu.host import Replay


class ResidentEpoch(EpochByItself):
    """An epoch of softmax regression on all cores, each with the weights of some pixels."""

    needs = ()

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        from common.cpu.host import Team, shares  # late, since Numba is slow to import and may be missing

        problem, device = setup.problem, setup.device
        threads = device.threads = min(usable_cores(), problem.batch_size, -(-problem.inputs // VECTOR))
        self._setup, self._team = setup, Team(threads)
        self._pixels = shares(problem.inputs, threads, VECTOR)
        self._images = shares(problem.batch_size, threads)
        self._totals = [np.zeros(64, np.float64)[:2] for _ in range(threads)]
        self._partials = device.empty((threads, problem.batch_size, problem.classes), np.float32)
        self._lists = {due: self._recorded(due) for due in (False, True)}

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Why a problem does not fit; empty if it does."""
        if not problem.is_logistic:
            return "Needs a network without hidden layers."
        return f"Needs {FEW_COLUMNS} classes at most." if problem.classes > FEW_COLUMNS else ""

    def _recorded(self, with_totals: bool) -> list[Replay]:
        """One list a thread for a whole epoch."""
        from common.cpu.host import Replay  # late, since Numba is slow to import and may be missing

        device, batches = self._setup.device, self._setup.tensors.batches
        assert isinstance(batches, HostBytes)
        barrier, lists = self._team.barrier(), []
        for thread in range(self._team.threads):
            gemm = cores.RECIPE.gemm(self._setup)
            weight = self._setup.tensors.weights[0][self._pixels[thread]]
            with device.recorded() as calls:
                for images, labels in batches.as_bytes:
                    own = images[:, self._pixels[thread]]
                    gemm(own, weight, self._partials[thread])
                    device.do(barrier)
                    self._head(thread, labels, with_totals)
                    device.do(barrier)
                    self._update(thread, gemm, own, weight)
            lists.append(Replay(calls, thread))
        return lists

    def _head(self, thread: int, labels: Array, with_totals: bool) -> None:
        """Logits and their gradient for the thread's images."""
        tensors, images, problem = self._setup.tensors, self._images[thread], self._setup.problem
        logits, kernel = tensors.logits[images], self._setup.device.kernel
        partials = self._partials[:, images]
        kernel("", "sum_partials").run(
            partials, self._team.threads, self._partials[0].size, logits, tensors.biases[0], *logits.shape
        )
        sizes = (*logits.shape, int(with_totals), problem.batch_size)
        kernel("", "softmax_xent_share").run(
            logits, labels[images], tensors.dlogits[images], self._totals[thread], *sizes
        )

    def _update(self, thread: int, gemm: object, own: Array, weight: Array) -> None:
        """The thread's weights; the first thread's biases as well."""
        tensors, rate = self._setup.tensors, self._setup.problem.learning_rate
        gemm(own, tensors.dlogits, weight, trans_a=True, alpha=-rate, beta=1.0)  # type: ignore[operator]
        if thread == 0:
            update = self._setup.device.kernel("", "bias_update")
            update.run(tensors.dlogits, tensors.biases[0], float(rate), *tensors.dlogits.shape)

    def __call__(self, with_metrics: bool) -> None:
        """Train on every batch, in order."""
        self._team.run(self._lists[with_metrics])
        if with_metrics:
            for own in self._totals:  # in their order, so that the sum is the same in every run
                self._setup.tensors.totals[...] += own
                own[...] = 0


STAGE = cores.STAGE.climb(
    "cpu-resident", "Weights stay in their core", words="weights stay in their core", launch=ResidentEpoch
)
