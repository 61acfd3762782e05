"""The update of every rank by the gradients of all."""

from __future__ import annotations

from typing import ClassVar

from common.cost import FLOAT_BYTES, parameters
from common.problem import Problem
from common.ranks import Group
from stages.engine.parts import SeparateUpdate
from stages.engine.recipe import Gemm
from stages.engine.workspace import Setup


class RankUpdate(SeparateUpdate):
    """All gradients of this rank's images; a subclass adds the other ranks' in `finish`, and updates by the sum."""

    takes_gpus: ClassVar[bool] = True

    @classmethod
    def sends_last(cls, problem: Problem) -> int:
        """All gradients' bytes, by an all-reduce that sends each as seldom as possible."""
        return 2 * (problem.gpus - 1) * FLOAT_BYTES * parameters(problem) // problem.gpus

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        super().__init__(setup, gemm)
        self._group: Group = setup.device.group
        images = self._group.gather(setup.problem.batch_size)
        self._share = images[self._group.rank] / sum(images)  # gradients are means over this rank's images
