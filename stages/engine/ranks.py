"""A trainer on several GPUs: each trains on its share of every batch, and all make the same updates."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from common.choice import await_turn
from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem
from common.ranks import Build, Others, start_others
from common.trainer import EpochMetrics, ValidatingTrainer, mean_of

_keys = itertools.count()


def share_of(problem: Problem, train: Split, rank: int) -> tuple[Problem, Split]:
    """A rank's images of every full batch, in order, and the problem of training on them alone.

    Shares are consecutive images of a batch, and differ by one image at most.
    """
    batch, steps = problem.batch_size, problem.steps(len(train.images))
    begin, end = (batch * part // problem.gpus for part in (rank, rank + 1))
    rows = (batch * np.arange(steps)[:, None] + np.arange(begin, end)).ravel()
    return replace(problem, batch_size=end - begin, gpus=1), Split(train.images[rows], train.labels[rows])


class RanksTrainer:
    """A `WaitingTrainer` of `problem.gpus` ranks: its process is rank 0, and the others follow its commands."""

    def __init__(
        self, build: Build, problem: Problem, train: Split, others: Callable[[int], Others] = start_others
    ) -> None:
        await_turn()  # all ranks choose by timing now
        self._others, self._key = others(problem.gpus), next(_keys)
        shares = [share_of(problem, train, rank) for rank in range(problem.gpus)]
        self._others.tell_each("build", self._key, own=lambda rank: (build, *shares[rank]))
        self._own = build(self._others.group, *shares[0])
        self._others.answers()
        self._images = [own.batch_size for own, _ in shares]
        self._last: EpochMetrics | None = None
        self.detail = f"{problem.gpus} GPUs"
        self.device: Literal["cpu", "gpu"] = self._own.device
        self.cuda_stream = self._own.cuda_stream

    def load_params(self, params: Params) -> None:
        """Start from these parameters; returns when every rank has them: its run may be timed from here."""
        self._others.load(self._key, params)
        self._own.load_params(params)
        self.wait()

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        self._others.tell("epoch", self._key, epoch)
        self._own.run_epoch(epoch)
        self._last = self._own.last_metrics()
        if self._last is not None:
            self._last = mean_of(list(zip((self._last, *self._others.answers()), self._images, strict=True)))

    def last_metrics(self) -> EpochMetrics | None:
        """The metrics of the last epoch over the images of all ranks; None if it was not due."""
        return self._last

    def wait(self) -> None:
        """Return when every other rank has finished; the fence waits for this one."""
        self._others.tell("wait", self._key)
        self._others.answers()

    def prepare_validation(self, test: Split) -> None:
        """Prepare to evaluate by rank 0 alone; raises MisfitError if it cannot."""
        if not isinstance(self._own, ValidatingTrainer):
            raise MisfitError("its trainer has no validate(); leave out --validate-every")
        self._own.prepare_validation(test)

    def validate(self) -> EpochMetrics:
        """Loss and accuracy on the test images."""
        assert isinstance(self._own, ValidatingTrainer)
        return self._own.validate()

    def read_params(self) -> Params:
        """The current parameters of rank 0, which are those of every rank."""
        return self._own.read_params()

    def replicas(self) -> list[Params]:
        """The current parameters of each rank."""
        self._others.tell("read", self._key)
        return [self.read_params(), *self._others.answers()]

    def close(self) -> None:
        """Close every rank's trainer; the ranks themselves stay for the next one."""
        self._others.tell("close", self._key)
        self._own.close()
