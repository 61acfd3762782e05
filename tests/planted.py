"""Stages that are wrong in one way each, for the gates to catch; and some that do not come to an end.

Why: a gate that has never refused anything proves nothing.

Change: each is NumPy's trainer with one planted defect.

Expect: each is caught, and for the reason that its test names.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common.dataset import Split
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from ladder.profile import cupti
from ladder.profile.trace import Kernel, Trace, Window
from stages.references.numpy_cpu import NumpyTrainer
from stages.stage import Stage


def _stage(name: str, build: Any) -> Stage:
    return Stage(name, name, "reference", "float32", (), build)


class _BadGradient(NumpyTrainer):
    """Every gradient is 1 % too long."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(replace(problem, learning_rate=problem.learning_rate * 1.01), train)


class _Nan(NumpyTrainer):
    def read_params(self) -> Params:
        params = super().read_params()
        params.weights[0][3, 3] = np.nan
        return params


class _SkipsLastStep(NumpyTrainer):
    """Only where there is more than a handful of them, as a wrong loop bound of a tiled kernel would."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) > 3:
            self._batches.pop()


class _SameBatch(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches = [self._batches[0]] * len(self._batches)


class _NoBias(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        kept = [bias.copy() for bias in self._biases]
        super().run_epoch(epoch)
        for bias, old in zip(self._biases, kept, strict=True):
            bias[:] = old


class _UpdatesTwice(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._batches = [batch for batch in self._batches for _ in range(2)]


class _LeavesWorkBehind(NumpyTrainer):
    """Returns before it has finished, on a thread that no fence waits for."""

    def run_epoch(self, epoch: int) -> None:
        def later() -> None:
            time.sleep(0.5)
            NumpyTrainer.run_epoch(self, epoch)

        threading.Thread(target=later, daemon=True).start()


class _KeepsOldParams(NumpyTrainer):
    """Goes on from where the last run ended."""

    _loaded = False

    def load_params(self, params: Params) -> None:
        if not self._loaded:
            super().load_params(params)
        self._loaded = True


class _ShiftedLabels(NumpyTrainer):
    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, Split(train.images, np.roll(train.labels, 1)))


class _MadeUpMetrics(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(0.3, 0.92)


NAN = _stage("nan", _Nan)
GRADIENT = _stage("gradient", _BadGradient)
LAST_STEP = _stage("last-step", _SkipsLastStep)
SAME_BATCH = _stage("same-batch", _SameBatch)
NO_BIAS = _stage("no-bias", _NoBias)
TWICE = _stage("twice", _UpdatesTwice)
LEFT_BEHIND = _stage("left-behind", _LeavesWorkBehind)
OLD_PARAMS = _stage("old-params", _KeepsOldParams)
LABELS = _stage("labels", _ShiftedLabels)
METRICS = _stage("metrics", _MadeUpMetrics)


def _hang(problem: Problem, train: Split) -> NumpyTrainer:
    time.sleep(1000)
    raise AssertionError


def _kill(problem: Problem, train: Split) -> NumpyTrainer:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _leave(problem: Problem, train: Split) -> NumpyTrainer:
    os._exit(7)


def _run_out_of_memory(problem: Problem, train: Split) -> NumpyTrainer:
    raise MemoryError("Unable to allocate 9 TiB")


def _raise(problem: Problem, train: Split) -> NumpyTrainer:
    raise RuntimeError("the kernel said no\nand more")


class _Prints(NumpyTrainer):
    """Says a lot, on both streams; that is its own affair."""

    def run_epoch(self, epoch: int) -> None:
        os.write(1, b'{"error": "rubbish"}\n\xff\xfe')
        os.write(2, b"rubbish\n")
        super().run_epoch(epoch)


class _WrongShapes(NumpyTrainer):
    def read_params(self) -> Params:
        params = super().read_params()
        return Params(tuple(weight.T.copy() for weight in params.weights), params.biases)


class _Slow(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        time.sleep(0.4)
        super().run_epoch(epoch)


def _tell_parent(problem: Problem, train: Split) -> NumpyTrainer:
    """Prints which process this one comes from, once for every trainer."""
    os.write(1, b"%d\n" % os.getppid())
    return NumpyTrainer(problem, train)


def _fail_if_forked(problem: Problem, train: Split) -> NumpyTrainer:
    _tell_parent(problem, train)
    if b"ladder.nursery" in Path(f"/proc/{os.getppid()}/cmdline").read_bytes():
        raise RuntimeError("not after a fork")
    return NumpyTrainer(problem, train)


HANGS = _stage("hangs", _hang)
FORKED = _stage("forked", _fail_if_forked)
PARENT = _stage("parent", _tell_parent)
PARENT_TOO = _stage("parent-too", _tell_parent)
KILLED = _stage("killed", _kill)
LEAVES = _stage("leaves", _leave)
OUT_OF_MEMORY = _stage("out-of-memory", _run_out_of_memory)
RAISES = _stage("raises", _raise)
PRINTS = _stage("prints", _Prints)
SHAPES = _stage("shapes", _WrongShapes)
SLOW = _stage("slow", _Slow)
NEEDY = Stage("needy", "Needy", "reference", "float32", ("sm_999",), NumpyTrainer)


def _take_all_gpu_memory(problem: Problem, train: Split) -> NumpyTrainer:
    import cupy

    kept = [cupy.empty(1 << 38, cupy.uint8) for _ in range(8)]  # 2 TiB
    raise AssertionError(f"{len(kept)} arrays, more than any GPU holds")


def _write_to_nowhere(problem: Problem, train: Split) -> NumpyTrainer:
    """A sticky error: whatever this process asks of CUDA from now on fails."""
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void astray(int* p) { p[threadIdx.x] = 1; }', "astray")
    kernel((1,), (32,), (cupy.uint64(8),))
    return NumpyTrainer(problem, train)


GPU_MEMORY = _stage("gpu-memory", _take_all_gpu_memory)
ASTRAY = _stage("astray", _write_to_nowhere)


class _OnGpu(NumpyTrainer):
    """Says that it ran on a GPU, so that its process is profiled."""

    device = "gpu"


class _DiesOnClosing(_OnGpu):
    """Once it has been profiled."""

    profiled = False

    def close(self) -> None:
        if self.profiled:
            os.kill(os.getpid(), signal.SIGSEGV)


def _profiled_by(record: Any, trainer: type[NumpyTrainer] = _OnGpu) -> Any:
    """A build in whose process CUPTI is replaced by this function."""

    def recorded(epochs: Any, run_epoch: Any) -> Trace:
        _DiesOnClosing.profiled = True
        seen: Trace = record(epochs, run_epoch)
        return seen

    def build(problem: Problem, train: Split) -> NumpyTrainer:
        cupti.available = lambda: True
        cupti.record = recorded
        return trainer(problem, train)

    return build


def _record(epochs: Any, run_epoch: Any) -> Trace:
    """A kernel for the first half of each epoch, and nothing of how the second one was spent."""
    trace = Trace()
    for epoch in epochs:
        begin = time.perf_counter_ns()
        run_epoch(epoch)
        end = time.perf_counter_ns()
        trace.windows.append(Window(epoch, begin, end))
        trace.kernels.append(Kernel("gemm_naive", begin, (begin + end) // 2, epoch))
    return trace


def _record_and_die(epochs: Any, run_epoch: Any) -> Trace:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _refuse(epochs: Any, run_epoch: Any) -> Trace:
    raise PermissionError("not for you")


def _hang_on(epochs: Any, run_epoch: Any) -> Trace:
    time.sleep(1000)
    raise AssertionError


PROFILED = _stage("profiled", _profiled_by(_record))
PROFILER_DIES = _stage("profiler-dies", _profiled_by(_record_and_die))
PROFILER_REFUSES = _stage("profiler-refuses", _profiled_by(_refuse, _DiesOnClosing))
PROFILER_HANGS = _stage("profiler-hangs", _profiled_by(_hang_on))
DIES_ON_CLOSING = _stage("dies-on-closing", _profiled_by(_record, _DiesOnClosing))
