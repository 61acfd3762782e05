"""The parts of a recipe in NumPy, and a device of NumPy arrays: the training step itself, run on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from common.cuda.epilogue import Fusion
from common.trainer import EpochMetrics
from stages.engine.parts import AllocatedOnce, ResidentFloat32
from stages.engine.recipe import Epilogue, FusingGemm, Gemm, Head, Launch, Metrics, Recipe, RunStep, Update
from stages.engine.workspace import Array, Setup


class HostDevice:
    """NumPy's memory, poisoned until it is written; what is enqueued has happened."""

    kind: Literal["cpu", "gpu"] = "gpu"
    detail = ""
    stream_handle: int | None = None
    has_clusters = False
    keeps_columns = False
    capability = 0

    def __init__(self) -> None:
        self.stream = HostStream()

    def step_allocator(self, allocator: str) -> HostStepAllocator:
        return HostStepAllocator()

    def page_locked(self, host: NDArray[Any]) -> NDArray[Any]:
        return host.copy()

    def enqueue_copy(self, target: Array, address: int, stream: Any = None) -> None:
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def side_stream(self) -> HostStream:
        return HostStream()

    def event(self) -> HostEvent:
        return HostEvent()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return np.full(shape, np.nan if np.issubdtype(dtype, np.floating) else 255, dtype)

    def upload(self, host: NDArray[Any]) -> Array:
        return host.copy()

    def overwrite(self, target: Array, host: NDArray[Any]) -> None:
        target[...] = host

    def download(self, array: Array) -> NDArray[Any]:
        copy: NDArray[Any] = array.copy()
        return copy

    def zero(self, array: Array) -> None:
        array[...] = 0

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        return enqueue

    def beside(self, branch: int, after: HostEvent | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    def join(self) -> None:
        pass


class HostTensor(np.ndarray[Any, Any]):
    """An array that has no length, as a step's tensor on the device has none."""

    def __len__(self) -> int:
        raise TypeError("object of type 'Tensor' has no len()")


class HostStepAllocator:
    """Arrays that are poisoned when they are lent and when they come back, and not to be written in between."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []
        self.lent = False

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        self._arrays.append(np.full(shape, np.nan, dtype).view(HostTensor))
        return self._arrays[-1]

    def acquire(self) -> None:
        assert not self.lent
        self._poison(lent=True)

    def release(self) -> None:
        assert self.lent
        self._poison(lent=False)

    def _poison(self, *, lent: bool) -> None:
        self.lent = lent
        for array in self._arrays:
            array.flags.writeable = True
            array[...] = np.nan
            array.flags.writeable = lent


class HostStream:
    """A stream whose work is done when it is enqueued."""

    def wait_event(self, event: HostEvent) -> None:
        pass


class HostEvent:
    """A mark that is passed at once."""

    def record(self, stream: HostStream) -> None:
        pass


class NumpyGemm(FusingGemm):
    needs: ClassVar[tuple[str, ...]] = ()

    def fused(
        self,
        a: Array,
        b: Array,
        out: Array,
        fusion: Fusion | None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        product = alpha * ((a.T if trans_a else a) @ (b.T if trans_b else b))
        out[...] = product if beta == 0.0 else product + beta * out
        if fusion is None:
            return
        if fusion.kind == "bias_row":
            fusion.bias[...] = alpha * b.sum(axis=0) + beta * fusion.bias
            return
        cols = out.shape[1]
        if fusion.bias is not None:
            out += fusion.bias
        if fusion.kind == "relu_bias":
            bits = np.packbits(out > 0, axis=1, bitorder="little")
            fusion.mask[:, : bits.shape[1]] = bits
            np.maximum(out, 0, out=out)
        if fusion.kind == "relu_backward":
            out *= np.unpackbits(fusion.mask, axis=1, bitorder="little")[:, :cols]


class NumpyEpilogue(Epilogue):
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        self._tensors = setup.tensors
        self._gemm = gemm
        self._last = len(setup.problem.layers) - 1

    def forward(self, layer: int, inputs: Array) -> None:
        output = self._tensors.outputs[layer]
        self._gemm(inputs, self._tensors.weights[layer], output)
        output += self._tensors.biases[layer]
        if layer < self._last:
            np.maximum(output, 0, out=output)

    def backward(self, layer: int) -> None:
        doutput = self._tensors.doutputs[layer - 1]
        self._gemm(self._tensors.doutputs[layer], self._tensors.weights[layer], doutput, trans_b=True)
        doutput *= self._tensors.outputs[layer - 1] > 0


class NumpyHead(Head):
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, setup: Setup) -> None:
        self._tensors = setup.tensors

    def __call__(self, labels: Array, with_totals: bool) -> None:
        logits, dlogits = self._tensors.logits, self._tensors.dlogits
        rows = np.arange(len(labels))
        shifted = logits - logits.max(axis=1, keepdims=True)
        probs = np.exp(shifted)
        if with_totals:
            self._tensors.totals[0] += (np.log(probs.sum(axis=1)) - shifted[rows, labels]).sum()
            self._tensors.totals[1] += (logits.argmax(axis=1) == labels).sum()
        dlogits[...] = probs / probs.sum(axis=1, keepdims=True)
        dlogits[rows, labels] -= 1
        dlogits /= len(labels)


class NumpyUpdate(Update):
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        self._tensors = setup.tensors
        self._gemm = gemm
        self._rate = setup.problem.learning_rate

    def __call__(self, layer: int, inputs: Array) -> None:
        doutput = self._tensors.doutputs[layer]
        self._gemm(inputs, doutput, self._tensors.weights[layer], trans_a=True, alpha=-self._rate, beta=1.0)
        self._tensors.biases[layer] -= np.float32(self._rate) * doutput.sum(axis=0)


class NumpyMetrics(Metrics):
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def due(self, epoch: int) -> bool:
        return self._setup.problem.metrics_due(epoch)

    def begin_epoch(self) -> None:
        self._setup.tensors.totals[...] = 0

    def end_step(self) -> None:
        pass

    def end_epoch(self) -> EpochMetrics:
        loss, correct = self._setup.tensors.totals
        images = len(self._setup.tensors.batches) * self._setup.problem.batch_size
        return EpochMetrics(loss / images, correct / images)


class NumpyLaunch(Launch):
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        self._batches, self._step = setup.tensors.batches, step

    def __call__(self, with_metrics: bool) -> None:
        for images, labels in self._batches:
            self._step(images, labels, with_metrics)


RECIPE = Recipe(
    AllocatedOnce, ResidentFloat32, NumpyGemm, NumpyEpilogue, NumpyHead, NumpyUpdate, NumpyMetrics, NumpyLaunch
)
