"""Trains the float64 oracle once for all stages, from the parameters of each round's verified run.

The runs have processes of their own, side by side, before anything is timed: so they disturb no measurement.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import current_thread, main_thread
from types import ModuleType

import numpy as np

from common.blas import limit_blas_threads
from common.data.dataset import Dataset
from common.errors import UsageError
from common.oracle import Float64Array, Oracle, OracleEpoch, evaluate
from common.problem import Problem, initial_params, zero_params
from common.process_group import die_with_parent
from ladder.machine.environment import cores_usable
from ladder.measure.curves import part_of, point, windows
from ladder.measure.displacement import Displacement
from ladder.records.run import Curve

LOSS_LIMIT = float(np.finfo(np.float32).max)  # training with a larger loss, or NaN, counts as diverged
Float64Params = tuple[list[Float64Array], list[Float64Array]]


@dataclass
class OracleRun:
    """The oracle after each epoch; with its parameters only if a stage's can be compared with them.

    That is the case for softmax regression and for any network that starts from zeros: both are convex, so rounding
    errors do not grow. Other ReLU networks diverge within an epoch.
    """

    epochs: list[OracleEpoch] = field(default_factory=list)
    tested: list[OracleEpoch] = field(default_factory=list)
    """On the test images."""
    params: list[Float64Params | None] = field(default_factory=list)
    displacements: list[Displacement] = field(default_factory=list)
    curve: Curve = field(default_factory=Curve)
    """One point per epoch, or as many as requested."""


def compute(problem: Problem, dataset: Path, run: int | None, budget_s: float, curve_steps: int = 0) -> OracleRun:
    """Train from the parameters of run number `run`, for all epochs or until the budget is spent (at least one epoch).

    Run None is one epoch from zeros. The curve has a point every `curve_steps` steps; 0 means one per epoch.
    """
    data = Dataset.load_saved(dataset)
    initial = zero_params(problem) if run is None else initial_params(problem, run)
    oracle = Oracle(problem, initial)
    done = OracleRun()
    begin = time.perf_counter()
    steps = problem.steps(len(data.train.images))
    parts = windows(steps, curve_steps or steps)
    for epoch in range(1 if run is None else problem.epochs):
        seen = [oracle.run_epoch(*part_of(data.train, problem, part)) for part in parts]
        done.epochs.append(_mean(seen, parts))
        tested = evaluate(oracle.weights, oracle.biases, data.test.images, data.test.labels)
        done.tested.append(tested)
        for part, one in zip(parts, seen, strict=True):
            done.curve.training.append(point(epoch * steps + part.stop, one.mean_loss, one.accuracy))
        done.curve.validation.append(point((epoch + 1) * steps, tested.mean_loss, tested.accuracy))
        done.displacements.append(Displacement.of(initial, oracle.weights, oracle.biases))
        keep = problem.is_logistic or run is None
        done.params.append(([w.copy() for w in oracle.weights], [b.copy() for b in oracle.biases]) if keep else None)
        if time.perf_counter() - begin > budget_s:
            break
    return done


def _mean(seen: Sequence[OracleEpoch], parts: Sequence[range]) -> OracleEpoch:
    """Loss and accuracy of an epoch, as the mean over its parts weighted by their steps."""
    if len(seen) == 1:
        return seen[0]
    steps = sum(map(len, parts))
    loss, accuracy = (
        sum(value * len(part) for value, part in zip(values, parts, strict=True)) / steps
        for values in ([one.mean_loss for one in seen], [one.accuracy for one in seen])
    )
    return OracleEpoch(loss, accuracy)


def compute_all(
    problem: Problem, dataset: Path, runs: Sequence[int | None], budget_s: float, curve_steps: int = 0
) -> dict[int | None, OracleRun]:
    """Train several runs by number, side by side on the usable cores, within one common budget in seconds.

    Raises UsageError if training diverges in float64 or the host runs out of memory.
    """
    workers = min(len(runs), cores_usable())
    share = (max(1, cores_usable() // workers),)
    done: dict[int | None, OracleRun] = {}
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, share) as pool:
        share_s = budget_s * workers / len(runs)
        try:  # includes the starting: a Ctrl-C held back meanwhile is raised right after it
            with _ctrl_c_held_back(), _silent_stderr(), _without_main():
                futures = {run: pool.submit(compute, problem, dataset, run, share_s, curve_steps) for run in runs}
            done = {run: future.result() for run, future in futures.items()}
        except BrokenProcessPool as error:
            layers = ",".join(map(str, problem.hidden))
            raise UsageError(f"hidden {layers}: the float64 oracle ran out of memory; choose smaller layers") from error
        except BaseException:  # mostly Ctrl-C: closing the pool would wait for workers with a minute's work left
            for worker in active_children():
                worker.kill()
            raise
    if not all(epoch.mean_loss < LOSS_LIMIT for run in done.values() for epoch in run.epochs):
        rate = problem.learning_rate
        raise UsageError(f"learning rate {rate}: training diverges even in float64; choose a smaller one")
    return done


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Hold Ctrl-C back inside the context, also for processes started in it: this process ends them itself.

    Started processes inherit the signal mask. In this process the mask is not enough, since a library's thread may
    receive the signal: an interrupt before the pool knows a new process would leave that process running.
    """
    received: list[int] = []
    in_main_thread = current_thread() is main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number)) if in_main_thread else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
    if received:
        raise KeyboardInterrupt


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence stderr for processes started inside: one whose parent ends while it starts would print a traceback.

    Errors of their actual work are raised through the pool.
    """
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep processes started inside from importing the main program, which may take longer than their work."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(threads: int) -> None:
    """Initialise a worker: it ends with the harness, and its BLAS uses `threads` threads."""
    die_with_parent()
    np.seterr(all="ignore")  # divergence is reported in one line
    limit_blas_threads(threads)
