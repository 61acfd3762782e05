"""Stages that reach beyond their own process, by accident: into shared data, other processes, memory or the disk.

Why: what a stage leaves behind slows its neighbours, and data that it overwrites fail them.

Change: each is the NumPy trainer with one accident.

Expect: the row or a note names the stage, and its neighbours are measured as if it had not been there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from common.choice import shared_choice
from common.data.dataset import Split
from common.problem import Problem
from stages.engine.stage import Stage
from stages.references.numpy_cpu import NumpyTrainer

KEPT: list[Any] = []  # never closed


def _say(what: object) -> None:
    os.write(1, f"{what}\n".encode())


def _stage(build: Any) -> Stage:
    name = build.__name__.strip("_").replace("_", "-")
    return Stage(name, name, "reference", "float32", (), build)


def _leaves_a_process(problem: Problem, train: Split) -> NumpyTrainer:
    """Starts a process in a session of its own, which a killed process group does not reach."""
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    child = subprocess.Popen(command, start_new_session=True)
    _say(child.pid)
    KEPT.append(child)
    return NumpyTrainer(problem, train)


def _leaves_and_raises(problem: Problem, train: Split) -> NumpyTrainer:
    _leaves_a_process(problem, train)
    raise RuntimeError("no")


def _leaves_and_hangs(problem: Problem, train: Split) -> NumpyTrainer:
    _leaves_a_process(problem, train)
    time.sleep(1000)
    raise AssertionError


def _tidy(problem: Problem, train: Split) -> NumpyTrainer:
    """Starts a process and waits for it."""
    subprocess.run([sys.executable, "-c", ""], check=True, start_new_session=True)
    return NumpyTrainer(problem, train)


def _overwrites_the_data(problem: Problem, train: Split) -> NumpyTrainer:
    images = train.images if isinstance(train.images, np.memmap) else train.images.base
    shared = Path(str(images.filename))  # type: ignore[union-attr]
    shared.chmod(0o644)
    np.load(shared, "r+")[:] = 0
    return NumpyTrainer(problem, train)


def _prints_much(problem: Problem, train: Split) -> NumpyTrainer:
    _say("the beginning")
    for _ in range(300):
        os.write(1, b"wall\n" * 4000)
    _say("the end")
    return NumpyTrainer(problem, train)


class _CloseRaises(NumpyTrainer):
    def close(self) -> None:
        raise RuntimeError("cannot let go")


class _CloseExits(NumpyTrainer):
    def close(self) -> None:
        os._exit(0)


class _CloseCrashes(NumpyTrainer):
    def close(self) -> None:
        ctypes.string_at(0)


def _is_stopped(problem: Problem, train: Split) -> NumpyTrainer:
    """Stopped for a second, as by a debugger or `kill -STOP`."""
    subprocess.Popen([sys.executable, "-c", f"import os, signal, time; time.sleep(1); os.kill({os.getpid()}, 18)"])
    os.kill(os.getpid(), signal.SIGSTOP)
    return NumpyTrainer(problem, train)


def _fails_once(problem: Problem, train: Split) -> NumpyTrainer:
    """Fails in a forked process, not in a started one."""
    if b"ladder.processes.fork_server" in Path("/proc/self/cmdline").read_bytes():
        _say("the first attempt")
        raise RuntimeError("not after a fork")
    return NumpyTrainer(problem, train)


class _ClaimsAGpu(NumpyTrainer):
    device: Literal["cpu", "gpu"] = "gpu"


def _chooses(problem: Problem, train: Split) -> NumpyTrainer:
    """Chooses by time, and so otherwise in each process."""
    trainer = NumpyTrainer(problem, train)
    trainer.detail = f"chose {shared_choice('a number', time.monotonic_ns)}"
    return trainer


LEAVES_A_PROCESS = _stage(_leaves_a_process)
LEAVES_AND_RAISES = _stage(_leaves_and_raises)
LEAVES_AND_HANGS = _stage(_leaves_and_hangs)
TIDY = _stage(_tidy)
OVERWRITES_THE_DATA = _stage(_overwrites_the_data)
PRINTS_MUCH = _stage(_prints_much)
CLOSE_RAISES = Stage("close-raises", "Close", "reference", "float32", (), _CloseRaises)
CLOSE_EXITS = Stage("close-exits", "Close", "reference", "float32", (), _CloseExits)
CLOSE_CRASHES = Stage("close-crashes", "Close", "reference", "float32", (), _CloseCrashes)
IS_STOPPED = _stage(_is_stopped)
FAILS_ONCE = _stage(_fails_once)
CLAIMS_A_GPU = Stage("claims-a-gpu", "Claim", "reference", "float32", (), _ClaimsAGpu)
CHOOSES = _stage(_chooses)
CHOOSES_TOO = Stage("chooses-too", "Choice", "reference", "float32", (), _chooses)
