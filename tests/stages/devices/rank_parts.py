"""Ranks on the CPU: NumPy's parts, and a stand-in for what adds up their gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from common.ranks import Group
from common.trainer import Trainer
from stages.devices.rank_update import RankUpdate
from stages.engine.recipe import Gemm
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Array, Setup
from tests.stages.numpy_parts import RECIPE, HostDevice


class GatheredUpdate(RankUpdate):
    """The sum of all ranks' gradients by the pipes that they prepare with."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        super().__init__(setup, gemm)
        self._rate = np.float32(setup.problem.learning_rate)

    def __call__(self, layer: int, inputs: Array) -> None:
        doutput = self._doutputs[layer]
        self._gemm(inputs, doutput, self._gradients.weights[layer], trans_a=True)
        self._gradients.biases[layer][...] = doutput.sum(axis=0)

    def finish(self) -> None:
        shares = self._group.gather(np.float32(self._share) * self._gradients.flat)
        self._parameters -= self._rate * sum(shares[1:], start=shares[0])


class RankDevice(HostDevice):
    kind: Literal["cpu", "gpu"] = "cpu"

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def kernel(self, *args: object, **how: object) -> None:
        return None


def build(group: Group, problem: Problem, train: Split) -> Trainer:
    return RecipeTrainer(replace(RECIPE, update=GatheredUpdate), problem, train, RankDevice(group))
