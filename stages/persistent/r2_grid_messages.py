"""Grid messages: blocks wait for tagged messages of a few others, not for barriers of all.

Why: persistent-grid has four barriers of all blocks a further layer. Each costs 0.9 us, and then every block reads
parts of sums from blocks all over the chip.

Change: launch. Units of a layer are divided into sixteen shares, those of the next into seven, and so in turn: a block
has the weights between two shares, and adds up with fifteen or six others only. What blocks exchange carries its
round's tag in its lowest bit: no barriers, flags or fences. An update hides in the wait for the gradients below it.

Expect: 22.5 us a step for 784-784x4-10 with batches of 64, where its parent takes 48. A form before took 30.2 in a
trial. Of that the softmax of four images a block, through barriers, the biases that every block knows, and thin sums
through L2 instead of inside clusters are 8 us by its samples.

Predict: on H200: 784-784x4-10, batch 64: 22.5 us.

Found: it halves a step of 784-784x4-10, within a tenth of the prediction; sums among blocks are now half of it. Sums
inside clusters were faster in a miniature, and gained nothing here (docs/notebook/persistent-grid.md). 784-256-10 gains
nothing, and 784-128x3-10 takes a third longer: its parent takes narrow layers in one phase, without an exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from common.cost import Arithmetic, Exchanges
from common.errors import MisfitError
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import r6_cuda_graph
from stages.engine.misfit import closest_rung, require_shared_bytes, with_closest
from stages.engine.parts import float32, int32
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Array, Device, Setup
from stages.persistent import messages_plan, r1_persistent_grid
from stages.persistent.messages_plan import MessagesPlan


class MessagesEpoch(r6_cuda_graph.EpochByItself):
    """An epoch by one cooperative launch; MisfitError for a problem or a GPU that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    regime: ClassVar[Regime] = "one kernel"
    halves: ClassVar[int] = messages_plan.EXACT  # float16 summands of a factor
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", 3, image_products=2),)
    closest: ClassVar[str] = r1_persistent_grid.STAGE.name  # the rung for other problems and GPUs

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        if reason := self.misfit(problem, len(tensors.batches)):
            raise MisfitError(reason)
        with closest_rung(self.closest):
            plan = messages_plan.plan_for(problem, self.halves, device.multiprocessors)
            require_shared_bytes(device, plan.shared_bytes)
            macros = plan.macros(tensors.parameters.weight_begins, tensors.parameters.bias_begins)
            how: dict[str, Any] = {"cooperative": True, "shared_bytes": plan.shared_bytes, "macros": macros}
            self._train = setup.kernel("grid/grid_messages.cu", "grid_messages", **how)
        steps = len(tensors.batches)
        labels = device.empty((steps, problem.batch_size), np.int32)
        for own, (_, others) in zip(labels, tensors.batches, strict=True):
            own[...] = others
        images = shares_of(device, [pixels for pixels, _ in tensors.batches], plan)
        self._blocks, self._zero = plan.blocks, device.zero
        self._mail = device.empty((4 * plan.mail_units,), np.uint32)
        self._args = (images, labels, tensors.parameters.flat, self._mail, tensors.totals)
        rate = problem.learning_rate / problem.batch_size / messages_plan.GRADIENT_SCALE
        self._numbers = (int32(steps), float32(rate))

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit, and the closest rung; empty if it fits."""
        return with_closest(messages_plan.misfit(problem, steps, cls.halves), cls.closest)

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:  # noqa: ARG003
        """None by a barrier of the grid or in a cluster: messages of a few blocks go through L2."""
        return Exchanges()

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._zero(self._mail)
        self._train(self._blocks, messages_plan.THREADS, *self._args, *self._numbers, int32(with_metrics))


def shares_of(device: Device, batches: Sequence[Array], plan: MessagesPlan) -> Array:
    """The batches (B, I) as the kernel's images: (steps, shares, I / 8, B / 8, 8, 8) bits of float16, padded."""
    shares, edges, rows, edge, _ = plan.images_shape
    images = device.empty((len(batches), *plan.images_shape), np.uint16)
    device.zero(images)
    share = plan.share(0)
    for own, pixels in zip(images, batches, strict=True):
        bits = pixels.astype(np.float16).view(np.uint16)
        for index in range(shares):
            part = bits[:, index * share : (index + 1) * share]
            padded = device.empty((rows * edge, edges * edge), np.uint16)
            device.zero(padded)
            padded[: part.shape[0], : part.shape[1]] = part
            own[index] = padded.reshape(rows, edge, edges, edge).transpose(2, 0, 1, 3)
    return images


STAGE = r1_persistent_grid.STAGE.climb(
    "grid-messages", "Grid messages", words="tagged messages instead of barriers", launch=MessagesEpoch
)
