"""CPU cores: all cores share a step and meet twice in it.

Why: one core computes while the others idle. A batch of 128 images is work for several, if meeting costs less than it
gains: two threads meet in some 0.2 us where each has a core.

Change: launch. Each thread takes its share of the images forward, through the head and backward. They meet. Then each
updates its share of the weights from all images, and they meet again. One thread of the process a core that it may
use. `persistent-grid` is its cousin.

Expect: with two cores nearly half the time of a step: 20 us instead of 36 for 784-10. Weights that the other core has
written come from its cache: 15 KB a step, about 3 us.

Predict: on CPU with 2 cores: 784-10, batch 128: 1.8 x of cpu-bytes.

Found: 784-10 gains less than predicted. By the profile the barriers cost little; the products take more than half of
their time on one core, while weights travel between the caches. 784-256-10 comes nearer to twice the speed, and
784-128x3-10 in batches of 32 less near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from common.cpu.cores import usable_cores
from stages.classic.cuda_graph import EpochByItself
from stages.cpu import bytes
from stages.cpu.products import TileGemm
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Array, Setup, Workspace

if TYPE_CHECKING:
    from common.cpu.host import Replay

VECTOR = 16  # numbers: shares of inputs and units begin at a cache line
assert bytes.STAGE.recipe is not None
RECIPE = bytes.STAGE.recipe


class Share(Workspace):
    """The tensors of a workspace as one thread sees them: some images of each batch, totals of its own."""

    def __init__(self, whole: Workspace, images: slice) -> None:
        self.memory, self.batches, self.parameters = whole.memory, whole.batches, whole.parameters
        self.weights, self.biases = whole.weights, whole.biases
        self.outputs = [output[images] for output in whole.outputs]
        self.doutputs = [doutput[images] for doutput in whole.doutputs]
        self.totals = np.zeros(64, np.float64)[:2]  # with a cache line to itself


class Worker:
    """One thread's calls in a step."""

    def __init__(
        self, own: Setup, whole: Setup, images: slice, thread: int, threads: int, gemm: type[TileGemm]
    ) -> None:
        from common.cpu.host import shares  # late, since Numba is slow to import and may be missing

        self._own, self._whole, self._images = own, whole, images
        self._layers = list(enumerate(whole.problem.layers))
        self._gemm = gemm(own)
        self._epilogue = RECIPE.epilogue(own, self._gemm)
        self._head = own.device.kernel("", "softmax_xent_share")
        self._shares = [shares(max(la.fan_in, la.fan_out), threads, VECTOR)[thread] for _, la in self._layers]
        self._thread, self._threads = thread, threads

    def forward_and_backward(self, pixels: Array, labels: Array, with_totals: bool) -> Array:
        """The share of the images, up to the outputs' gradients; returns the whole batch as the update reads it."""
        batches, tensors = self._whole.tensors.batches, self._own.tensors
        images = batches.expanded(pixels, self._images)
        inputs = images[self._images]
        for layer, _ in self._layers:
            self._epilogue.forward(layer, inputs)
            inputs = tensors.outputs[layer]
        rows, classes = tensors.logits.shape
        sizes = (rows, classes, int(with_totals), self._whole.problem.batch_size)
        self._head.run(tensors.logits, labels[self._images], tensors.dlogits, tensors.totals, *sizes)
        for layer in range(len(self._layers) - 1, 0, -1):
            self._epilogue.backward(layer)
        return images

    def update(self, images: Array) -> None:
        """The share of every layer's weights, from all images: units of a wide layer, inputs of a narrow one."""
        tensors, rate = self._whole.tensors, self._whole.problem.learning_rate
        for layer, sizes in self._layers:
            inputs = tensors.outputs[layer - 1] if layer else images
            doutput, weight, share = tensors.doutputs[layer], tensors.weights[layer], self._shares[layer]
            if sizes.fan_out > sizes.fan_in:
                doutput_share, weight, inputs_share = doutput[:, share], weight[:, share], inputs
            else:
                doutput_share, weight, inputs_share = doutput, weight[share], inputs[:, share]
            if weight.size:
                self._gemm(inputs_share, doutput_share, weight, trans_a=True, alpha=-rate, beta=1.0)
            if layer % self._threads == self._thread:
                self._gemm.update_bias(tensors.biases[layer], doutput, rate)


class CoresEpoch(EpochByItself):
    """An epoch on all cores, recorded as one list of calls for each."""

    needs = ()
    gemm: ClassVar[type[TileGemm]] = TileGemm  # as in the recipe

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        from common.cpu.host import Team, shares  # late, since Numba is slow to import and may be missing

        self._setup = setup
        device = setup.device
        threads = device.threads = min(usable_cores(), setup.problem.batch_size)
        self._team = Team(threads)
        self._images = shares(setup.problem.batch_size, threads)
        self._own = [Setup(setup.problem, device, Share(setup.tensors, images)) for images in self._images]
        self._lists = {due: self._recorded(due) for due in (False, True)}

    def _recorded(self, with_totals: bool) -> list[Replay]:
        """One list a thread for a whole epoch."""
        from common.cpu.host import Replay  # late, since Numba is slow to import and may be missing

        device, lists = self._setup.device, []
        barrier = self._team.barrier()
        for thread, setup in enumerate(self._own):
            worker = Worker(setup, self._setup, self._images[thread], thread, len(self._own), self.gemm)
            with device.recorded() as calls:
                for pixels, labels in self._setup.tensors.batches.as_bytes:
                    images = worker.forward_and_backward(pixels, labels, with_totals)
                    device.do(barrier)
                    worker.update(images)
                    device.do(barrier)
            lists.append(Replay(calls, thread))
        return lists

    def __call__(self, with_metrics: bool) -> None:
        """Train on every batch, in order."""
        self._team.run(self._lists[with_metrics])
        if with_metrics:
            for own in self._own:  # in their order, so that the sum is the same in every run
                self._setup.tensors.totals[...] += own.tensors.totals
                own.tensors.totals[...] = 0


STAGE = bytes.STAGE.climb("cpu-cores", "All cores", words="all cores share a step", launch=CoresEpoch)
