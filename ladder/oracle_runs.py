"""The oracle's training runs, made once for all stages: every round's verified run starts from the same parameters.

They are made in processes of their own, side by side, before anything is timed, so that they neither disturb a
measurement nor are repeated for each stage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from pathlib import Path

from common.dataset import Dataset
from common.oracle import Float64Array, Oracle, OracleEpoch, test_accuracy
from common.problem import Problem, initial_params, zero_params

Float64Params = tuple[list[Float64Array], list[Float64Array]]


@dataclass
class OracleRun:
    """What the oracle knew after each epoch; its parameters only where they can be compared.

    Softmax regression is convex, so that rounding stays what it was, and so is any network that starts from zeros;
    other ReLU networks part company within an epoch.
    """

    epochs: list[OracleEpoch] = field(default_factory=list)
    test_accuracies: list[float] = field(default_factory=list)
    params: list[Float64Params | None] = field(default_factory=list)


def compute(problem: Problem, dataset: Path, run: int | None, budget_s: float) -> OracleRun:
    """Train from the parameters of run number `run` for all epochs or until the budget is spent (one at least).

    Run None is one epoch from zeros.
    """
    data = Dataset.load_saved(dataset)
    oracle = Oracle(problem, zero_params(problem) if run is None else initial_params(problem, run))
    done = OracleRun()
    begin = time.perf_counter()
    for _ in range(1 if run is None else problem.epochs):
        done.epochs.append(oracle.run_epoch(data.train.images, data.train.labels))
        done.test_accuracies.append(test_accuracy(oracle.weights, oracle.biases, data.test.images, data.test.labels))
        keep = problem.is_logistic or run is None
        done.params.append(([w.copy() for w in oracle.weights], [b.copy() for b in oracle.biases]) if keep else None)
        if time.perf_counter() - begin > budget_s:
            break
    return done


def compute_all(
    problem: Problem, dataset: Path, runs: Sequence[int | None], budget_s: float
) -> dict[int | None, OracleRun]:
    """Several runs by their number, side by side on the cores there are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(len(runs), cores)
    with ProcessPoolExecutor(workers, get_context("spawn"), _share_cores, (max(1, cores // workers),)) as pool:
        futures = {run: pool.submit(compute, problem, dataset, run, budget_s) for run in runs}
        try:
            return {run: future.result() for run, future in futures.items()}
        except BaseException:  # Ctrl-C above all: on leaving, the pool waits for workers that have a minute's work
            for worker in active_children():
                worker.kill()
            raise


def _share_cores(threads: int) -> None:
    """Without this every process would start as many BLAS threads as there are cores."""
    with suppress(ImportError):  # slower without it, not wrong
        from threadpoolctl import threadpool_limits

        threadpool_limits(threads)
