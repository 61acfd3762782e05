"""Stages with one subtle defect each, such as a programmer may introduce by mistake.

Why: a gate that has never rejected anything proves nothing.

Change: each is the NumPy trainer with one planted defect.

Expect: the check that test_caught.py names catches each of them.
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

FIRST_UPDATE_BATCHES = 17  # the most that first updates are checked on; defects with more batches must show later


def planted(name: str, build: Callable[[Problem, Split], Trainer]) -> Stage:
    """A stage of this name, built by this function."""
    return Stage(name, name, "reference", "float32", (), build)


class _Nothing(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        pass


class _FewerSteps(NumpyTrainer):
    """Omits the last step of an epoch, like a wrong loop bound; not in short splits."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > FIRST_UPDATE_BATCHES:
            self._batches.pop()


class _LastBatchRepeated(NumpyTrainer):
    """Repeats the last step of an epoch; not in short splits."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > FIRST_UPDATE_BATCHES:
            self._batches.append(self._batches[-1])


class _SmallerBatches(NumpyTrainer):
    """Trains on half of each batch's images."""

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
    """Trains only in the first epoch of a run."""

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
    """Every gradient is 1 % too large."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(replace(problem, learning_rate=problem.learning_rate * 1.01), train)


class _RateFoldedWrong(NumpyTrainer):
    """Rounds learning rate / batch size to half precision."""

    def __init__(self, problem: Problem, train: Split) -> None:
        folded = float(np.float16(problem.learning_rate / problem.batch_size))
        super().__init__(replace(problem, learning_rate=folded * problem.batch_size), train)


class _Labels(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, Split(train.images, np.roll(train.labels, 1)))


class _Transformed(NumpyTrainer):
    """Drops the last bit of every pixel while preparing the data."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, Split(train.images & np.uint8(0xFE), train.labels))


class _LowerPrecision(NumpyTrainer):
    """Rounds the weights to bfloat16 for the forward pass, without declaring that precision."""

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        exact = [weight.copy() for weight in self._weights]
        for weight in self._weights:
            weight.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
        super()._forward(images, outputs)
        for weight, whole in zip(self._weights, exact, strict=True):
            weight[:] = whole


class _Momentum(NumpyTrainer):
    """Uses another optimiser: SGD with momentum."""

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
    """Returns while a thread still trains, for which no fence waits."""

    def run_epoch(self, epoch: int) -> None:
        def later() -> None:
            time.sleep(0.5)
            NumpyTrainer.run_epoch(self, epoch)

        threading.Thread(target=later, daemon=True).start()


class _OldParams(NumpyTrainer):
    """Continues from the parameters of the run before, instead of loading new ones."""

    _loaded = False

    def load_params(self, params: Params) -> None:
        if not self._loaded:
            super().load_params(params)
        self._loaded = True


NO_OP = planted("no-op", _Nothing)
FEWER_STEPS = planted("fewer-steps", _FewerSteps)
LAST_BATCH_REPEATED = planted("last-batch-repeated", _LastBatchRepeated)
SMALLER_BATCHES = planted("smaller-batches", _SmallerBatches)
FIRST_BATCH = planted("first-batch", _FirstBatch)
OTHER_ORDER = planted("other-order", _OtherOrder)
TWICE = planted("twice", _Twice)
ONE_EPOCH_ONLY = planted("one-epoch-only", _OneEpochOnly)
NO_BIAS = planted("no-bias", _NoBias)
GRADIENT = planted("gradient", _Gradient)
RATE_FOLDED_WRONG = planted("rate-folded-wrong", _RateFoldedWrong)
LABELS = planted("labels", _Labels)
TRANSFORMED = planted("transformed", _Transformed)
LOWER_PRECISION = planted("lower-precision", _LowerPrecision)
MOMENTUM = planted("momentum", _Momentum)
NAN = planted("nan", _Nan)
INF = planted("inf", _Inf)
NAN_METRICS = planted("nan-metrics", _NanMetrics)
LEFT_BEHIND = planted("left-behind", _LeavesWorkBehind)
OLD_PARAMS = planted("old-params", _OldParams)
