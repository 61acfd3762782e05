"""How many threads JAX uses where there is no GPU.

XLA reads the size of its thread pool once, from `$PJRT_NPROC`, when a process first asks for a device; no option of a
compiled function changes it. So every number is tried in a process of its own, before this process asks.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from common.cuda import driver
from common.problem import Problem, initial_params
from common.streams import print_error
from common.trainer import Trainer
from stages.references.thread_trials import epoch_steps_s, fastest_count, random_split, thread_counts, trial_steps

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "PJRT_NPROC"
Build = Callable[[Problem, Any], Trainer]
_chosen: list[int] = []  # for the whole process, once


class JaxError(Exception):
    """JAX's own sentence, by which a trial ended."""


def use_fastest_threads(problem: Problem, build: Build) -> str:
    """On a CPU, give XLA the number of threads with which a step is fastest; returns text for reports.

    The first trainer of a process chooses. A number in `$PJRT_NPROC` stands.
    """
    if driver.no_device_reason() is None:
        return ""
    if not _chosen and VARIABLE not in os.environ and not _has_client():
        _chosen.append(_fastest(problem, build))
        os.environ[VARIABLE] = str(_chosen[0])
    count = os.environ.get(VARIABLE)
    return f"CPU, {count} thread{'' if count == '1' else 's'}" if count else "CPU"


def _has_client() -> bool:
    """Whether XLA's threads exist already."""
    from jax._src.xla_bridge import backends_are_initialized

    return bool(backends_are_initialized())


def _fastest(problem: Problem, build: Build) -> int:
    """Of 1, 2, 4, ... and all usable, by turns of a process for each."""
    trials: dict[int, _Trial] = {}

    def steps_s(count: int) -> list[float]:
        if not trials:  # all at once, and none is timed while another begins
            trials.update({count: _Trial(count, problem, build) for count in counts})
            for trial in trials.values():
                trial.answer()
        return trials[count].steps_s()

    counts = thread_counts()
    try:
        return fastest_count(counts, steps_s)
    finally:
        for trial in trials.values():
            trial.end()


class _Trial:
    """A process with this number of threads; it is started anew, since JAX does not survive a fork."""

    def __init__(self, count: int, problem: Problem, build: Build) -> None:
        self._count = count
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {VARIABLE: str(count), "PYTHONPATH": path},
        )
        assert self._process.stdin
        pickle.dump((problem, build), self._process.stdin)
        self._process.stdin.flush()

    def steps_s(self) -> list[float]:
        """Seconds of some steps; raises JaxError if the process has ended."""
        assert self._process.stdin
        with suppress(OSError):  # it has ended, and answers nothing
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> list[float]:
        """The process's next answer, its first when it is ready; raises JaxError if it has ended."""
        assert self._process.stdout
        try:
            took: list[float] | str = json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            raise JaxError(f"JAX ended while {self._count} of its threads were tried") from error
        if isinstance(took, str):
            raise JaxError(took)
        return took

    def end(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Train an epoch of a trial at once and for each line of stdin, and answer with its seconds a step.

    An exception ends it, whose last line is the answer.
    """
    try:
        problem, build = pickle.load(sys.stdin.buffer)  # from the process that started this one
        trainer: Trainer = build(problem, random_split(problem, steps := trial_steps(problem)))
        trainer.load_params(initial_params(problem, 0))
        for _ in itertools.chain([b""], sys.stdin.buffer):
            _say(epoch_steps_s(trainer, steps))
    except Exception as error:
        print_error()
        _say("".join(traceback.format_exception_only(error)).strip().splitlines()[-1])


def _say(answer: list[float] | str) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
