"""The oracle's training runs, made once for all stages: every round's verified run starts from the same parameters.

They are made in processes of their own, side by side, before anything is timed, so that they neither disturb a
measurement nor are repeated for each stage.
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

MOST = float(np.finfo(np.float32).max)  # a loss beyond that, or no number at all, is none in any precision
Float64Params = tuple[list[Float64Array], list[Float64Array]]


@dataclass
class OracleRun:
    """What the oracle knew after each epoch; its parameters only where they can be compared.

    Softmax regression is convex, so that rounding stays what it was, and so is any network that starts from zeros;
    other ReLU networks part company within an epoch.
    """

    epochs: list[OracleEpoch] = field(default_factory=list)
    tested: list[OracleEpoch] = field(default_factory=list)
    """On the test images."""
    params: list[Float64Params | None] = field(default_factory=list)
    displacements: list[Displacement] = field(default_factory=list)
    curve: Curve = field(default_factory=Curve)
    """By epochs, or as finely as was asked for."""


def compute(problem: Problem, dataset: Path, run: int | None, budget_s: float, curve_steps: int = 0) -> OracleRun:
    """Train from the parameters of run number `run` for all epochs or until the budget is spent (one at least).

    Run None is one epoch from zeros. The curve has a point every `curve_steps`; 0 is once an epoch.
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
    """What a whole epoch saw, of its parts."""
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
    """Several runs by their number, side by side on the cores there are, within the budget together.

    Raises UsageError when training diverges, even in float64, or when there is no memory for it.
    """
    workers = min(len(runs), cores_usable())
    share = (max(1, cores_usable() // workers),)
    done: dict[int | None, OracleRun] = {}
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, share) as pool:
        share_s = budget_s * workers / len(runs)
        try:  # already here: a Ctrl-C that came while nobody heard it is told when the workers have been started
            with _deaf_to_ctrl_c(), _silent(), _without_main():
                futures = {run: pool.submit(compute, problem, dataset, run, share_s, curve_steps) for run in runs}
            done = {run: future.result() for run, future in futures.items()}
        except BrokenProcessPool as error:
            raise UsageError(f"hidden {problem.hidden}: the float64 oracle ran out of memory; choose less") from error
        except BaseException:  # Ctrl-C above all: on leaving, the pool waits for workers that have a minute's work
            for worker in active_children():
                worker.kill()
            raise
    if not all(epoch.mean_loss < MOST for run in done.values() for epoch in run.epochs):
        rate = problem.learning_rate
        raise UsageError(f"learning rate {rate}: training diverges, even in float64; choose a smaller one")
    return done


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, which goes to all: whoever started them ends them.

    The mask is for them, who inherit it. Here it is not enough: a thread of a library may be the one that is told, and
    an interrupt between starting a process and knowing of it would leave that one alone.
    """
    came: list[int] = []
    alone = current_thread() is main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if alone else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if alone:
            signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _silent() -> Iterator[None]:
    """Processes that are started here say nothing on stderr: one whose parent ends while it starts would do so.

    What goes wrong once it works is told through the pool.
    """
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are started here do not import this program, which may take them longer than their work."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(threads: int) -> None:
    """Set up a process: it ends with the harness, and leaves the other cores to the others' BLAS."""
    die_with_parent()
    np.seterr(all="ignore")  # divergence is told in one line
    limit_blas_threads(threads)
