"""Stages that cheat: they work outside of the timer, return results that they did not compute, or alter the harness.

Why: people quote these times, and long tuning of a stage finds every gap between clock and gates.

Change: each is the NumPy trainer with one way of cheating.

Expect: the check or the reason that test_caught.py names catches each of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from common.cuda import clock
from common.data.dataset import Split
from common.problem import Params, Problem, initial_params, zero_params
from common.trainer import EpochMetrics
from ladder.measure import measurement
from ladder.measure.protocol import FIRST_UPDATE_RUN, RESULT, JobResult, load_params, run_number, save_params
from ladder.run.runner import FIRST_BATCHES
from stages.references.numpy_cpu import NumpyTrainer
from tests.cheats.defects import planted

TRAINING_S = 0.05  # added to the tiny problem's training, which would take about this long at the usual size


class _Snapshots(NumpyTrainer):
    """Trains correctly, stores the parameters after each epoch, and can present them later as new."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self.problem = problem
        self.known: dict[int, tuple[Params, EpochMetrics | None]] = {}

    def train_all(self, params: Params) -> None:
        """Train and store every epoch of a run."""
        NumpyTrainer.load_params(self, params)
        for epoch in range(self.problem.epochs):
            NumpyTrainer.run_epoch(self, epoch)
            self.known[epoch] = NumpyTrainer.read_params(self), self._last

    def show(self, epoch: int) -> None:
        """Present the stored parameters of an epoch."""
        params, self._last = self.known[epoch]
        NumpyTrainer.load_params(self, params)


def _folder() -> Path:
    """The folder of this process's results, found by searching the harness's stack frames."""
    frame = sys._getframe()
    while "folder" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    folder: Path = frame.f_locals["folder"]
    return folder


class _TrainsWhileLoading(_Snapshots):
    """Trains all epochs while loading parameters, before the clock starts."""

    def load_params(self, params: Params) -> None:
        time.sleep(TRAINING_S)
        self.train_all(params)
        super().load_params(params)

    def run_epoch(self, epoch: int) -> None:
        self.show(epoch)


class _TrainsWhileRead(NumpyTrainer):
    """Defers training until its parameters are read, after the clock has stopped."""

    _put_off: tuple[int, ...] = ()

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._put_off = ()

    def run_epoch(self, epoch: int) -> None:
        self._put_off += (epoch,)

    def read_params(self) -> Params:
        if self._put_off:
            time.sleep(TRAINING_S)
        for epoch in self._put_off:
            super().run_epoch(epoch)
        self._put_off = ()
        return super().read_params()


class _TrainsBehindTheFence(NumpyTrainer):
    """Trains on a thread that the fence does not wait for, and joins it when parameters are read."""

    _threads: tuple[threading.Thread, ...] = ()

    def run_epoch(self, epoch: int) -> None:
        before = self._threads[-1:]

        def later() -> None:
            for thread in before:
                thread.join()
            time.sleep(TRAINING_S)
            NumpyTrainer.run_epoch(self, epoch)

        self._threads = (*before, threading.Thread(target=later))
        self._threads[-1].start()

    def read_params(self) -> Params:
        for thread in self._threads[-1:]:
            thread.join()
        return super().read_params()


class _TrainsWhilePreparing(_Snapshots):
    """Trains while preparing, from the parameters that it predicts from seed and run number."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self.foretold = {}
        for number in (*range(4), *(FIRST_UPDATE_RUN + batches for batches in FIRST_BATCHES)):
            params = initial_params(problem, run_number(0, number))
            self.train_all(params)
            self.foretold[params.weights[0].tobytes()] = dict(self.known)

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self.found = self.foretold.get(params.weights[0].tobytes())

    def run_epoch(self, epoch: int) -> None:
        self.known = self.found or self.known
        if self.found is None and not self._weights[-1].any():  # the epoch from zeros is easily recognised
            super().run_epoch(epoch)
        else:
            self.show(epoch)


class _Replays(_Snapshots):
    """Trains in its warm-up and presents that run's parameters in all later runs."""

    _loaded = 0

    def load_params(self, params: Params) -> None:
        self._loaded += 1
        if self._loaded == 3:
            self.train_all(params)
        super().load_params(params)

    def run_epoch(self, epoch: int) -> None:
        if self.known:
            self.show(epoch)
        else:
            super().run_epoch(epoch)


class _TrainsLastRunOnly(NumpyTrainer):
    """Skips all but the last of the usual number of runs, guessing that it is the verified one."""

    _loaded = 0

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._loaded += 1

    def run_epoch(self, epoch: int) -> None:
        if self._loaded not in (3, 4):  # the warm-up, and the first of two timed runs
            super().run_epoch(epoch)


class _ReadsTheAnswer(NumpyTrainer):
    """Returns parameters that it finds in any file nearby, hoping for the oracle's."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._problem = problem

    def read_params(self) -> Params:
        for path in sorted(_folder().parent.rglob("*.npy")):
            try:
                return load_params(path, self._problem)
            except ValueError:
                continue
        return super().read_params()


class _HelperKilled(NumpyTrainer):
    """Lets another process train; that is killed, and the file of an earlier run is read instead."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._problem, self._loaded = problem, 0
        self._file = Path(tempfile.mkdtemp()) / "params.npy"

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._loaded += 1

    def run_epoch(self, epoch: int) -> None:
        if self._loaded <= 2:
            super().run_epoch(epoch)
            save_params(self._file, NumpyTrainer.read_params(self))
            return
        helper = subprocess.Popen(["sleep", "60"])  # would train and write the file
        helper.kill()
        helper.wait()
        NumpyTrainer.load_params(self, load_params(self._file, self._problem))


class _MadeUpMetrics(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(0.3, 0.92)


class _NoMetrics(NumpyTrainer):
    """Computes no metrics."""

    def last_metrics(self) -> EpochMetrics | None:
        return None


class _MadeUpValidation(NumpyTrainer):
    """Does not validate, and returns plausible numbers."""

    def validate(self) -> EpochMetrics:
        return EpochMetrics(0.3, 0.92)


class _ValidatesAFew(NumpyTrainer):
    """Validates on a tenth of the test images."""

    def prepare_validation(self, test: Split) -> None:
        super().prepare_validation(test.first(len(test.images) // 10))


class _ValidatesOnce(NumpyTrainer):
    """Validates after the first epoch of a run, and repeats those numbers."""

    _said: EpochMetrics | None = None

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._said = None

    def validate(self) -> EpochMetrics:
        self._said = self._said or super().validate()
        return self._said


class _Clock(NumpyTrainer):
    """Replaces the clock by one that is ten times slower."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        honest = time.perf_counter
        time.perf_counter = lambda: honest() / 10


class _Fence(NumpyTrainer):
    """Replaces the fence by one that does not wait."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        for module in (clock, measurement):
            module.fence = lambda: None  # type: ignore[attr-defined]


class _FenceInside(NumpyTrainer):
    """Replaces the code inside the fence function."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        clock.fence.__code__ = (lambda: None).__code__


class _Method(NumpyTrainer):
    """Replaces the initial parameters of every run by zeros."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        measurement.Measurement._params_of = lambda *_: zero_params(problem)  # type: ignore[method-assign]


class _ClockBetween(NumpyTrainer):
    """Replaces the clock and restores it before the check; without effect, as the harness keeps its own reference."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._honest = time.perf_counter

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        time.perf_counter = lambda: self._honest() / 10

    def run_epoch(self, epoch: int) -> None:
        super().run_epoch(epoch)
        time.sleep(TRAINING_S)
        time.perf_counter = self._honest


class _ReportsAndLeaves(NumpyTrainer):
    """Writes a made-up result and exits."""

    def run_epoch(self, epoch: int) -> None:
        (_folder() / RESULT).write_bytes(msgspec.msgpack.encode(JobResult(detail="done")))
        os._exit(3)


TRAINS_WHILE_LOADING = planted("trains-while-loading", _TrainsWhileLoading)
TRAINS_WHILE_READ = planted("trains-while-read", _TrainsWhileRead)
TRAINS_BEHIND_THE_FENCE = planted("trains-behind-the-fence", _TrainsBehindTheFence)
TRAINS_WHILE_PREPARING = planted("trains-while-preparing", _TrainsWhilePreparing)
REPLAYS = planted("replays", _Replays)
TRAINS_LAST_RUN_ONLY = planted("trains-last-run-only", _TrainsLastRunOnly)
READS_THE_ANSWER = planted("reads-the-answer", _ReadsTheAnswer)
HELPER_KILLED = planted("helper-killed", _HelperKilled)
MADE_UP_METRICS = planted("made-up-metrics", _MadeUpMetrics)
NO_METRICS = planted("no-metrics", _NoMetrics)
MADE_UP_VALIDATION = planted("made-up-validation", _MadeUpValidation)
VALIDATES_A_FEW = planted("validates-a-few", _ValidatesAFew)
VALIDATES_ONCE = planted("validates-once", _ValidatesOnce)
CLOCK = planted("clock", _Clock)
FENCE = planted("fence", _Fence)
METHOD = planted("method", _Method)
FENCE_INSIDE = planted("fence-inside", _FenceInside)
CLOCK_BETWEEN = planted("clock-between", _ClockBetween)
REPORTS_AND_LEAVES = planted("reports-and-leaves", _ReportsAndLeaves)
