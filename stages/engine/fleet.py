"""Several networks by one recipe: each has tensors and a step of its own, and one launch trains them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike

from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from stages.engine.recipe import Launch, Recipe
from stages.engine.workspace import (
    Array,
    Device,
    ParameterMemory,
    Setup,
    Workspace,
    check_sizes,
    load_params,
    read_params,
)


class FleetLaunch(Launch):
    """How the steps of several networks reach the device; made from the set-up of each and the recipe of their steps.

    All parameters lie in memory one network after the other, and so do all totals.
    """

    writes_parameters: ClassVar[bool] = True

    def __init__(self, setups: Sequence[Setup], recipe: Recipe) -> None: ...

    @classmethod
    def lanes(cls, networks: int) -> int:  # noqa: ARG003
        """How many copies of the batches there are; network k reads copy k modulo this."""
        return 1


class FleetTrainer:
    """The trainer of a recipe with a `FleetLaunch`."""

    def __init__(self, recipe: Recipe, problem: Problem, train: Split, device: Device) -> None:
        steps = problem.steps(len(train.images))
        check_sizes(problem, steps)
        if reason := recipe.misfit(problem, steps):
            raise MisfitError(reason)
        self._device, self._images = device, steps * problem.batch_size
        memory, count = recipe.memory(device), problem.networks
        assert issubclass(recipe.launch, FleetLaunch)
        lanes = [recipe.data(device, problem.alone(0), train) for _ in range(recipe.launch.lanes(count))]
        self._totals = device.empty((count, 2), np.float64)
        device.zero(self._totals)
        parameters = parameter_stack(device, problem)
        self._setups = []
        for network, own in enumerate(parameters):
            tensors = Workspace(device, problem, memory, lanes[network % len(lanes)], own)
            tensors.totals = self._totals[network]
            self._setups.append(Setup(problem.alone(network), device, tensors))
        self._due = recipe.metrics(self._setups[0]).due
        self._launch = recipe.launch(self._setups, recipe)
        self._last: EpochMetrics | None = None
        self.detail = device.detail
        self.device: Literal["cpu", "gpu"] = device.kind
        self.cuda_stream: int | None = device.stream_handle

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        for setup, own in zip(self._setups, params.apart(), strict=True):
            load_params(setup, own)

    def run_epoch(self, epoch: int) -> None:
        """Train every network on every full batch once, in order."""
        due = self._due(epoch)
        if due:
            self._device.zero(self._totals)
        self._launch(with_metrics=due)
        self._last = None
        if due:
            means = self._device.download(self._totals) / self._images
            self._last = EpochMetrics.over([EpochMetrics(float(loss), float(right)) for loss, right in means])

    def last_metrics(self) -> EpochMetrics | None:
        """The metrics of the last epoch; None if it was not due."""
        return self._last

    def read_params(self) -> Params:
        """The current parameters."""
        return Params.stacked([read_params(setup) for setup in self._setups])

    def close(self) -> None:
        """Release the memory."""
        del self._launch, self._setups, self._totals


def parameter_stack(device: Device, problem: Problem) -> list[ParameterMemory]:
    """New parameters of each network, all zero, one after the other in memory."""
    stack: Array = None
    found = []
    for network in range(problem.networks):

        def own(shape: tuple[int, ...], dtype: DTypeLike, network: int = network) -> Array:
            nonlocal stack
            if stack is None:
                stack = device.empty((problem.networks, *shape), dtype)
                device.zero(stack)
            return stack[network]

        found.append(ParameterMemory(own, problem, device.keeps_columns))
    return found
