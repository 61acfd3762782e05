"""Ranks as threads on the CPU, with a stand-in for what adds up their gradients: together they train as one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import numpy as np
import pytest

from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem, initial_params
from common.ranks import Build, Group, Others, RankError, serve
from common.trainer import Trainer
from stages.engine.ranks import RanksTrainer, share_of
from tests.in_time import assert_runs
from tests.stages.devices.rank_parts import build
from tests.stages.engine.test_step import assert_first_updates, assert_validates, random_split

RANKS_AND_BATCH = [(1, 6), (2, 7), (3, 9), (3, 3)]


def as_threads(ranks: int) -> Others:
    pipes, file = [Pipe() for _ in range(1, ranks)], os.memfd_create("ranks")
    for rank, (_, its) in enumerate(pipes, 1):
        Thread(target=serve, args=(its, file, rank, ranks), daemon=True).start()
    return Others([own for own, _ in pipes], file)


def as_ranks(build: Build) -> Callable[[Problem, Split], RanksTrainer]:
    return lambda problem, split: RanksTrainer(build, problem, split, as_threads)


def assert_train_as_one(
    build: Callable[[Problem, Split], Any],
    ranks: int,
    batch: int,
    hidden: tuple[int, ...],
    inputs: int = 13,
    classes: int = 3,
) -> None:
    """First updates are those of one GPU, replicas are equal, and metrics are of all images."""
    problem = Problem(inputs, classes, hidden, batch_size=batch, metrics_every=2, gpus=ranks)
    split = random_split(3 * batch + 1, inputs, classes)
    trainer = build(problem, split)
    for run, epoch in enumerate((1, 0, 1)):
        assert_first_updates(trainer, problem, split, run=run, epoch=epoch)
        trainer.wait()
        first, *others = trainer.replicas()
        assert len(others) == ranks - 1
        for other in others:
            pairs = zip(first.tensors().values(), other.tensors().values(), strict=True)
            assert all((one == two).all() for one, two in pairs)
    assert_validates(trainer, problem, random_split(2 * batch + 1, inputs, classes, seed=1))


@pytest.mark.parametrize(("ranks", "batch"), RANKS_AND_BATCH)
@pytest.mark.parametrize("hidden", [(), (6, 4)], ids=str)
def test_first_updates_are_those_of_one_gpu(ranks: int, batch: int, hidden: tuple[int, ...]) -> None:
    assert_train_as_one(as_ranks(build), ranks, batch, hidden)


loaded: list[int] = []


def loading_late(group: Group, problem: Problem, train: Split) -> Trainer:
    trainer = build(group, problem, train)
    load = trainer.load_params

    def late(params: Params) -> None:
        time.sleep(0.05 * group.rank)
        load(params)
        loaded.append(group.rank)

    trainer.load_params = late  # type: ignore[method-assign]
    return trainer


def test_no_rank_loads_parameters_while_a_run_is_timed() -> None:
    problem = Problem(5, 3, batch_size=4, gpus=3)
    trainer = RanksTrainer(loading_late, problem, random_split(8, 5, 3), as_threads)
    loaded.clear()
    trainer.load_params(initial_params(problem, 0))
    assert loaded == [0, 1, 2]
    trainer.close()


def test_ranks_read_parameters_from_one_block_and_not_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    others, sent, send = as_threads(3), list[int](), Connection.send_bytes

    def counted(link: Connection, data: bytes) -> None:
        sent.append(len(data))
        send(link, data)

    for hidden in ((), (200,)):
        problem = Problem(100, 3, hidden, batch_size=4, gpus=3)
        trainer = RanksTrainer(build, problem, random_split(8, 100, 3), lambda _: others)
        loaded = initial_params(problem, 0)
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "send_bytes", counted)
            trainer.load_params(loaded)
        for own in trainer.replicas():
            assert all(map(np.array_equal, own.tensors().values(), loaded.tensors().values()))
    assert len(sent) >= 4
    assert max(sent) < 200


@pytest.mark.parametrize(("batch", "ranks", "sizes"), [(8, 2, [4, 4]), (7, 3, [2, 2, 3]), (3, 3, [1, 1, 1])])
def test_every_image_of_a_batch_has_one_rank(batch: int, ranks: int, sizes: list[int]) -> None:
    problem, split = Problem(5, 3, batch_size=batch, gpus=ranks), random_split(4 * batch + 2, 5, 3)
    shares = [share_of(problem, split, rank) for rank in range(ranks)]
    assert [own.batch_size for own, _ in shares] == sizes
    for step in range(4):
        parts = [own.images[step * size : (step + 1) * size] for (_, own), size in zip(shares, sizes, strict=True)]
        assert (np.concatenate(parts) == split.images[step * batch : (step + 1) * batch]).all()
    assert {own.gpus for own, _ in shares} == {1}
    assert all(own.steps(len(part.images)) == 4 for own, part in shares)


def failing(error: Exception, at_rank: int, group: Group, problem: Problem, train: Split) -> Trainer:
    if group.rank == at_rank:
        raise error
    return build(group, problem, train)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ValueError("no memory"), RankError, "rank 1: ValueError: no memory"),
        (MisfitError("Too large."), MisfitError, "Too large."),
    ],
)
def test_a_rank_that_fails_says_why(error: Exception, kind: type[Exception], said: str) -> None:
    problem = Problem(5, 3, batch_size=4, gpus=2)
    with pytest.raises(kind, match=f"^{said}$"):
        RanksTrainer(partial(failing, error, 1), problem, random_split(8, 5, 3), as_threads)


def test_ranks_that_are_late_say_where_they_wait() -> None:
    code = """
from common.problem import Problem
from tests.planted_ranks import HANGS
from tests.stages.engine.test_step import random_split
trainer = HANGS.trainer(Problem(5, 3, batch_size=4, gpus=2), random_split(8, 5, 3))
trainer.run_epoch(0)
"""
    with pytest.raises(AssertionError) as late:
        assert_runs(code, 20.0)
    assert str(late.value).startswith("not done after 20 s; ")
    for place in (" in _hang", " in serve", " in _gather", " in run_epoch"):
        assert place in str(late.value)


def test_a_rank_that_has_ended_or_is_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own, its = Pipe()
    others = Others([own], os.memfd_create("ranks"))
    monkeypatch.setattr("common.ranks.ANSWER_LIMIT_S", 0.01)
    with pytest.raises(RankError, match=r"^rank 1 gave no answer within 0.01 s$"):
        others.answers()
    its.close()
    with pytest.raises(RankError, match=r"^rank 1 has ended$"):
        others.answers()
