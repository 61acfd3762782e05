"""What grid-messages and streaming-epoch share: one cooperative launch an epoch, whose blocks send tagged messages."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from common.cost import Exchanges
from common.errors import MisfitError
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import cuda_graph
from stages.engine.misfit import require_shared_bytes
from stages.engine.parts import float32, int32
from stages.engine.workspace import Array, Setup


def require_warpgroups(device: Any, blocks: int) -> None:
    """Raise MisfitError unless the GPU has wgmma, and a multiprocessor for each block."""
    if device.capability != 90:
        raise MisfitError("Needs the warpgroup products of an sm_90 GPU.")
    if device.multiprocessors < blocks:
        raise MisfitError(f"Needs {blocks} multiprocessors; this GPU has {device.multiprocessors}.")


def bfloat16_bits(pixels: Array) -> Array:
    """float32 pixels as bits of bfloat16, ties to even, in uint32."""
    bits = pixels.view(np.uint32)
    rounded: Array = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded


class EpochByMessages(cuda_graph.EpochByItself):
    """An epoch by one cooperative launch."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    regime: ClassVar[Regime] = "one kernel"
    plans: ClassVar[Any] = None  # the module of its plans, if it has `misfit` and `plan_for` by halves
    halves: ClassVar[int]  # float16 summands of a factor
    threads: ClassVar[int]  # of a block
    gradient_scale: ClassVar[int]  # of what is sent backward

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        return str(cls.plans.misfit(problem, steps, cls.halves))

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:  # noqa: ARG003
        """The terms of its plan."""
        fits = cls.plans is not None and not cls.misfit(problem, steps)
        return Exchanges(terms=cls.plans.plan_for(problem, cls.halves, multiprocessors).terms if fits else {})

    def prepare(self, setup: Setup, source: str, kernel: str, plan: Any, images: Array) -> None:
        """Take the kernel and its arguments: images, labels, parameters, mail that begins at zero, and totals.

        Raises MisfitError where a block has too little shared memory.
        """
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        require_shared_bytes(device, plan.shared_bytes)
        macros = plan.macros(tensors.parameters.weight_begins, tensors.parameters.bias_begins)
        how: dict[str, Any] = {"cooperative": True, "shared_bytes": plan.shared_bytes, "macros": macros}
        self._train = setup.kernel(source, kernel, **how)
        steps = len(tensors.batches)
        labels = device.empty((steps, problem.batch_size), np.int32)
        for own, (_, others) in zip(labels, tensors.batches, strict=True):
            own[...] = others
        self._blocks, self._zero = plan.blocks, device.zero
        self._mail = device.empty((4 * plan.mail_units,), np.uint32)
        self._args = (images, labels, tensors.parameters.flat, self._mail, tensors.totals)
        rate = problem.learning_rate / problem.batch_size / self.gradient_scale
        self._numbers = (int32(steps), float32(rate))

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._zero(self._mail)
        self._train(self._blocks, self.threads, *self._args, *self._numbers, int32(with_metrics))
