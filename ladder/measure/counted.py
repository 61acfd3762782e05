"""Counts what a rung does in an epoch, which depends on no clock: kernels, and waits of the host to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from ladder.profile import cpu_stamps, cupti
from ladder.records.checked import Counts
from stages.engine.stage import Stage
from stages.engine.step import RecipeTrainer


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
