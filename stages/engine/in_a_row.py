"""Several networks by a stage that trains one: one whole training after the other, as its users would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import numpy as np

from common.data.dataset import Split
from common.problem import Params, Problem
from common.trainer import EpochMetrics, Trainer, wait_of


class EpochOfAll:
    """An epoch's metrics, which are known when the last network has trained."""

    def __init__(self) -> None:
        self._seen: list[EpochMetrics] = []

    def add(self, seen: EpochMetrics) -> None:
        """The next network's."""
        self._seen.append(EpochMetrics(float(seen.mean_loss), float(seen.accuracy)))

    @property
    def networks(self) -> tuple[EpochMetrics, ...]:
        """Of each network."""
        return tuple(self._seen)

    @property
    def mean_loss(self) -> float:
        """The mean over the networks."""
        return EpochMetrics.over(self._seen).mean_loss

    @property
    def accuracy(self) -> float:
        """The mean over the networks."""
        return EpochMetrics.over(self._seen).accuracy


class InARow:
    """A `WaitingTrainer` of several networks, from a trainer of one for each learning rate.

    `run_epoch` trains the first network. The others follow in `wait`: each loads its parameters, trains for all epochs
    since the last wait, and is read, all of which is timed.
    """

    def __init__(self, build: Callable[[Problem, Split], Trainer], problem: Problem, train: Split) -> None:
        alone = list(map(problem.alone, range(problem.networks)))
        by_problem = {one: build(one, train) for one in dict.fromkeys(alone)}
        self._trainers = [by_problem[one] for one in alone]
        self._open = list(by_problem.values())
        first = self._trainers[0]
        row = f"{problem.networks} in a row"
        self.detail = f"{first.detail}, {row}" if first.detail else row
        self.device: Literal["cpu", "gpu"] = first.device
        self.cuda_stream: int | None = first.cuda_stream
        self._params: list[Params] = []
        self._begun: list[tuple[int, EpochOfAll | None]] = []  # epochs that the others have to train yet
        self._last: EpochOfAll | None = None
        self._held = 0  # the network that was loaded last

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        self._params = params.apart()
        self._begun, self._last = [], None
        self._load(0)

    def run_epoch(self, epoch: int) -> None:
        """Train the first network on every full batch once, in order; the others wait."""
        if self._held:
            self._load(0)
        self._trainers[0].run_epoch(epoch)
        self._last = None
        if (seen := self._trainers[0].last_metrics()) is not None:
            self._last = EpochOfAll()
            self._last.add(seen)
        self._begun.append((epoch, self._last))

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due; complete after `wait`."""
        return cast(EpochMetrics | None, self._last)

    def wait(self) -> None:
        """Finish the first network and train the others."""
        if not self._begun:
            return
        self._read(0)
        for network in range(1, len(self._trainers)):
            self._load(network)
            trainer = self._trainers[network]
            for epoch, of_all in self._begun:
                trainer.run_epoch(epoch)
                if of_all is not None and (seen := trainer.last_metrics()) is not None:
                    of_all.add(seen)
            self._read(network)
        self._begun = []

    def read_params(self) -> Params:
        """The current parameters of all networks."""
        return Params.stacked(self._params)

    def close(self) -> None:
        """Close every trainer."""
        for trainer in self._open:
            trainer.close()

    def _load(self, network: int) -> None:
        self._trainers[network].load_params(self._params[network])
        self._held = network

    def _read(self, network: int) -> None:
        trainer = self._trainers[network]
        wait_of(trainer)()
        self._params[network] = trainer.read_params().map(np.array)
