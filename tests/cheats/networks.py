"""Wrong and dishonest trainers of several networks.

Why: they show that each network is judged, whether or not an oracle repeats it.

Change: each is `numpy-stacked` with one defect.

Expect: none passes.
"""

from __future__ import annotations

from dataclasses import replace

from common.data.dataset import Split
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from ladder.verify.other_runs import LOSS_CHECK, OWN_CHECK
from stages.engine.stage import Stage
from stages.references.numpy_stacked import StackedTrainer
from tests.cheats.defects import name_of, planted

UNJUDGED = 3  # of eight networks, by the salt of the tests


class _Copies(StackedTrainer):
    """Presents the first network's parameters as another one's."""

    def read_params(self) -> Params:
        params = super().read_params()
        for tensor in (*params.weights, *params.biases):
            tensor[UNJUDGED] = tensor[0]
        return params


class _LeavesOneOut(StackedTrainer):
    """Never trains one of the networks."""

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._first = params

    def read_params(self) -> Params:
        params = super().read_params()
        for tensor, first in zip(params.weights, self._first.weights, strict=True):
            tensor[UNJUDGED] = first[UNJUDGED]
        return params


class _AtOneRate(StackedTrainer):
    """Trains every network at the first one's rate."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._rates = self._rates[:1]


class _TellsMeans(StackedTrainer):
    """Says nothing of each network."""

    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(self._last.mean_loss, self._last.accuracy) if self._last else None


def stage_of(trainer: type[StackedTrainer], what: str) -> Stage:
    return replace(planted(name_of(trainer), trainer, what, "several networks"), group="beyond", is_fleet=True)


COPIES, LEAVES_ONE_OUT = stage_of(_Copies, OWN_CHECK), stage_of(_LeavesOneOut, LOSS_CHECK)
AT_ONE_RATE = stage_of(_AtOneRate, "first update, scale")
TELLS_MEANS = stage_of(_TellsMeans, "its parameters cannot be checked: metrics of 0 networks, not 8")
