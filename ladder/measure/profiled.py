"""Runs a trainer's epochs for a profiler, after all timed runs; counts what a rung does, which depends on no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common.cuda import nvtx
from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer, wait_of
from ladder.measure.timing import Validation
from ladder.profile import cpu_stamps, cupti
from ladder.profile.trace import Trace
from ladder.records.checked import Counts
from stages.engine.stage import Stage
from stages.engine.step import RecipeTrainer


@dataclass(frozen=True)
class Sample:
    """The epochs of a run to profile, and the share of the run's epochs that each represents."""

    epochs: tuple[int, ...]
    weights: tuple[float, ...]

    def within(self, seconds: float, epoch_s: float) -> Sample:
        """The most frequent epoch alone, if all of them take longer than this; an epoch takes `epoch_s`."""
        if epoch_s * len(self.epochs) <= seconds:
            return self
        most = max(range(len(self.epochs)), key=self.weights.__getitem__)
        return Sample(self.epochs[most : most + 1], (1.0,))


def sample_of(problem: Problem, epochs: int) -> Sample:
    """Two consecutive epochs of a run of `epochs` epochs; with sparse metrics, the second one computes them.

    If only some epochs are followed by validation: the first epoch of each combination of metrics and validation.
    """
    if problem.validate_every > 1:
        kinds = [(problem.metrics_due(epoch), problem.validation_due(epoch)) for epoch in range(epochs)]
        counts = Counter(kinds)
        return Sample(tuple(map(kinds.index, counts)), tuple(count / epochs for count in counts.values()))
    second = max(problem.metrics_every - 1, 1)
    due = sum(map(problem.metrics_due, range(epochs))) / epochs
    share = 0.5 if problem.metrics_every == 1 else due
    return Sample((second - 1, second), (1 - share, share))


class OwnProfile:
    """A warm trainer, whose sampled epochs run under a profiler."""

    def __init__(
        self, trainer: Trainer, sample: Sample, fence: Callable[[], None], validation: Validation | None = None
    ) -> None:
        self.sample = sample
        self._trainer = trainer
        self._wait = wait_of(trainer)
        self._fence = fence
        self._validation = validation

    def warm_up(self) -> None:
        """Run the epochs without a profiler."""
        for epoch in self.sample.epochs:
            self._run(epoch)

    def record(self, *, warm_up: bool) -> Trace:
        """Run the epochs under CUPTI, or on the CPU with time stamps around each kernel."""
        by = cpu_stamps.record if self._trainer.device == "cpu" else cupti.record
        return by(self.sample.epochs, self._run, warm_up=warm_up)

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
        self._wait()
        self._fence()


def counted(stage: Stage, problem: Problem, split: Split, fence: Callable[[], None]) -> Counts | None:
    """The counts of one epoch on these images (N, I) in which metrics are due.

    None for a stage without a recipe, of several networks, and on several GPUs.

    Raises whatever the stage or CUPTI raises.
    """
    if stage.recipe is None or problem.networks > 1 or stage.takes_gpus:
        return None
    device, reads = stage.place.device(), 0
    kind, download = type(device), type(device).download

    def counting(*given: Any) -> Any:
        nonlocal reads
        reads += 1
        return download(*given)

    def run_epoch(epoch: int) -> None:
        nonlocal reads
        reads = 0  # CUPTI's first epoch runs twice
        trainer.run_epoch(epoch)
        fence()

    epochs, steps, kernels = (problem.metrics_every - 1,), problem.steps(len(split.images)), None
    setattr(kind, "download", counting)  # noqa: B010  of the class, since a part can call `type(device).download`
    try:
        trainer = RecipeTrainer(stage.recipe, problem, split, device)
        if device.kind == "cpu":
            kernels = len(cpu_stamps.record(epochs, run_epoch, warm_up=False).kernels)
        elif cupti.available():
            kernels = len(cupti.record(epochs, run_epoch).kernels)
        else:
            run_epoch(*epochs)
        trainer.close()
    finally:
        setattr(kind, "download", download)  # noqa: B010
    return Counts(steps, None if kernels is None else kernels / steps, reads)
