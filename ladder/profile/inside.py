"""What a stage's process does to be profiled, once all that is timed has been timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common.cuda import ranges
from common.problem import Problem
from common.trainer import Trainer
from ladder.profile import cupti
from ladder.profile.trace import Trace


@dataclass(frozen=True)
class Sample:
    """The two epochs of a run that are profiled, and the share of a run's epochs that each stands for."""

    epochs: tuple[int, int]
    weights: tuple[float, float]


def sample_of(problem: Problem, epochs: int) -> Sample:
    """Two neighbours out of a run of `epochs` epochs, of which the second computes metrics where these are sparse."""
    second = max(problem.metrics_every - 1, 1)
    due = sum(map(problem.metrics_due, range(epochs))) / epochs
    share = 0.5 if problem.metrics_every == 1 else due
    return Sample((second - 1, second), (1 - share, share))


class Profiled:
    """A trainer whose two epochs are run for a profile; it has been trained before, so that it is warm."""

    def __init__(self, trainer: Trainer, sample: Sample, fence: Callable[[], None]) -> None:
        self._trainer = trainer
        self._epochs = sample.epochs
        self._fence = fence

    def warm_up(self) -> None:
        """Both epochs, for nobody to see."""
        for epoch in self._epochs:
            self._run(epoch)

    def record(self) -> Trace:
        """Both epochs under CUPTI."""
        return cupti.record(self._epochs, self._run)

    def show(self, stage: str) -> None:
        """Both epochs, for a profiler that watches from outside."""
        with ranges.recorded(), ranges.named(stage):
            for epoch in self._epochs:
                with ranges.named(f"epoch {epoch}"):
                    self._run(epoch)

    def _run(self, epoch: int) -> None:
        self._trainer.run_epoch(epoch)
        self._fence()
