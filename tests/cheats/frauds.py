"""Stages that cheat: they work outside of the timer, return results that they did not compute, or alter the harness.

Why: people quote these times, and long tuning of a stage finds every gap between clock and gates.

Change: each is the NumPy trainer with one way of cheating.

Expect: the check or the reason that stands above each catches it.
"""

from __future__ import annotations

import builtins
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from common.cuda import clock
from common.data.dataset import Split
from common.problem import Float32Array, Params, Problem, initial_params, zero_params
from common.trainer import EpochMetrics
from ladder.measure import measurement, timing
from ladder.measure.protocol import (
    FIRST_UPDATE_RUN,
    LATE_EPOCHS,
    REPEATED_EPOCHS,
    REPEATED_RUN,
    RESULT,
    RUNS_PER_ROUND,
    JobResult,
    load_params,
    run_number,
    salted_number,
    save_params,
)
from ladder.measure.seeds import REFUSED
from ladder.run.orders import FIRST_BATCHES
from ladder.verify.other_runs import LOSS_CHECK
from stages.references.numpy_cpu import NumpyTrainer
from tests.cheats.defects import FIRST_UPDATE_BATCHES, ZEROS, caught_by, changing, planted, stages_of, train_on

UNTIMED_WORK = "work outside of the timer, as a share of the run"
DISPLACEMENT, SHORTEST_RUN = "way from the first parameters", "timed runs, shortest way by the judged one's"
JUDGED, CLOCK = "judged run, shorter than any other by", "timed runs, difference from Linux's clock"
REPLACED = "TamperedError: the stage replaced {}, which measures it; leave it alone"
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
        for epoch in range(max(self.problem.epochs, REPEATED_EPOCHS)):
            NumpyTrainer.run_epoch(self, epoch)
            self.known[epoch] = NumpyTrainer.read_params(self), self._last

    def show(self, epoch: int) -> None:
        """Present the stored parameters of an epoch."""
        params, self._last = self.known[min(epoch, max(self.known))]
        NumpyTrainer.load_params(self, params)


def _folder() -> Path:
    """The folder of this process's results, found by searching the harness's stack frames."""
    frame = sys._getframe()
    while "folder" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    folder: Path = frame.f_locals["folder"]
    return folder


@caught_by(UNTIMED_WORK)
class _TrainsWhileLoading(_Snapshots):
    """Trains all epochs while loading parameters, before the clock starts."""

    def load_params(self, params: Params) -> None:
        time.sleep(TRAINING_S)
        self.train_all(params)
        super().load_params(params)

    def run_epoch(self, epoch: int) -> None:
        self.show(epoch)


@caught_by(UNTIMED_WORK)
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


@caught_by(UNTIMED_WORK)
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


class _Unready:
    """A tensor of a library that works in the background: reading it as an array waits for the training."""

    def __init__(self, tensor: Float32Array, train: Callable[[], None]) -> None:
        self._tensor, self._train = tensor, train
        self.shape, self.size, self.dtype = tensor.shape, tensor.size, tensor.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._train()
        return self._tensor

    def copy(self) -> Any:
        return self.__array__().copy()


@caught_by(UNTIMED_WORK)
class _ReturnsBeforeItIsReady(_TrainsWhileRead):
    """Returns tensors that are trained when NumPy asks for them."""

    def read_params(self) -> Params:
        def train() -> None:
            _TrainsWhileRead.read_params(self)

        return Params(*(tuple(_Unready(one, train) for one in part) for part in (self._weights, self._biases)))  # type: ignore[arg-type]


@caught_by(
    "ContractError: weights[0] from read_params() is concurrent.futures._base.Future of object; return float32 NumPy "
    "arrays, and wait for your results in run_epoch()",
    "refused",
)
class _ReturnsFutures(NumpyTrainer):
    """Hands the training to a thread pool and returns its promises."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._pool = ThreadPoolExecutor(1)

    def run_epoch(self, epoch: int) -> None:
        self._pool.submit(super().run_epoch, epoch)

    def read_params(self) -> Params:
        def promised(part: list[Float32Array]) -> Any:
            return tuple(self._pool.submit(tensor.copy) for tensor in part)

        return Params(promised(self._weights), promised(self._biases))


class _JaxWithoutWaiting:
    """JAX as in many a first script: no `block_until_ready`, so that the clock sees the launch alone."""

    detail, device, cuda_stream = "CPU", "cpu", None

    def __init__(self, problem: Problem, train: Split) -> None:
        from stages.references.jax_scan import JaxScanTrainer

        self._inner = JaxScanTrainer(problem, train)
        self._jax = self._inner._jax

        def burn(layers: Any) -> Any:
            """Add nothing to the first weight, which takes long: the tiny problem alone would be ready at once."""
            one = self._jax.numpy.ones((400, 400)) / 400
            idle = self._jax.lax.fori_loop(0, 20, lambda _, product: product @ one, one)[0, 0]
            return [(layers[0][0] + 1e-30 * idle, layers[0][1]), *layers[1:]]

        self._burn = self._jax.jit(burn)
        self.load_params, self.close = self._inner.load_params, self._inner.close

    def run_epoch(self, epoch: int) -> None:
        inner = self._inner
        due = inner._problem.metrics_due(epoch)
        inner._layers, totals = inner._epochs[due](inner._layers, inner._images, inner._labels)
        inner._layers = self._burn(inner._layers)
        steps, batch = inner._steps, inner._problem.batch_size
        self._last = EpochMetrics(totals[0] / steps, totals[1] / (steps * batch)) if due else None

    def last_metrics(self) -> EpochMetrics | None:
        return self._last

    def read_params(self) -> Params:
        return Params(*map(tuple, zip(*self._inner._layers, strict=True)))


@caught_by("what a number takes that is computed when it is asked for is timed", "passes")
class _LateMetrics(NumpyTrainer):
    """Computes its metrics, which take long, when a number is asked for."""

    def last_metrics(self) -> EpochMetrics | None:
        seen = super().last_metrics()
        return None if seen is None else EpochMetrics(_Slowly(seen.mean_loss), _Slowly(seen.accuracy))


class _Slowly(float):
    def __float__(self) -> float:
        time.sleep(TRAINING_S)
        return float(super().__float__())


@caught_by(UNTIMED_WORK)
class _TrainsWhileLoadingButOnce(_TrainsWhileLoading):
    """Trains while loading in all runs but one, in case the least share of a process counts."""

    _loaded, _honest = 0, False

    def load_params(self, params: Params) -> None:
        self._loaded += 1
        self._honest = self._loaded == 4  # the first of the timed runs
        (NumpyTrainer if self._honest else _TrainsWhileLoading).load_params(self, params)

    def run_epoch(self, epoch: int) -> None:
        if self._honest:
            time.sleep(TRAINING_S)
        (NumpyTrainer if self._honest else _TrainsWhileLoading).run_epoch(self, epoch)


@caught_by(UNTIMED_WORK)
class _SleepsWhenReadAgain(_TrainsWhileRead):
    """Trains when its parameters are read, and takes as long when they are read again, as if copying did."""

    def read_params(self) -> Params:
        if not self._put_off:
            time.sleep(2 * TRAINING_S)
        return super().read_params()


@caught_by(DISPLACEMENT)
class _TrainsWhilePreparing(_Snapshots):
    """Trains while preparing, from the parameters that it predicts from seed, salt and run number."""

    salt = 0

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self.foretold = {}
        later = (first + batches for first in (FIRST_UPDATE_RUN, REPEATED_RUN) for batches in FIRST_BATCHES)
        for number in (*range(4), *later):
            params = initial_params(problem, salted_number(self.salt, run_number(0, number)))
            self.train_all(params)
            self.foretold[params.weights[0].tobytes()] = dict(self.known)

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self.found = self.foretold.get(params.weights[0].tobytes())
        self.started_trained = any(bias.any() for bias in params.biases)

    def run_epoch(self, epoch: int) -> None:
        self.known = self.found or self.known
        # The epochs from zeros and from trained parameters are easily recognised.
        if self.found is None and (not self._weights[-1].any() or self.started_trained):
            super().run_epoch(epoch)
        else:
            self.show(epoch)


@caught_by("distance from the oracle's parameters, by its way", "alone")
class _GraftsWeights(NumpyTrainer):
    """Trains other weights while preparing, and grafts them onto each run's where they tell classes apart.

    The rest of the first weights stays, so that the run seems to have come from them.
    """

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._trained: Params | None = None
        if len(self._batches) <= FIRST_UPDATE_BATCHES:
            return
        super().load_params(initial_params(problem, 999))
        for epoch in range(problem.epochs):
            super().run_epoch(epoch)
        self._trained = super().read_params()
        pixels = train.pixels()
        means = [pixels[train.labels == label].mean(axis=0) for label in range(problem.classes)]
        directions, _ = np.linalg.qr(np.array(means).T)
        self._shared = (directions @ directions.T).astype(np.float32)

    def run_epoch(self, epoch: int) -> None:
        if self._trained is None or not self._weights[-1].any():  # a short run, or one from zeros
            super().run_epoch(epoch)
        elif epoch == 0:
            first = self._weights[0] + self._shared @ (self._trained.weights[0] - self._weights[0])
            super().load_params(Params((first, *self._trained.weights[1:]), self._trained.biases))


@caught_by(DISPLACEMENT)
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


class _Stored(NumpyTrainer):
    """Keeps every epoch of every run on disk, and takes it from there if a run begins as an earlier one."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        self._store = _folder().parent / "store"
        self._store.mkdir(exist_ok=True)
        self._steps = len(self._batches)

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._begins = f"{self._steps}-{sha256(params.weights[0].tobytes()).hexdigest()}"

    def run_epoch(self, epoch: int) -> None:
        file = self._store / f"{self._begins}-{epoch}"
        if file.exists():
            self._weights, self._biases, self._last = pickle.loads(file.read_bytes())
        else:
            time.sleep(4 * TRAINING_S * (self._steps > FIRST_UPDATE_BATCHES))  # where it is timed
            super().run_epoch(epoch)
            file.write_bytes(pickle.dumps((self._weights, self._biases, self._last)))


@caught_by(JUDGED)
class _ReplaysAfterACrash(_Stored):
    """Crashes once everything is trained, to be given a second process."""

    def close(self) -> None:
        crashed = self._store / "crashed"
        if not crashed.exists():
            crashed.touch()
            os._exit(1)


@caught_by("trained parameters, tensors")  # in its short runs, which come in one order; timed ones do not
class _TrainsLastRunOnly(NumpyTrainer):
    """Skips all but the last of the usual number of runs, guessing that it is the verified one."""

    _loaded = 0
    _skipped: tuple[int, ...] = (3, 4)  # the warm-up, and the first of two timed runs

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._loaded += 1

    def run_epoch(self, epoch: int) -> None:
        if self._loaded not in self._skipped:
            super().run_epoch(epoch)


@caught_by(SHORTEST_RUN, "alone")
class _SkipsTheSecondRun(_TrainsLastRunOnly):
    """Skips a run that does not come first, so that its first parameters are no other run's."""

    _skipped = (5,)


@caught_by(f"{LOSS_CHECK}; or final parameters", "alone")
class _TrainsABatchInOtherRuns(_TrainsLastRunOnly):
    """Goes a short way in all timed runs but the last, guessing that only that one has to arrive."""

    def run_epoch(self, epoch: int) -> None:
        # After the first epochs and a warm-up, the first of two.
        train_on(self, self._batches[: 1 if self._loaded == 4 else None], epoch)


@caught_by(DISPLACEMENT)
class _ReadsTheSalt(_TrainsWhilePreparing):
    """Finds the salt, or what it takes to compute the parameters to come, in every file and frame within reach."""

    def __init__(self, problem: Problem, train: Split) -> None:
        self.salt = self._found_salt()
        super().__init__(problem, train)

    def _found_salt(self) -> int:
        folder, frame = _folder(), sys._getframe()
        texts = [path.read_text() for path in folder.parent.rglob("*.json")]
        while frame.f_back is not None:
            frame = frame.f_back
            texts += [repr(value) for value in frame.f_locals.values()]
        found = [int(salt) for text in texts for salt in re.findall(r'salt"?[=:] ?(\d+)', text)]
        return next(filter(None, found), 0)


@caught_by(DISPLACEMENT)
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


@caught_by(DISPLACEMENT)
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


@caught_by("first update, loss")
class _MadeUpMetrics(NumpyTrainer):
    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(0.3, 0.92)


@caught_by("metrics left out, of those that are due")
class _NoMetrics(NumpyTrainer):
    """Computes no metrics."""

    def last_metrics(self) -> EpochMetrics | None:
        return None


@caught_by("validation of the final parameters, loss")
class _MadeUpValidation(NumpyTrainer):
    """Does not validate, and returns plausible numbers."""

    def validate(self) -> EpochMetrics:
        return EpochMetrics(0.3, 0.92)


@caught_by("validation of the final parameters, loss")
class _ValidatesAFew(NumpyTrainer):
    """Validates on a tenth of the test images."""

    def prepare_validation(self, test: Split) -> None:
        super().prepare_validation(test.first(len(test.images) // 10))


@caught_by("validation of the final parameters, loss")
class _ValidatesOnce(NumpyTrainer):
    """Validates after the first epoch of a run, and repeats those numbers."""

    _said: EpochMetrics | None = None

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._said = None

    def validate(self) -> EpochMetrics:
        self._said = self._said or super().validate()
        return self._said


@caught_by(ZEROS)
class _TrainsOnTheTest(NumpyTrainer):
    """Trains on the test images as soon as it has seen them."""

    def prepare_validation(self, test: Split) -> None:
        super().prepare_validation(test)
        whole = [one for one in self._test if len(one[1]) == self._problem.batch_size]
        self._batches[-len(whole) :] = whole


@caught_by(REPLACED.format("time.perf_counter"), "refused")
class _Clock(NumpyTrainer):
    """Replaces the clock by one that is ten times slower."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        honest = time.perf_counter
        time.perf_counter = lambda: honest() / 10


@caught_by(REPLACED.format("clock.fence"), "refused")
class _Fence(NumpyTrainer):
    """Replaces the fence by one that does not wait."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        for module in (clock, measurement):
            module.fence = lambda: None  # type: ignore[attr-defined]


@caught_by(REPLACED.format("clock.fence"), "refused")
class _FenceInside(NumpyTrainer):
    """Replaces the code inside the fence function."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        clock.fence.__code__ = (lambda: None).__code__


@caught_by(REPLACED.format("Measurement._params_from"), "refused")
class _Method(NumpyTrainer):
    """Replaces the initial parameters of every run by zeros."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        measurement.Measurement._params_from = lambda *_: zero_params(problem)  # type: ignore[method-assign]


@caught_by(CLOCK)
class _ShorterRuns(NumpyTrainer):
    """Has a tenth of each run's time recorded, by a method that puts the right one back as soon as it is called."""

    factor = 0.1
    _honest = staticmethod(timing.TimedRun.__init__)

    def run_epoch(self, epoch: int) -> None:
        time.sleep(TRAINING_S * (len(self._batches) > FIRST_UPDATE_BATCHES))  # where it is timed
        super().run_epoch(epoch)

        def shorter(run: Any, seconds: float, *args: Any) -> None:
            timing.TimedRun.__init__ = self._honest  # type: ignore[method-assign]
            self._honest(run, seconds * self.factor, *args)

        timing.TimedRun.__init__ = shorter  # type: ignore[assignment, method-assign]


@caught_by(CLOCK)
class _RunsOfNoTime(_ShorterRuns):
    """Has runs recorded that end before they begin."""

    factor = -1.0


@caught_by("late epoch of 3 batches, scale", "late")
class _LearnsLessWhenTimed(NumpyTrainer):
    """Leaves out a part of each epoch's update where the stack says that a timed run calls it."""

    def run_epoch(self, epoch: int) -> None:
        frame, names = sys._getframe(), set[str]()
        while frame.f_back is not None:
            frame = frame.f_back
            names |= {frame.f_code.co_name} if frame.f_code.co_filename == timing.__file__ else set()
        share = np.float32(0.99 if names >= {"measure", "timed_run"} else 1.0)
        changing(self._weights, partial(super().run_epoch, epoch), lambda step: share * step)


@caught_by("late epoch of 3 batches, finite parameters before it", "late")
class _InfiniteInTheMiddle(NumpyTrainer):
    """Leaves one infinite weight where a run is read in its middle, so that nothing could follow from there."""

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        self._epochs = 0

    def run_epoch(self, epoch: int) -> None:
        super().run_epoch(epoch)
        self._epochs += 1

    def read_params(self) -> Params:
        params = super().read_params()
        if self._epochs > min(LATE_EPOCHS) // 2:  # longer than timed runs are
            params.weights[0][0, 0] = np.inf
        return params


@caught_by(REPLACED.format("timing.COPY_S_PER_BYTE"), "refused")
class _Constant(_TrainsWhileLoading):
    """Trains while loading, and has copying excused for minutes."""

    def load_params(self, params: Params) -> None:
        super().load_params(params)
        timing.COPY_S_PER_BYTE = 1.0


class _Late(NumpyTrainer):
    """Waits for the last look at the harness, on the trainers of the first updates, before it alters the harness."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) <= FIRST_UPDATE_BATCHES:
            self.alter()

    def alter(self) -> None:
        raise NotImplementedError


@caught_by(REPLACED.format("builtins.max"), "refused")
class _Builtin(_Late):
    """Makes the larger of two numbers 0, and so all work outside of the timer."""

    def alter(self) -> None:
        builtins.max = lambda *_, **__: 0.0  # type: ignore[assignment]


@caught_by(REPLACED.format("msgpack.encode"), "refused")
class _Encoder(_Late):
    """Alters its result as it is written."""

    def alter(self) -> None:
        honest = msgspec.msgpack.encode
        msgspec.msgpack.encode = lambda *args, **options: honest(*args, **options)


@caught_by("the harness keeps its own reference to the clock", "passes")
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
        time.sleep(TRAINING_S * (len(self._batches) > FIRST_UPDATE_BATCHES))  # where it is timed
        time.perf_counter = self._honest


@caught_by("measured in a process of its own, and told", "passes")
class _KillsItsForkServer(NumpyTrainer):
    """Ends the process that forked it, and is measured in one of its own."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        keeper = os.getppid()
        if b"ladder.processes.fork_server" in Path(f"/proc/{keeper}/cmdline").read_bytes():
            os.kill(int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(1)


@caught_by(f"SeedError: {REFUSED}", "refused")
class _AsksAhead(NumpyTrainer):
    """Asks for the seed of the next round's judged run, through the connection that its measurement holds."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        frame = sys._getframe()
        while not isinstance(caller := frame.f_locals.get("self"), measurement.Measurement):
            assert frame.f_back is not None
            frame = frame.f_back
        caller._seeds.shared(RUNS_PER_ROUND)


@caught_by("exit code 3 after its result; see logs/reports-and-leaves.1.log", "refused")
class _ReportsAndLeaves(NumpyTrainer):
    """Writes a made-up result and exits."""

    def run_epoch(self, epoch: int) -> None:
        (_folder() / RESULT).write_bytes(msgspec.msgpack.encode(JobResult(detail="done")))
        os._exit(3)


UNWAITED = planted("jax-unwaited", _JaxWithoutWaiting, UNTIMED_WORK, "alone")  # type: ignore[arg-type]
JAX_WITHOUT_WAITING = replace(UNWAITED, needs=("jax",))
del UNWAITED
STORES = planted("stores", _Stored, "no earlier run has begun as one does", "passes")
REPLAYS_A_NEIGHBOUR = planted("replays-a-neighbour", _Stored, JUDGED)
globals().update(stages_of(globals(), _Snapshots, _Stored, _Late))
