"""Stages that deceive: work that is done while nobody times it, results that were not computed, a harness rearranged.

Why: people quote these times, and who tunes a stage for long finds every gap between clock and gate.

Change: each is NumPy's trainer with one way of cheating.

Expect: each is caught, by the check or the reason that test_caught.py names.
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
from tests.cheats.defects import wrong

A_WHILE = 0.05  # seconds of training, as they would be on a problem of the usual size


class _Snapshots(NumpyTrainer):
    """Trains honestly, and can show what it had after each epoch as if it had only just trained."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self.problem = problem
        self.known: dict[int, tuple[Params, EpochMetrics | None]] = {}

    def train_all(self, params: Params) -> None:
        """Every epoch of a run."""
        NumpyTrainer.load_params(self, params)
        for epoch in range(self.problem.epochs):
            NumpyTrainer.run_epoch(self, epoch)
            self.known[epoch] = NumpyTrainer.read_params(self), self._last

    def show(self, epoch: int) -> None:
        """As if it had trained."""
        params, self._last = self.known[epoch]
        NumpyTrainer.load_params(self, params)


def _folder() -> Path:
    """Where the harness looks for what this process leaves: whoever asks around finds it."""
    frame = sys._getframe()
    while "folder" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    folder: Path = frame.f_locals["folder"]
    return folder


class _TrainsWhileLoading(_Snapshots):
    """What every epoch does is moved to where no clock runs yet."""

    def load_params(self, params: Params) -> None:
        time.sleep(A_WHILE)
        self.train_all(params)
        super().load_params(params)

    def run_epoch(self, epoch: int) -> None:
        self.show(epoch)


class _TrainsWhileRead(NumpyTrainer):
    """What every epoch does is put off until the fence has passed."""

    _put_off: tuple[int, ...] = ()

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._put_off = ()

    def run_epoch(self, epoch: int) -> None:
        self._put_off += (epoch,)

    def read_params(self) -> Params:
        if self._put_off:
            time.sleep(A_WHILE)
        for epoch in self._put_off:
            super().run_epoch(epoch)
        self._put_off = ()
        return super().read_params()


class _TrainsBehindTheFence(NumpyTrainer):
    """On a thread that no fence waits for; it is waited for when the parameters are read."""

    _threads: tuple[threading.Thread, ...] = ()

    def run_epoch(self, epoch: int) -> None:
        before = self._threads[-1:]

        def later() -> None:
            for thread in before:
                thread.join()
            time.sleep(A_WHILE)
            NumpyTrainer.run_epoch(self, epoch)

        self._threads = (*before, threading.Thread(target=later))
        self._threads[-1].start()

    def read_params(self) -> Params:
        for thread in self._threads[-1:]:
            thread.join()
        return super().read_params()


class _TrainsWhilePreparing(_Snapshots):
    """From the parameters that seed and number foretell."""

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
        if self.found is None and not self._weights[-1].any():  # from zeros, which are easily told
            super().run_epoch(epoch)
        else:
            self.show(epoch)


class _Replays(_Snapshots):
    """Trains from the parameters of its warm-up, and shows that run ever after."""

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
    """Guesses which run is judged: the last one of as many as there usually are."""

    _loaded = 0

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._loaded += 1

    def run_epoch(self, epoch: int) -> None:
        if self._loaded not in (3, 4):  # the warm-up, and the first of two timed runs
            super().run_epoch(epoch)


class _ReadsTheAnswer(NumpyTrainer):
    """Looks for parameters in every file around it, the oracle's or anybody's."""

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
    """Leaves training to another process, which is killed, and takes the file that it left the time before."""

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
        helper = subprocess.Popen(["sleep", "60"])  # it would train, and write the file
        helper.kill()
        helper.wait()
        NumpyTrainer.load_params(self, load_params(self._file, self._problem))


class _MadeUpMetrics(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(0.3, 0.92)


class _NoMetrics(NumpyTrainer):
    """Saves itself the trouble."""

    def last_metrics(self) -> EpochMetrics | None:
        return None


class _MadeUpValidation(NumpyTrainer):
    """Saves itself the trouble, and says what such networks reach."""

    def validate(self) -> EpochMetrics:
        return EpochMetrics(0.3, 0.92)


class _ValidatesAFew(NumpyTrainer):
    """A tenth of the test images will do."""

    def prepare_validation(self, test: Split) -> None:
        super().prepare_validation(test.first(len(test.images) // 10))


class _ValidatesOnce(NumpyTrainer):
    """After the first epoch of a run, and says so ever after."""

    _said: EpochMetrics | None = None

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._said = None

    def validate(self) -> EpochMetrics:
        self._said = self._said or super().validate()
        return self._said


class _Clock(NumpyTrainer):
    """Time goes by ten times slower."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        honest = time.perf_counter
        time.perf_counter = lambda: honest() / 10


class _Fence(NumpyTrainer):
    """Nobody waits for anything."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        for module in (clock, measurement):
            module.fence = lambda: None  # type: ignore[attr-defined]


class _FenceInside(NumpyTrainer):
    """The same function, with another inside."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        clock.fence.__code__ = (lambda: None).__code__


class _Method(NumpyTrainer):
    """Parameters that the stage knows: zeros for every run."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        measurement.Measurement._params_of = lambda *_: zero_params(problem)  # type: ignore[method-assign]


class _ClockBetween(NumpyTrainer):
    """A slow clock that is put back before anyone looks; too late, for the harness has its own by then."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._honest = time.perf_counter

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        time.perf_counter = lambda: self._honest() / 10

    def run_epoch(self, epoch: int) -> None:
        super().run_epoch(epoch)
        time.sleep(A_WHILE)
        time.perf_counter = self._honest


class _ReportsAndLeaves(NumpyTrainer):
    """Writes a report of its own, of whatever it likes, and goes."""

    def run_epoch(self, epoch: int) -> None:
        (_folder() / RESULT).write_bytes(msgspec.msgpack.encode(JobResult(detail="done")))
        os._exit(3)


TRAINS_WHILE_LOADING = wrong("trains-while-loading", _TrainsWhileLoading)
TRAINS_WHILE_READ = wrong("trains-while-read", _TrainsWhileRead)
TRAINS_BEHIND_THE_FENCE = wrong("trains-behind-the-fence", _TrainsBehindTheFence)
TRAINS_WHILE_PREPARING = wrong("trains-while-preparing", _TrainsWhilePreparing)
REPLAYS = wrong("replays", _Replays)
TRAINS_LAST_RUN_ONLY = wrong("trains-last-run-only", _TrainsLastRunOnly)
READS_THE_ANSWER = wrong("reads-the-answer", _ReadsTheAnswer)
HELPER_KILLED = wrong("helper-killed", _HelperKilled)
MADE_UP_METRICS = wrong("made-up-metrics", _MadeUpMetrics)
NO_METRICS = wrong("no-metrics", _NoMetrics)
MADE_UP_VALIDATION = wrong("made-up-validation", _MadeUpValidation)
VALIDATES_A_FEW = wrong("validates-a-few", _ValidatesAFew)
VALIDATES_ONCE = wrong("validates-once", _ValidatesOnce)
CLOCK = wrong("clock", _Clock)
FENCE = wrong("fence", _Fence)
METHOD = wrong("method", _Method)
FENCE_INSIDE = wrong("fence-inside", _FenceInside)
CLOCK_BETWEEN = wrong("clock-between", _ClockBetween)
REPORTS_AND_LEAVES = wrong("reports-and-leaves", _ReportsAndLeaves)
