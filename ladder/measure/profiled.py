"""What a stage's process does to be profiled, once all that is timed has been timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from common.cuda import nvtx
from common.problem import Problem
from common.trainer import Trainer
from ladder.measure.timing import Validation
from ladder.profile import cupti
from ladder.profile.trace import Trace


@dataclass(frozen=True)
class Sample:
    """The epochs of a run that are profiled, and the share of a run's epochs that each stands for."""

    epochs: tuple[int, ...]
    weights: tuple[float, ...]


def sample_of(problem: Problem, epochs: int) -> Sample:
    """Two neighbours out of a run of `epochs` epochs, of which the second computes metrics where these are sparse.

    Where only some epochs are followed by validation, the first of each kind.
    """
    if problem.validate_every > 1:
        kinds = [(problem.metrics_due(epoch), problem.validation_due(epoch)) for epoch in range(epochs)]
        counts = Counter(kinds)
        return Sample(tuple(map(kinds.index, counts)), tuple(count / epochs for count in counts.values()))
    second = max(problem.metrics_every - 1, 1)
    due = sum(map(problem.metrics_due, range(epochs))) / epochs
    share = 0.5 if problem.metrics_every == 1 else due
    return Sample((second - 1, second), (1 - share, share))


class Profiled:
    """A trainer whose epochs are run for a profile; it has been trained before, so that it is warm."""

    def __init__(
        self, trainer: Trainer, sample: Sample, fence: Callable[[], None], validation: Validation | None = None
    ) -> None:
        self.sample = sample
        self._trainer = trainer
        self._fence = fence
        self._validation = validation

    def warm_up(self) -> None:
        """The epochs, for nobody to see."""
        for epoch in self.sample.epochs:
            self._run(epoch)

    def record(self) -> Trace:
        """The epochs under CUPTI."""
        return cupti.record(self.sample.epochs, self._run)

    def show(self, stage: str) -> None:
        """The epochs, for a profiler that watches from outside."""
        with nvtx.recorded(), nvtx.named(stage):
            for epoch in self.sample.epochs:
                with nvtx.named(f"epoch {epoch}"):
                    self._run(epoch)

    def _run(self, epoch: int) -> None:
        self._trainer.run_epoch(epoch)
        if self._validation is not None and self._validation.due(epoch):
            with nvtx.named("validation"):
                self._validation.validate()
        self._fence()
