"""tinygrad: steps in a TinyJit.

Why: TinyJit replays steps as a CUDA graph. tinygrad writes and fuses all their kernels, without a vendor's library.

Change: none; it is a reference, not a rung. The step is idiomatic: `gradient` and `assign`. A replay first copies its
batches to one place, then trains on up to 26 of them: the host needs longer to give a kernel a new argument than the
kernel takes, so that all others keep theirs. Products are in true float32, and tinygrad's rules choose their tiles.

Expect: 15 us per step for softmax regression on an H200, and 136 with a hidden layer of 256, as a trial took: eight and
fourteen kernels a step, each with the gap of a graph, and products without tiles in shared memory.

Predict: on H200: 784-10, batch 128: 14 to 17 us; 784-256-10, batch 128: 100 to 140 us.

Found: softmax regression takes 18.9 us with every check, a little longer than predicted: eight kernels follow each
other. Losses of a trial agree with float64 to 1e-6.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from common.cuda.compile import nvrtc_path
from common.data.dataset import Split
from common.problem import Params, Problem, zero_params
from common.trainer import EpochMetrics
from stages.engine.stage import Stage

TOGETHER = 26  # steps a replay, at most: 18 replays an epoch of 468
ZEROS = np.zeros((), np.float32), np.zeros((), np.int32)  # summed mean losses, and the number correct
Tensor = Any  # of tinygrad, which is imported late: a machine without it still lists the stage


class TinygradTrainer:
    """SGD on float32 weights (I, O) and biases (O,)."""

    device: Literal["cpu", "gpu"] = "gpu"
    cuda_stream: int | None = 0  # the default stream
    detail = ""

    def __init__(self, problem: Problem, train: Split, *, device: str = "CUDA") -> None:
        import tinygrad

        self._problem, self._tiny, self._device = problem, tinygrad, device
        self._steps = problem.steps(len(train.images))
        seen = train.first(self._steps * problem.batch_size)
        shape = self._steps, problem.batch_size
        images, labels = seen.pixels().reshape(*shape, -1), seen.labels.astype(np.int32).reshape(shape)
        starts = range(0, self._steps, TOGETHER)
        self._groups = [tuple(self._new(all_[at : at + TOGETHER]) for all_ in (images, labels)) for at in starts]
        self._params = [self._new(one) for one in _flat(zero_params(problem))]
        self._totals = [self._new(zero) for zero in ZEROS]
        sizes = {len(group[0]): group for group in self._groups}
        self._replays = {
            (size, due): self._replay(group, due) for size, group in sizes.items() for due in (False, True)
        }
        self._last: EpochMetrics | None = None

    def _new(self, values: np.ndarray[Any, Any]) -> Tensor:
        return self._tiny.Tensor(np.ascontiguousarray(values), device=self._device).contiguous().realize()

    def _replay(self, group: tuple[Tensor, ...], due: bool) -> Any:
        """A function that trains on images (K, B, I) and labels (K, B), batch by batch, as many as in this group."""
        places = [self._tiny.Tensor.empty_like(data).contiguous().realize() for data in group]
        batches = [[place[step].contiguous().realize() for place in places] for step in range(len(group[0]))]  # views

        def train(*given: Tensor) -> None:
            self._tiny.Tensor.realize(*(place.assign(new) for place, new in zip(places, given, strict=True)))
            for step in batches:
                self._tiny.Tensor.realize(*self._step(step[0], step[1], due))

        replay = self._tiny.TinyJit(train)
        for _ in range(2):  # the first call compiles, the second captures
            replay(*group)
        return replay

    def _step(self, images: Tensor, labels: Tensor, due: bool) -> list[Tensor]:
        """What a step assigns: the parameters and, when due, the totals."""
        outputs = images
        for layer, (weight, bias) in enumerate(zip(self._params[::2], self._params[1::2], strict=True)):
            outputs = (outputs.relu() if layer else outputs) @ weight + bias
        loss = outputs.sparse_categorical_crossentropy(labels)
        for one, gradient in zip(self._params, loss.gradient(*self._params), strict=True):
            one.assign(one - self._problem.learning_rate * gradient)
        if not due:
            return self._params
        seen = loss, (outputs.argmax(1) == labels).sum()
        return self._params + [total.assign(total + new) for total, new in zip(self._totals, seen, strict=True)]

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        self._set(self._params, _flat(params))
        self._tiny.Device[self._device].synchronize()

    def _set(self, tensors: list[Tensor], values: Iterable[np.ndarray[Any, Any]]) -> None:
        for tensor, new in zip(tensors, values, strict=True):
            tensor.assign(self._new(new)).realize()

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        due = self._problem.metrics_due(epoch)
        if due:
            self._set(self._totals, ZEROS)
        for images, labels in self._groups:
            self._replays[len(images), due](images, labels)
        self._last = None
        if due:
            loss, correct = (float(total.item()) for total in self._totals)
            self._last = EpochMetrics(loss / self._steps, correct / (self._steps * self._problem.batch_size))

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due."""
        return self._last

    def read_params(self) -> Params:
        """The current parameters."""
        values = [one.numpy() for one in self._params]
        return Params(tuple(values[::2]), tuple(values[1::2]))

    def close(self) -> None:
        """Release the data and the captured steps."""
        del self._groups, self._params, self._replays, self._totals


def _flat(params: Params) -> list[np.ndarray[Any, Any]]:
    """Weight and bias of each layer in turn."""
    return [one for layer in zip(params.weights, params.biases, strict=True) for one in layer]


def build(problem: Problem, train: Split) -> TinygradTrainer:
    """A trainer on the GPU, with the compiler that CuPy and ours use: tinygrad looks for an installed toolkit.

    It works in the primary context, for which the harness's fence waits; tinygrad would create one of its own.
    """
    os.environ.setdefault("NVRTC_PATH", nvrtc_path())
    from tinygrad.runtime.autogen import cuda

    cuda.cuCtxCreate_v2 = lambda context, _, device: cuda.cuDevicePrimaryCtxRetain(context, device)
    return TinygradTrainer(problem, train)


STAGE = Stage("tinygrad-jit", "tinygrad, steps in a TinyJit", "languages", "float32", ("cuda", "tinygrad"), build)
