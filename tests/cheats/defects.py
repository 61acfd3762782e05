"""Stages with one subtle defect each, such as a programmer may introduce by mistake.

Why: a gate that has never rejected anything proves nothing.

Change: each is the NumPy trainer with one planted defect.

Expect: the check that stands above each catches it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from common.data.dataset import Split
from common.problem import Float32Array, Params, Problem
from common.trainer import EpochMetrics, Trainer
from ladder.measure.protocol import REPEATED_EPOCHS
from ladder.run.judge import POSITIVE
from ladder.verify.gates import KEPT_CHECK, WHOLE_CHECK
from stages.engine.stage import Stage
from stages.references.numpy_cpu import Labels, NumpyTrainer

FIRST_UPDATE_BATCHES = 17  # the most that first updates are checked on; defects with more batches must show later


# Checks that catch many.
FIRST, ZEROS = "first update, weight[0]", "epoch from zeros, parameters"
REPEATED, TRAINED = "3 epochs of 17 batches, tensors", "trained parameters, tensors"
LATE, LATE_OF_ALL = "late epoch of 3 batches, tensors", "late epoch, tensors"
# What catches a stage, by its name, in each kind of run. `later` ones begin after the first updates: in that run, no
# timed epoch has metrics. `late` ones begin after more steps than any short run has from its first parameters on, or in
# long splits alone. `refused` are the reasons of processes that count as crashed in a usual run. A test of its own has
# each one that is `alone`; what `passes` is harmless, and has all its work timed.
CAUGHT: dict[str, dict[str, str]] = {
    run: {} for run in ("usual", "later", "late", "refused", "alone", "on a GPU", "several networks", "passes")
}


def caught_by(what: str, run: str = "usual") -> Callable[[type], type]:
    """Say what catches this trainer's stage: how the name of a failed check, or a reason, begins."""

    def noted(trainer: type) -> type:
        CAUGHT[run][name_of(trainer)] = what
        return trainer

    return noted


def name_of(trainer: type) -> str:
    """The name of a trainer's stage: that of `_NoOp` is no-op."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[A-Z][a-z])", "-", trainer.__name__[1:]).lower()


def planted(name: str, build: Callable[[Problem, Split], Trainer], what: str = "", run: str = "usual") -> Stage:
    """A stage of this name, built by this function, and what catches it, if anything."""
    CAUGHT[run] |= {name: what} if what else {}
    return Stage(name, name, "reference", "float32", (), build)


def stages_of(trainers: dict[str, Any], *bases: type[NumpyTrainer]) -> dict[str, Stage]:
    """A stage of every trainer in a module but these: that of `_NoOp` is NO_OP."""
    found = {}
    for one in trainers.values():
        if isinstance(one, type) and issubclass(one, NumpyTrainer) and one not in (NumpyTrainer, *bases):
            found[name_of(one).replace("-", "_").upper()] = planted(name_of(one), one)
    return found


def changing(tensors: Sequence[Float32Array], train: Callable[[], None], update: Callable[[Float32Array], Any]) -> None:
    """Train, and put another update of each tensor in the place of its own."""
    before = [tensor.copy() for tensor in tensors]
    train()
    for tensor, old in zip(tensors, before, strict=True):
        tensor[:] = old + update(tensor - old)


def train_on(trainer: NumpyTrainer, batches: list[Any], epoch: int, rate: float = 1.0) -> None:
    """An epoch on these batches, by so many times the rate."""
    kept, asked = trainer._batches, trainer._problem
    trainer._batches, trainer._problem = batches, replace(asked, learning_rate=asked.learning_rate * rate)
    NumpyTrainer.run_epoch(trainer, epoch)
    trainer._batches, trainer._problem = kept, asked


@caught_by(FIRST)
class _NoOp(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        pass


@caught_by(ZEROS)
class _FewerSteps(NumpyTrainer):
    """Omits the last step of an epoch, like a wrong loop bound; not in short splits."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > FIRST_UPDATE_BATCHES:
            self._batches.pop()


@caught_by(ZEROS)
class _LastBatchRepeated(NumpyTrainer):
    """Repeats the last step of an epoch; not in short splits."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > FIRST_UPDATE_BATCHES:
            self._batches.append(self._batches[-1])


@caught_by(FIRST)
class _SmallerBatches(NumpyTrainer):
    """Trains on half of each batch's images."""

    def __init__(self, problem: Problem, train: Split) -> None:
        half, steps = problem.batch_size // 2, problem.steps(len(train.images))
        rows = np.arange(steps * problem.batch_size).reshape(steps, -1)[:, :half].ravel()
        super().__init__(replace(problem, batch_size=half), Split(train.images[rows], train.labels[rows]))


@caught_by("first 3 updates, weight[0]")
class _FirstBatch(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches = [self._batches[0]] * len(self._batches)


@caught_by("first 3 updates, weight[0]")
class _OtherOrder(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches.reverse()


@caught_by(FIRST)
class _Twice(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches = [batch for batch in self._batches for _ in range(2)]


@caught_by("loss curve")
class _OneEpochOnly(NumpyTrainer):
    """Trains only in the first epoch of a run."""

    def run_epoch(self, epoch: int) -> None:
        if epoch == 0:
            super().run_epoch(epoch)


@caught_by("first update, bias[0]")
class _NoBias(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        changing(self._biases, partial(super().run_epoch, epoch), lambda step: 0.0 * step)


@caught_by("first update, scale")
class _Gradient(NumpyTrainer):
    """Every gradient is 1 % too large."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(replace(problem, learning_rate=problem.learning_rate * 1.01), train)


@caught_by("first update, scale")
class _RateFoldedWrong(NumpyTrainer):
    """Rounds learning rate / batch size to half precision."""

    def __init__(self, problem: Problem, train: Split) -> None:
        folded = float(np.float16(problem.learning_rate / problem.batch_size))
        super().__init__(replace(problem, learning_rate=folded * problem.batch_size), train)


@caught_by(FIRST)
class _Labels(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, Split(train.images, np.roll(train.labels, 1)))


@caught_by(FIRST)
class _Transformed(NumpyTrainer):
    """Drops the last bit of every pixel while preparing the data."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, Split(train.images & np.uint8(0xFE), train.labels))


@caught_by(FIRST)
class _LowerPrecision(NumpyTrainer):
    """Rounds the weights to bfloat16 for the forward pass, without declaring that precision."""

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        exact = [weight.copy() for weight in self._weights]
        for weight in self._weights:
            weight.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
        super()._forward(images, outputs)
        for weight, whole in zip(self._weights, exact, strict=True):
            weight[:] = whole


@caught_by("first 3 updates, scale")
class _Momentum(NumpyTrainer):
    """Uses another optimiser: SGD with momentum, whose first step is that of SGD."""

    def _backward(self, images: Float32Array) -> None:
        before = [weight.copy() for weight in self._weights]
        moved = getattr(self, "_moved", [np.zeros_like(weight) for weight in before])
        super()._backward(images)
        for weight, last in zip(self._weights, moved, strict=True):
            weight += np.float32(0.1) * last
        self._moved = [weight - old for weight, old in zip(self._weights, before, strict=True)]


@caught_by(FIRST)
class _Nan(NumpyTrainer):
    def read_params(self) -> Params:
        params = super().read_params()
        params.weights[0][3, 3] = np.nan
        return params


@caught_by("first update, bias[0]")
class _Inf(_Nan):
    def read_params(self) -> Params:
        params = super().read_params()
        params.biases[0][1] = np.inf
        return params


@caught_by("finite parameters and metrics")
class _NanMetrics(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(float("nan"), float("inf"))


@caught_by("trained parameters, loss", "later")
class _NanMetricsWhenDue(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(float("nan"), float("nan")) if self._last is not None else None


@caught_by(FIRST)
class _LeftBehind(NumpyTrainer):
    """Returns while a thread still trains, for which no fence waits."""

    def run_epoch(self, epoch: int) -> None:
        def later() -> None:
            time.sleep(0.5)
            NumpyTrainer.run_epoch(self, epoch)

        threading.Thread(target=later, daemon=True).start()


@caught_by(ZEROS)
class _OldParams(NumpyTrainer):
    """Continues from the parameters of the run before, instead of loading new ones."""

    _loaded = False

    def load_params(self, params: Params) -> None:
        if not self._loaded:
            super().load_params(params)
        self._loaded = True


@caught_by(ZEROS)
class _HalfTheSteps(NumpyTrainer):
    """Trains on every second batch, at twice the rate; not in short splits."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > FIRST_UPDATE_BATCHES:
            self._batches = self._batches[::2]
            self._problem = replace(problem, learning_rate=2 * problem.learning_rate)


@caught_by("first 17 updates, weight[0]")
class _OneStepInEightSkipped(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        del self._batches[7::8]


@caught_by(ZEROS)
class _ShortBatch(NumpyTrainer):
    """Fills the last batch, which is too short to count, with images of the first."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        size, rest = problem.batch_size, len(train.images) % problem.batch_size
        if rest:
            images, labels = train.pixels(), train.labels.astype(np.intp)
            filled = [np.concatenate([one[-rest:], one[: size - rest]]) for one in (images, labels)]
            self._batches.append((filled[0], filled[1]))


@caught_by("first 3 updates, weight[0]")
class _ShufflesEachEpoch(NumpyTrainer):
    """Draws another order of the batches in every epoch."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._random = np.random.default_rng(0)

    def run_epoch(self, epoch: int) -> None:
        train_on(self, [self._batches[place] for place in self._random.permutation(len(self._batches))], epoch)


@caught_by("first 3 updates, weight[0]")
class _ShufflesTheImages(NumpyTrainer):
    """Deals the same images out to other batches."""

    def __init__(self, problem: Problem, train: Split) -> None:
        seen = problem.steps(len(train.images)) * problem.batch_size
        dealt = np.arange(seen).reshape(problem.batch_size, -1).T.ravel()
        super().__init__(problem, Split(train.images[dealt], train.labels[dealt]))


@caught_by(FIRST)
class _TruncatedParams(NumpyTrainer):
    """Stores its parameters in 16 bits."""

    def _backward(self, images: Float32Array) -> None:
        super()._backward(images)
        for tensor in (*self._weights, *self._biases):
            tensor.view(np.uint32)[...] &= np.uint32(0xFFFF0000)


@caught_by(FIRST)
class _StaleGradient(NumpyTrainer):
    """Applies each gradient one step late, as a wrong double buffer would."""

    _late: Sequence[Float32Array] = ()

    def _backward(self, images: Float32Array) -> None:
        tensors = (*self._weights, *self._biases)
        before = [tensor.copy() for tensor in tensors]
        super()._backward(images)
        steps = [tensor - old for tensor, old in zip(tensors, before, strict=True)]
        none_yet = [np.zeros_like(old) for old in before]
        for tensor, old, late in zip(tensors, before, self._late or none_yet, strict=True):
            tensor[:] = old + late
        self._late = steps


@caught_by(FIRST)
class _WeightDecay(NumpyTrainer):
    def _backward(self, images: Float32Array) -> None:
        for weight in self._weights:
            weight *= np.float32(1.0 - 1e-3 * self._problem.learning_rate)
        super()._backward(images)


@caught_by("first update, scale")
class _Nesterov(NumpyTrainer):
    """Another optimiser: Nesterov's momentum, which looks ahead from the first step on."""

    def _backward(self, images: Float32Array) -> None:
        changing(self._weights, partial(super()._backward, images), lambda step: np.float32(1.1) * step)


@caught_by("first update, scale")
class _ClippedGradient(NumpyTrainer):
    """Shortens long gradients, each tensor's by itself."""

    def _backward(self, images: Float32Array) -> None:
        longest = 0.1 * self._problem.learning_rate

        def clipped(step: Float32Array) -> Any:
            return step * np.float32(longest / max(longest, float(np.linalg.norm(step))))

        changing(self._weights, partial(super()._backward, images), clipped)


@caught_by("first update, bias[0]")
class _BiasAtTwiceTheRate(NumpyTrainer):
    def _backward(self, images: Float32Array) -> None:
        changing(self._biases, partial(super()._backward, images), lambda step: np.float32(2.0) * step)


@caught_by(FIRST)
class _LabelSmoothing(NumpyTrainer):
    """Trains towards 0.9 for the right class."""

    def _head(self, labels: Labels) -> None:
        super()._head(labels)
        classes, share = self._problem.classes, 0.1 / len(labels)
        self._doutputs[-1][self._rows, labels] += np.float32(share)
        self._doutputs[-1] -= np.float32(share / classes)


@caught_by(FIRST)
class _EpsilonInSoftmax(NumpyTrainer):
    """Adds a small number to the sum of softmax, against a division by zero that cannot happen."""

    def _head(self, labels: Labels) -> None:
        super()._head(labels)
        wrong = self._doutputs[-1]
        wrong[self._rows, labels] += np.float32(1.0 / len(labels))
        wrong *= np.float32(1.0 - 1e-3)
        wrong[self._rows, labels] -= np.float32(1.0 / len(labels))


@caught_by(FIRST)
class _Dropout(NumpyTrainer):
    """Drops one hidden unit in ten."""

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        super()._forward(images, outputs)
        for output in outputs[:-1]:
            output[:, ::10] = 0.0
        if len(outputs) > 1:
            np.matmul(outputs[-2], self._weights[-1], out=outputs[-1])
            outputs[-1][:] += self._biases[-1]


@caught_by("first update, weight[1]")
class _LeakyRelu(NumpyTrainer):
    """Has inactive units pass a hundredth on."""

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        inputs = images
        for weight, bias, output in zip(self._weights, self._biases, outputs, strict=True):
            np.matmul(inputs, weight, out=output)
            output += bias
            if output is not outputs[-1]:
                np.maximum(output, np.float32(0.01) * output, out=output)
            inputs = output


@caught_by(FIRST)
class _PixelsBy255(NumpyTrainer):
    """Divides pixels by 255, as most programs do, and not by 256."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches = [(images * np.float32(256 / 255), labels) for images, labels in self._batches]


@caught_by("first update, loss")
class _MetricsAfterwards(NumpyTrainer):
    """Takes its metrics from the last parameters, and not as the epoch goes."""

    def run_epoch(self, epoch: int) -> None:
        super().run_epoch(epoch)
        if self._last is not None:
            seen = [self._after(images, labels) for images, labels in self._batches]
            count = len(seen) * self._problem.batch_size
            self._last = EpochMetrics(sum(loss for loss, _ in seen) / count, sum(right for _, right in seen) / count)

    def _after(self, images: Float32Array, labels: Labels) -> tuple[float, int]:
        self._forward(images, self._outputs)
        return self._totals(self._outputs[-1], labels)


class _FromTheSecondEpochOn(NumpyTrainer):
    """Wrong only from the second epoch on, by `_wrong_epoch`."""

    def run_epoch(self, epoch: int) -> None:
        if epoch == 0:
            super().run_epoch(epoch)
        else:
            self._wrong_epoch(epoch)

    def _wrong_epoch(self, epoch: int) -> None:
        raise NotImplementedError


@caught_by(REPEATED, "later")
class _LaterMomentum(_FromTheSecondEpochOn):
    """Momentum, whose memory is empty in the first epoch."""

    def _wrong_epoch(self, epoch: int) -> None:
        changing(self._weights, partial(NumpyTrainer.run_epoch, self, epoch), lambda step: np.float32(1.1) * step)


@caught_by(REPEATED, "later")
class _LaterReshuffled(_FromTheSecondEpochOn):
    def _wrong_epoch(self, epoch: int) -> None:
        train_on(self, self._batches[::-1], epoch)


@caught_by("final parameters", "alone")  # in softmax regression, unless the oracle has no time for later epochs
class _LateReshuffled(NumpyTrainer):
    """Takes its batches in another order between the epochs of a short run and the end of a timed one."""

    def run_epoch(self, epoch: int) -> None:
        train_on(self, self._batches[:: -1 if REPEATED_EPOCHS <= epoch < self._problem.epochs else 1], epoch)


@caught_by(REPEATED, "later")
class _LaterDroppedBatch(_FromTheSecondEpochOn):
    def _wrong_epoch(self, epoch: int) -> None:
        train_on(self, self._batches[:-1], epoch)


@caught_by(REPEATED, "later")
class _LaterFrozenBias(_FromTheSecondEpochOn):
    def _wrong_epoch(self, epoch: int) -> None:
        changing(self._biases, partial(NumpyTrainer.run_epoch, self, epoch), lambda step: 0.0 * step)


@caught_by(REPEATED, "later")
class _LaterDecay(_FromTheSecondEpochOn):
    """Lowers its learning rate after each epoch."""

    def _wrong_epoch(self, epoch: int) -> None:
        train_on(self, self._batches, epoch, 0.95**epoch)


@caught_by(TRAINED, "later")
class _HalfRateWithMetrics(NumpyTrainer):
    """Trains at half the rate where metrics are due."""

    def run_epoch(self, epoch: int) -> None:
        train_on(self, self._batches, epoch, 0.5 if self._problem.metrics_due(epoch) else 1.0)


@caught_by(TRAINED, "later")
class _SureImagesLeftOut(NumpyTrainer):
    """Leaves out images that it is sure of: those with a probability above 0.99."""

    def _head(self, labels: Labels) -> None:
        super()._head(labels)
        rest = self._doutputs[-1][self._rows, labels] * len(labels)
        self._doutputs[-1][rest > -0.01] = 0.0


class _CountsSteps(NumpyTrainer):
    """Counts the steps of a run, and is right in its first 60."""

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._step = 0

    def _backward(self, images: Float32Array) -> None:
        is_late, self._step = self._step >= 60, self._step + 1
        if is_late:
            self._before_late()
        super()._backward(images)
        if is_late:
            self._after_late()

    def _before_late(self) -> None:
        pass

    def _after_late(self) -> None:
        pass


@caught_by(LATE, "late")
class _EightBitsLate(_CountsSteps):
    """Rounds the errors of the last layer to eight bits, as bfloat16 does."""

    def _before_late(self) -> None:
        errors, large = self._doutputs[-1], np.float32(2.0**16 + 1.0)
        errors[:] = errors * large - (errors * large - errors)


@caught_by("late epoch of 3 batches, ", "late")  # by tensors or by their scale, as the parameters fall
class _WeightDecayLate(_CountsSteps):
    def _before_late(self) -> None:
        for weight in self._weights:
            weight *= np.float32(1.0 - 1e-4 * self._problem.learning_rate)


@caught_by(LATE, "late")
class _BiasFrozenLate(_CountsSteps):
    def _before_late(self) -> None:
        self._kept = self._biases[0].copy()

    def _after_late(self) -> None:
        self._biases[0][:] = self._kept


@caught_by("late epoch of 3 batches, scale", "late")
class _ScheduleLeftIn(NumpyTrainer):
    """Divides the learning rate by 1.25 for the second half of a run's epochs."""

    def run_epoch(self, epoch: int) -> None:
        train_on(self, self._batches, epoch, 0.8 if epoch >= self._problem.epochs // 2 else 1.0)


@caught_by(KEPT_CHECK, "late")
class _HalvesAfterEpochs(NumpyTrainer):
    """Keeps its weights in float16 between the epochs of a long split."""

    def run_epoch(self, epoch: int) -> None:
        super().run_epoch(epoch)
        if len(self._batches) > FIRST_UPDATE_BATCHES:
            for weight in self._weights:
                weight[:] = weight.astype(np.float16)


@caught_by(LATE_OF_ALL, "late")
class _LearnsTheTest(NumpyTrainer):
    """Trains on a batch of test images, too, from the second epoch on."""

    def run_epoch(self, epoch: int) -> None:
        more = self._test[:1] if epoch >= 1 and len(self._batches) > FIRST_UPDATE_BATCHES else []
        train_on(self, [*self._batches, *more], epoch)


@caught_by(f"{POSITIVE}, tensors", "late")
class _PixelsPruned(NumpyTrainer):
    """Leaves out a pixel of later batches whenever it is dim, as if it were dark in all."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        for images, _ in self._batches[FIRST_UPDATE_BATCHES:]:
            images[:, 0] *= images[:, 0] > np.float32(0.25)


class _InLongSplits(NumpyTrainer):
    """Wrong in long splits alone, by `_wrong_forward`."""

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._step = 0

    def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        self._step += 1
        if len(self._batches) > FIRST_UPDATE_BATCHES:
            self._wrong_forward(images, outputs)
        else:
            super()._forward(images, outputs)

    def _wrong_forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        raise NotImplementedError


@caught_by(f"{POSITIVE}, tensors", "late")
class _StaleInLongSplits(_InLongSplits):
    """Reads the first weights of the step before, as a wrong double buffer would, after 20 steps."""

    _old: Float32Array

    def _wrong_forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        new, old = self._weights[0], self._weights[0] if self._step <= 20 else self._old
        self._weights[0] = old
        NumpyTrainer._forward(self, images, outputs)
        self._weights[0], self._old = new, new.copy()


@caught_by(f"{POSITIVE}, tensors", "late")
class _RareDropout(_InLongSplits):
    """Drops one hidden output in a thousand."""

    def _wrong_forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        NumpyTrainer._forward(self, images, outputs)
        outputs[0].reshape(-1)[self._step % 1000 :: 1000] = 0.0
        np.matmul(outputs[0], self._weights[1], out=outputs[1])
        outputs[1][:] += self._biases[1]


@caught_by(f"{POSITIVE}, tensors", "late")
class _HalvesReloaded(_InLongSplits):
    """Takes its weights from float16 once in 25 steps."""

    def _wrong_forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
        if self._step % 25 == 24:
            for weight in self._weights:
                weight[:] = weight.astype(np.float16)
        NumpyTrainer._forward(self, images, outputs)


@caught_by("epoch from zeros, loss", "late")
class _LossOfAWindow(NumpyTrainer):
    """Reports the loss of the last batches alone, as a progress bar does."""

    def run_epoch(self, epoch: int) -> None:
        losses: list[float] = []
        totals = self._totals

        def kept(logits: Float32Array, labels: Labels) -> tuple[float, int]:
            loss, right = totals(logits, labels)
            losses.append(loss / len(labels))
            return loss, right

        self._totals = kept  # type: ignore[method-assign]
        super().run_epoch(epoch)
        self._totals = totals  # type: ignore[method-assign]
        if self._last is not None:
            self._last = EpochMetrics(float(np.mean(losses[-FIRST_UPDATE_BATCHES - 3 :])), self._last.accuracy)


@caught_by(WHOLE_CHECK, "late")
class _AccuracyRoundedUp(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        seen = super().last_metrics()
        return None if seen is None else EpochMetrics(seen.mean_loss, float(np.ceil(seen.accuracy * 1e3)) / 1e3)


def _rounding_to(bits: int) -> type[NumpyTrainer]:
    """A trainer that rounds the factors of its products to fewer bits than its stage declares."""

    def rounded(exact: Float32Array) -> Float32Array:
        large = exact * np.float32(2.0 ** (24 - bits) + 1.0)
        return large - (large - exact)

    class Rounding(NumpyTrainer):
        def _forward(self, images: Float32Array, outputs: Sequence[Float32Array]) -> None:
            exact, self._weights = self._weights, [rounded(weight) for weight in self._weights]
            super()._forward(images, outputs)
            self._weights = exact
            for output in outputs[:-1]:
                output[:] = rounded(output)

        def _head(self, labels: Labels) -> None:
            super()._head(labels)
            self._doutputs[-1][:] = rounded(self._doutputs[-1])

    return Rounding


ROUNDED = "first update, precision"
ROUNDED_TO_16 = planted("rounded-to-16", _rounding_to(16), ROUNDED, "later")
ROUNDED_TO_17 = planted("rounded-to-17", _rounding_to(17), ROUNDED, "alone")  # in softmax regression
BFLOAT16_AS_TF32 = replace(planted("bfloat16-as-tf32", _rounding_to(8), ROUNDED, "later"), precision="tf32")
SIX_BITS_AS_BFLOAT16 = replace(planted("six-bits-as-bfloat16", _rounding_to(6), ROUNDED, "late"), precision="bfloat16")
globals().update(stages_of(globals(), _FromTheSecondEpochOn, _CountsSteps, _InLongSplits))
