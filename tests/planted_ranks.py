"""Stages of several ranks on the CPU, of which one has a fault.

Why: a rank's failure must end all of them, and cost only the stage's row.

Change: each trains as `tests/stages/devices/rank_parts.py`, and rank 1 has one fault.

Expect: each is recorded with the reason that its test names, and the run continues.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from common.data.dataset import Split
from common.problem import Params, Problem
from common.ranks import Group
from common.trainer import Trainer
from stages.engine.ranks import RanksTrainer
from stages.engine.stage import Stage
from tests.stages.devices.rank_parts import build

LOADING_S = 0.25  # of rank 1


def _fail() -> None:
    raise ValueError("the kernel said no")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hang() -> None:
    time.sleep(1000)


def _load_long(group: Group, problem: Problem, train: Split) -> Trainer:
    trainer = build(group, problem, train)
    load = trainer.load_params

    def long(params: Params) -> None:
        time.sleep(LOADING_S * group.rank)
        load(params)

    trainer.load_params = long  # type: ignore[method-assign]
    return trainer


def _build(fault: Callable[[], None] | None, group: Group, problem: Problem, train: Split) -> Trainer:
    trainer = build(group, problem, train)
    if fault and group.rank == 1:
        trainer.run_epoch = lambda epoch: fault()  # type: ignore[method-assign]
    return trainer


def _stage(name: str, fault: Callable[[], None] | None = None) -> Stage:
    return Stage(name, name, "devices", "float32", (), partial(RanksTrainer, partial(_build, fault)))


RIGHT = _stage("ranks")
FAILS = _stage("rank-fails", _fail)
DIES = _stage("rank-dies", _die)
STOPS = _stage("rank-stops", _stop)
HANGS = _stage("rank-hangs", _hang)
LOADS_LONG = replace(_stage("rank-loads-long"), build=partial(RanksTrainer, _load_long), takes_gpus=True)
