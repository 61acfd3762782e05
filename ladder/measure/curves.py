"""Records loss and accuracy within epochs, in one more run of a stage's own code that is not timed.

A trainer reports metrics per epoch only, since a captured graph cannot be interrupted. So each part of an epoch gets a
trainer of its own, whose epoch is that part, and the parameters pass from one to the next: step for step the same run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from common.data.dataset import Dataset, Split
from common.oracle import evaluate
from common.problem import Params, Problem
from common.trainer import Trainer
from ladder.measure.fetched import fetched_params
from ladder.measure.timing import Fence, timed_run
from ladder.records.run import Curve, CurvePoint

Build = Callable[[Problem, Split], Trainer]


def record_curve(
    build: Build, problem: Problem, data: Dataset, params: Params, curve_steps: int, fence: Fence
) -> Curve:
    """Train from `params` for all epochs; a training point every `curve_steps` steps, a validation point per epoch."""
    steps = problem.steps(len(data.train.images))
    parts = windows(steps, curve_steps)
    every_epoch = replace(problem, metrics_every=1)
    trainers = [build(every_epoch, Split(*part_of(data.train, problem, part))) for part in parts]
    curve = Curve(begins=begins(params))
    for epoch in range(problem.epochs):
        for part, trainer in zip(parts, trainers, strict=True):
            seen = timed_run(trainer, params, 1, fence=fence, clock=time.perf_counter).metrics[0]
            params = fetched_params(trainer)
            curve.training.append(point(epoch * steps + part.stop, seen.mean_loss, seen.accuracy))
        tested = evaluate(params.weights, params.biases, data.test.images, data.test.labels)
        curve.validation.append(point((epoch + 1) * steps, tested.mean_loss, tested.accuracy))
    for trainer in trainers:
        trainer.close()
    return curve


def begins(params: Params) -> str:
    """A hash of initial parameters, by which a stage's curve finds the oracle's."""
    return sha256(b"".join(tensor.tobytes() for tensor in params.tensors().values())).hexdigest()[:12]


def windows(steps: int, size: int) -> list[range]:
    """The steps of an epoch, divided into parts of `size`; the last may be shorter."""
    return [range(begin, min(begin + size, steps)) for begin in range(0, steps, size)]


def part_of(train: Split, problem: Problem, part: range) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The images (N, I) and labels (N,) of these steps of an epoch."""
    rows = slice(part.start * problem.batch_size, part.stop * problem.batch_size)
    return train.images[rows], train.labels[rows]


def point(step: int, loss: float, accuracy: float) -> CurvePoint:
    """A point of a curve; values that are not finite become None."""
    return CurvePoint(step, *(value if math.isfinite(value) else None for value in (loss, accuracy)))
