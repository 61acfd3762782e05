"""Stages that are subtly wrong, each in one way, as an honest mistake would be.

Why: a gate that has never refused anything proves nothing.

Change: each is NumPy's trainer with one planted defect.

Expect: each is caught, by the check that test_caught.py names.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from common.data.dataset import Split
from common.problem import Float32Array, Params, Problem
from common.trainer import EpochMetrics, Trainer
from stages.engine.stage import Stage
from stages.references.numpy_cpu import NumpyTrainer

FEW = 17  # batches of the splits that the first updates are judged on; what goes wrong beyond shows later


def wrong(name: str, build: Callable[[Problem, Split], Trainer]) -> Stage:
    """A stage of that name."""
    return Stage(name, name, "reference", "float32", (), build)


class _Nothing(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        pass


class _FewerSteps(NumpyTrainer):
    """Without the last one, as a wrong loop bound of a tiled kernel would, and only where there are many."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > FEW:
            self._batches.pop()


class _LastBatchRepeated(NumpyTrainer):
    """One step too many, where there are many."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > FEW:
            self._batches.append(self._batches[-1])


class _SmallerBatches(NumpyTrainer):
    """Half of every batch's images."""

    def __init__(self, problem: Problem, train: Split) -> None:
        half = problem.batch_size // 2
        rows = np.arange(problem.steps(len(train.images)) * problem.batch_size).reshape(-1, problem.batch_size)[
            :, :half
        ]
        super().__init__(
            replace(problem, batch_size=half), Split(train.images[rows.ravel()], train.labels[rows.ravel()])
        )


class _FirstBatch(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches = [self._batches[0]] * len(self._batches)


class _OtherOrder(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches.reverse()


class _Twice(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches = [batch for batch in self._batches for _ in range(2)]


class _OneEpochOnly(NumpyTrainer):
    """Trains in the first epoch of a run alone."""

    def run_epoch(self, epoch: int) -> None:
        if epoch == 0:
            super().run_epoch(epoch)


class _NoBias(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        kept = [bias.copy() for bias in self._biases]
        super().run_epoch(epoch)
        for bias, old in zip(self._biases, kept, strict=True):
            bias[:] = old


class _Gradient(NumpyTrainer):
    """Every gradient is 1 % too long."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(replace(problem, learning_rate=problem.learning_rate * 1.01), train)


class _RateFoldedWrong(NumpyTrainer):
    """Folded into the division by the batch's size, in half precision."""

    def __init__(self, problem: Problem, train: Split) -> None:
        folded = float(np.float16(problem.learning_rate / problem.batch_size))
        super().__init__(replace(problem, learning_rate=folded * problem.batch_size), train)


class _Labels(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, Split(train.images, np.roll(train.labels, 1)))


class _Transformed(NumpyTrainer):
    """Data transformed while preparing, which loses the last bit of every pixel."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, Split(train.images & np.uint8(0xFE), train.labels))


class _LowerPrecision(NumpyTrainer):
    """Factors of the products are rounded to bfloat16, which the stage does not declare."""

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        exact = [weight.copy() for weight in self._weights]
        for weight in self._weights:
            weight.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
        super()._forward(images, outputs)
        for weight, whole in zip(self._weights, exact, strict=True):
            weight[:] = whole


class _Momentum(NumpyTrainer):
    """A velocity, which is another optimiser."""

    def _backward(self, images: Float32Array) -> None:
        before = [weight.copy() for weight in self._weights]
        super()._backward(images)
        for weight, old in zip(self._weights, before, strict=True):
            weight += np.float32(0.1) * (weight - old)


class _Nan(NumpyTrainer):
    def read_params(self) -> Params:
        params = super().read_params()
        params.weights[0][3, 3] = np.nan
        return params


class _Inf(_Nan):
    def read_params(self) -> Params:
        params = super().read_params()
        params.biases[0][1] = np.inf
        return params


class _NanMetrics(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(float("nan"), float("inf"))


class _LeavesWorkBehind(NumpyTrainer):
    """Returns before it has finished, on a thread that no fence waits for."""

    def run_epoch(self, epoch: int) -> None:
        def later() -> None:
            time.sleep(0.5)
            NumpyTrainer.run_epoch(self, epoch)

        threading.Thread(target=later, daemon=True).start()


class _OldParams(NumpyTrainer):
    """Goes on from where the last run ended."""

    _loaded = False

    def load_params(self, params: Params) -> None:
        if not self._loaded:
            super().load_params(params)
        self._loaded = True


NO_OP = wrong("no-op", _Nothing)
FEWER_STEPS = wrong("fewer-steps", _FewerSteps)
LAST_BATCH_REPEATED = wrong("last-batch-repeated", _LastBatchRepeated)
SMALLER_BATCHES = wrong("smaller-batches", _SmallerBatches)
FIRST_BATCH = wrong("first-batch", _FirstBatch)
OTHER_ORDER = wrong("other-order", _OtherOrder)
TWICE = wrong("twice", _Twice)
ONE_EPOCH_ONLY = wrong("one-epoch-only", _OneEpochOnly)
NO_BIAS = wrong("no-bias", _NoBias)
GRADIENT = wrong("gradient", _Gradient)
RATE_FOLDED_WRONG = wrong("rate-folded-wrong", _RateFoldedWrong)
LABELS = wrong("labels", _Labels)
TRANSFORMED = wrong("transformed", _Transformed)
LOWER_PRECISION = wrong("lower-precision", _LowerPrecision)
MOMENTUM = wrong("momentum", _Momentum)
NAN = wrong("nan", _Nan)
INF = wrong("inf", _Inf)
NAN_METRICS = wrong("nan-metrics", _NanMetrics)
LEFT_BEHIND = wrong("left-behind", _LeavesWorkBehind)
OLD_PARAMS = wrong("old-params", _OldParams)
