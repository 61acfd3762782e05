"""tinygrad: steps of a hand-written epoch, captured by TinyJit.

Why: tinygrad writes and fuses its own kernels, without a vendor's library. Its TinyJit replays them as a CUDA graph.

Change: none; it is a reference, not a rung. Gradients are written by hand, so that nothing waits for autograd, and
products are float32. A replay trains on up to 26 batches, whose images and labels are one buffer each: preparing an
argument costs the host longer than a step. A beam search times each kernel's forms, as its documents advise.

Expect: 15 us a step for softmax regression, as a trial took without the search, and 100 for a hidden layer of 256,
where it took 136: the search has large products to improve.

Predict: on H200: 784-10, batch 128: 15 us; 784-256-10, batch 128: 100 us.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Literal

import numpy as np

from common.data.dataset import Split
from common.problem import Params, Problem, zero_params
from common.trainer import EpochMetrics
from stages.engine.stage import Stage

TOGETHER = 26  # steps a replay, at most: 18 replays an epoch of 468
BEAM = 2  # width of the search
Tensor = Any  # of tinygrad, which is imported late: a machine without it still lists the stage


class TinygradTrainer:
    """SGD on float32 weights (I, O) and biases (O,)."""

    device: Literal["cpu", "gpu"] = "gpu"
    cuda_stream: int | None = None  # its stream belongs to a context of its own
    detail = ""

    def __init__(self, problem: Problem, train: Split, *, device: str = "CUDA", beam: int = BEAM) -> None:
        os.environ["DEV"] = device  # for the processes that compile
        import tinygrad

        tinygrad.helpers.DEV.value = device
        self._problem, self._tiny, self._name, self._beam = problem, tinygrad, device, beam
        batch, steps = problem.batch_size, problem.steps(len(train.images))
        pixels, wanted = train.first(steps * batch).pixels(), np.eye(problem.classes, dtype=np.float32)[train.labels]
        self._groups = []
        for first in range(0, steps, TOGETHER):
            rows = slice(first * batch, min(first + TOGETHER, steps) * batch)
            self._groups.append(
                [self._new(values[rows].reshape(-1, batch, values.shape[1])) for values in (pixels, wanted)]
            )
        self._params = [self._new(one) for one in _flat(zero_params(problem))]
        self._totals = self._new(np.zeros(2, np.float32))  # summed mean losses, and the number correct
        self._steps = {
            (count, due): tinygrad.TinyJit(partial(self._do, due))
            for count in {len(images) for images, _ in self._groups}
            for due in (False, True)
        }
        self._last: EpochMetrics | None = None
        for due in (False, True, False, True):  # of each the first call compiles, the second captures
            for images, wanted in {len(images): (images, wanted) for images, wanted in self._groups}.values():
                self._train_on(images, wanted, due)
        self.wait()

    def _new(self, values: np.ndarray[Any, Any]) -> Tensor:
        return self._tiny.Tensor(np.ascontiguousarray(values), device=self._name).contiguous().realize()

    def _train_on(self, images: Tensor, wanted: Tensor, due: bool) -> None:
        """Train on images (K, B, I) with one-hot labels (K, B, C), batch by batch."""
        with self._tiny.Context(BEAM=self._beam):
            self._steps[len(images), due](images, wanted)

    def _do(self, due: bool, images: Tensor, wanted: Tensor) -> None:
        params, totals = self._params, self._totals
        for step in range(len(images)):
            # Contiguous slices are buffers of their own, without a copy: one kernel, and one search, serves all steps.
            batch = images[step].contiguous(), wanted[step].contiguous()
            params, seen = _step(params, *batch, self._problem.learning_rate, due)
            params = [one.contiguous() for one in params]
            if seen is not None:
                totals = (totals + seen).contiguous()
        changed = [*zip(self._params, params, strict=True), *([(self._totals, totals)] if due else [])]
        self._tiny.Tensor.realize(*(new for _, new in changed))
        for old, new in changed:
            old.assign(new)
        self._tiny.Tensor.realize(*(old for old, _ in changed))

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        for target, values in zip(self._params, _flat(params), strict=True):
            target.assign(self._new(values)).realize()
        self.wait()

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        due = self._problem.metrics_due(epoch)
        if due:
            self._totals.assign(self._new(np.zeros(2, np.float32))).realize()
        for images, wanted in self._groups:
            self._train_on(images, wanted, due)
        self._last = None
        if due:
            loss, correct = self._totals.numpy().astype(np.float64)
            steps = sum(len(images) for images, _ in self._groups)
            self._last = EpochMetrics(loss / steps, correct / (steps * self._problem.batch_size))

    def wait(self) -> None:
        """Return when all epochs have finished: tinygrad works in a context of its own."""
        self._tiny.Device[self._name].synchronize()

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due."""
        return self._last

    def read_params(self) -> Params:
        """The current parameters."""
        values = [one.numpy() for one in self._params]
        return Params(tuple(values[::2]), tuple(values[1::2]))

    def close(self) -> None:
        """Release the data and the captured steps."""
        del self._groups, self._params, self._steps, self._totals


def _flat(params: Params) -> list[np.ndarray[Any, Any]]:
    """Weight and bias of each layer in turn."""
    return [one for layer in zip(params.weights, params.biases, strict=True) for one in layer]


def _step(
    params: list[Tensor], images: Tensor, wanted: Tensor, rate: float, due: bool
) -> tuple[list[Tensor], Tensor | None]:
    """The parameters after a step; when due, the mean loss and the number correct (2,)."""
    weights, biases = params[::2], params[1::2]
    inputs = [images]
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        outputs = inputs[-1] @ weight + bias
        inputs.append(outputs.relu() if layer < len(weights) - 1 else outputs)
    logits = inputs.pop()
    logarithms = logits.log_softmax(1)
    doutput, new = (logarithms.exp() - wanted) / len(images), []
    for layer in reversed(range(len(weights))):
        new += [biases[layer] - rate * doutput.sum(0), weights[layer] - rate * (inputs[layer].transpose() @ doutput)]
        if layer:
            doutput = (doutput @ weights[layer].transpose()) * (inputs[layer] > 0)
    if not due:
        return new[::-1], None
    correct = (logits.argmax(1) == wanted.argmax(1)).sum().cast("float")
    return new[::-1], (-(logarithms * wanted).sum() / len(images)).stack(correct)


def build(problem: Problem, train: Split) -> TinygradTrainer:
    """A trainer on the GPU, with the compiler that CuPy and ours use: tinygrad looks for an installed toolkit."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    os.environ.setdefault("NVRTC_PATH", str(load_nvidia_dynamic_lib("nvrtc").abs_path))
    return TinygradTrainer(problem, train)


STAGE = Stage("tinygrad-jit", "tinygrad, steps in a TinyJit", "languages", "float32", ("cuda", "tinygrad"), build)
