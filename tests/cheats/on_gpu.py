"""Cheats that only a GPU makes possible.

Why: work on a GPU continues after the call that launched it has returned, which misleads most benchmarks.

Change: each is a rung, or a PyTorch stage, with one change.

Expect: each is caught, or timed with all its work, as tests/gpu/test_cheats.py says.
"""

from __future__ import annotations

import ctypes
from typing import Any

from common.data.dataset import Split
from common.problem import Params, Problem
from common.trainer import Trainer
from stages.classic import cuda_graph
from stages.engine.recipe import Metrics, RunStep
from stages.engine.stage import Stage
from stages.engine.workspace import Setup
from stages.references import torch_eager
from stages.references.torch_common import RunEpoch, TorchSetup, TorchTrainer
from tests.cheats.defects import CAUGHT, FIRST, FIRST_UPDATE_BATCHES, ZEROS
from tests.cheats.frauds import UNTIMED_WORK

SPIN = """extern "C" __global__ void spin(long long cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) {}
}"""
SPIN_CYCLES = 100_000_000  # about 50 ms


class _ShortGraph(cuda_graph.GraphEpoch):
    """Captures a graph without the last step."""

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        batches = list(setup.tensors.batches)
        setup.tensors.batches = batches[:-1] if len(batches) > FIRST_UPDATE_BATCHES else batches
        super().__init__(setup, step, metrics)


class _SameBatchGraph(cuda_graph.GraphEpoch):
    """Captures a graph with the first batch in every step."""

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        batches = list(setup.tensors.batches)
        setup.tensors.batches = [batches[0]] * len(batches)
        super().__init__(setup, step, metrics)


def _tensor_cores(problem: Problem, train: Split) -> Trainer:
    """Uses TF32 without declaring it."""

    def prepare(setup: TorchSetup) -> RunEpoch:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = True
        return torch_eager.prepare(setup)

    return TorchTrainer(problem, train, prepare)


class _Wrapped:
    """Wraps a rung's trainer."""

    def __init__(self, problem: Problem, train: Split) -> None:
        self._inner: Any = cuda_graph.STAGE.build(problem, train)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _SideStream(_Wrapped):
    """Spins 50 ms on an undeclared stream, in place of work there."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        import cupy

        self._side = cupy.cuda.Stream(non_blocking=True)
        self._spin = cupy.RawKernel(SPIN, "spin")

    def run_epoch(self, epoch: int) -> None:
        self._inner.run_epoch(epoch)
        with self._side:
            self._spin((1,), (1,), (SPIN_CYCLES,))


class _OtherContext(_Wrapped):
    """Works in another CUDA context, which no fence covers, and waits for it when parameters are read."""

    BYTES, FILLS = 1 << 30, 200  # about 50 ms at 4 TB/s

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._context, self._memory, left = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
        self._ask("cuCtxCreate_v2", ctypes.byref(self._context), 0, 0)
        self._ask("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(self.BYTES))
        self._ask("cuCtxPopCurrent_v2", ctypes.byref(left))

    def _ask(self, function: str, *args: Any) -> None:
        status = getattr(self._cuda, function)(*args)
        assert status == 0, f"{function}: {status}"

    def _inside(self, *calls: tuple[Any, ...]) -> None:
        left = ctypes.c_void_p()
        self._ask("cuCtxPushCurrent_v2", self._context)
        for call in calls:
            self._ask(*call)
        self._ask("cuCtxPopCurrent_v2", ctypes.byref(left))

    def run_epoch(self, epoch: int) -> None:
        self._inner.run_epoch(epoch)
        fill = ("cuMemsetD8Async", self._memory, ctypes.c_ubyte(1), ctypes.c_size_t(self.BYTES), None)
        self._inside(*[fill] * self.FILLS)

    def read_params(self) -> Params:
        self._inside(("cuCtxSynchronize",))
        params: Params = self._inner.read_params()
        return params


SHORT_GRAPH = cuda_graph.STAGE.climb("short-graph", "Short graph", launch=_ShortGraph)
SAME_BATCH_GRAPH = cuda_graph.STAGE.climb("same-batch-graph", "One batch", launch=_SameBatchGraph)
TENSOR_CORES = Stage("tensor-cores", "TF32", "reference", "float32", ("torch-cuda",), _tensor_cores)
SIDE_STREAM = Stage("side-stream", "Side stream", "reference", "float32", cuda_graph.STAGE.needs, _SideStream)
CAUGHT["on a GPU"] = {
    "short-graph": ZEROS,
    "same-batch-graph": "first 3 updates, weight[0]",
    "tensor-cores": FIRST,
    "other-context": UNTIMED_WORK,
}
CAUGHT["passes"]["side-stream"] = "a fence waits for every stream"
OTHER_CONTEXT = Stage("other-context", "Context", "reference", "float32", cuda_graph.STAGE.needs, _OtherContext)
