"""How many threads a reference on the CPU gets: the number with which a step is fastest, tried while it is prepared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from common.choice import shared_choice
from common.cpu.cores import usable_cores
from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer, wait_of

TRIAL_S, TRIAL_TURNS = 0.1, 8  # for each number of threads; turns spread a disturbance over all of them
FEWEST_TURNS, LONG_S = 3, 0.3  # once so long epochs have passed with a number: a data loader's take 0.2 s each
TIE_TOLERANCE = 0.03  # relative to the fastest step; a smaller gain is noise
HOPELESS = 2.0  # times the fastest step: with so slow a number, still more threads would hinder one another more
TRIAL_MULTIPLICATIONS = 1 << 27  # in a trial's epoch: 10 ms of softmax regression


def thread_counts(most: int | None = None) -> tuple[int, ...]:
    """1, 2, 4, ... and as many as this process may use, or `most`."""
    most = most or usable_cores()
    return (*(1 << power for power in range(most.bit_length()) if 1 << power < most), most)


def fastest_count(counts: Sequence[int], steps_s: Callable[[int], list[float]], steps: int = 1) -> int:
    """The fewest threads with the fastest step; `steps_s` takes a number, has a turn and returns seconds of some steps.

    Each of these is the mean of an epoch of so many `steps`. Numbers come in rising order. Those above the first that
    is hopelessly slow are not tried. All processes of a stage take what the first of the run chose.
    """
    if len(counts) == 1:
        return counts[0]
    return shared_choice("threads", lambda: _fastest_count(counts, steps_s, steps))


def _fastest_count(counts: Sequence[int], steps_s: Callable[[int], list[float]], steps: int) -> int:
    turns_s: dict[int, list[list[float]]] = {}
    for count in counts:
        turns_s[count] = [steps_s(count)]
        if min(turns_s[count][0]) > HOPELESS * min(min(first) for first, *_ in turns_s.values()):
            break
    for _ in range(TRIAL_TURNS - 1):
        for count, turns in turns_s.items():
            tried_s = sum(map(sum, turns))
            is_long = len(turns) >= FEWEST_TURNS and tried_s * steps >= LONG_S
            if tried_s < TRIAL_S and not is_long:  # one step of a wide network exceeds it
                turns.append(steps_s(count))
    # Of a turn the mean, since threads that wait for busy cores make few steps hundreds of times as long.
    means_s = {count: statistics.median(map(statistics.fmean, turns)) for count, turns in turns_s.items()}
    return min(count for count in means_s if means_s[count] <= min(means_s.values()) * (1 + TIE_TOLERANCE))


def trial_steps(problem: Problem) -> int:
    """Steps of a trial's epoch, 8 to 128: the shorter, the more, since an epoch costs something beside them."""
    return min(max(TRIAL_MULTIPLICATIONS // problem.multiplications, 8), 128)


def random_split(problem: Problem, steps: int) -> Split:
    """Images and labels for an epoch of some steps: the speed of a step does not depend on them."""
    random, size = np.random.default_rng(0), steps * problem.batch_size
    images = random.integers(0, 256, (size, problem.inputs), np.uint8)
    return Split(images, random.integers(0, problem.classes, size, np.uint8))


def epoch_steps_s(trainer: Trainer, steps: int) -> list[float]:
    """Seconds of a step by epochs of some steps, after one epoch that wakes the threads; sparse metrics are not due."""
    wait = wait_of(trainer)
    trainer.run_epoch(0)
    wait()
    took, begin = list[float](), time.perf_counter()
    while not took or time.perf_counter() - begin < TRIAL_S / TRIAL_TURNS:
        before = time.perf_counter()
        trainer.run_epoch(0)
        wait()
        took.append((time.perf_counter() - before) / steps)
    return took
