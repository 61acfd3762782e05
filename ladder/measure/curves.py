"""Loss and accuracy within epochs: one more run through a stage's own code, in parts of an epoch, which is not timed.

A trainer tells the metrics of an epoch and of nothing shorter, since a captured graph cannot be looked into. So each
part of an epoch has a trainer of its own, whose epoch is that part; the parameters go from one to the next. That is
the same run, step for step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from common.data.dataset import Dataset, Split
from common.oracle import evaluate
from common.problem import Params, Problem
from common.trainer import Trainer
from ladder.measure.timing import Fence, timed_run
from ladder.records.run import Curve, CurvePoint

Build = Callable[[Problem, Split], Trainer]


def record_curve(
    build: Build, problem: Problem, data: Dataset, params: Params, curve_steps: int, fence: Fence
) -> Curve:
    """Train from `params` for all epochs, with a training point every `curve_steps` and a validation point an epoch."""
    steps = problem.steps(len(data.train.images))
    parts = windows(steps, curve_steps)
    often = replace(problem, metrics_every=1)
    trainers = [build(often, Split(*part_of(data.train, problem, part))) for part in parts]
    curve = Curve([], [])
    for epoch in range(problem.epochs):
        for part, trainer in zip(parts, trainers, strict=True):
            seen = timed_run(trainer, params, 1, fence=fence, clock=time.perf_counter).metrics[0]
            params = trainer.read_params()
            curve.training.append(point(epoch * steps + part.stop, seen.mean_loss, seen.accuracy))
        tested = evaluate(params.weights, params.biases, data.test.images, data.test.labels)
        curve.validation.append(point((epoch + 1) * steps, tested.mean_loss, tested.accuracy))
    for trainer in trainers:
        trainer.close()
    return curve


def windows(steps: int, size: int) -> list[range]:
    """The steps of an epoch in parts of so many; the last may be shorter."""
    return [range(begin, min(begin + size, steps)) for begin in range(0, steps, size)]


def part_of(train: Split, problem: Problem, part: range) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The images (N, I) and labels (N,) of some steps of an epoch."""
    rows = slice(part.start * problem.batch_size, part.stop * problem.batch_size)
    return train.images[rows], train.labels[rows]


def point(step: int, loss: float, accuracy: float) -> CurvePoint:
    """A point as results keep it."""
    return CurvePoint(step, *(value if math.isfinite(value) else None for value in (loss, accuracy)))
