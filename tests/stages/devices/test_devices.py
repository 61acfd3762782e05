"""Stages of several devices on the CPU: where they fit, the halves of a batch, ranks as threads, and references."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from common.cost import Exchanges
from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem, initial_params
from common.ranks import Build, Group, Others, RankError, serve
from common.trainer import Trainer
from stages.devices import ddp_halves, ddp_overlap, ddp_step, jax_shard
from stages.devices.ddp_halves import PeerHalvesEpoch
from stages.devices.ddp_peer import STAGE
from stages.devices.torch_symmetric import epoch_of, rank_gradients
from stages.engine.ranks import RanksTrainer, share_of
from stages.engine.stage import Stage
from stages.engine.step import RecipeTrainer
from stages.references.torch_common import RunEpoch, Tensor, TorchSetup, TorchTrainer
from stages.references.torch_step import compile_steps
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.in_time import assert_runs
from tests.stages.devices.rank_parts import build
from tests.stages.engine.test_step import assert_first_updates, assert_validates, random_split
from tests.stages.large_batch.test_large_batch import BitsDevice, LastWay
from tests.stages.numpy_parts import RECIPE

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


# On how many GPUs a stage of several trains, and why not on others.


@pytest.mark.parametrize(
    ("found", "gpus", "batch", "reason"),
    [
        (["H100"] * 2, 1, 8, "divides each batch among several GPUs; add --gpus 2"),
        (["H100"], 2, 8, "needs 2 GPUs (--gpus); this machine shows 1"),
        ([], 2, 8, "needs 2 GPUs (--gpus); this machine shows none"),
        (["L4", "A10", "A10"], 2, 8, "needs GPUs of one kind; $CUDA_VISIBLE_DEVICES can choose among A10 and L4"),
        (["H100"] * 2, 2, 1, "a batch of 1 is fewer images than GPUs"),
        (["H100"] * 4, 3, 8, "Needs two GPUs. Closest rung here: `ddp-step`."),
        (["A10", "A10", "L4"], 2, 2, None),
    ],
    ids=str,
)
def test_what_fits(
    found: list[str], gpus: int, batch: int, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.engine.stage.devices", lambda: [SimpleNamespace(name=name) for name in found])
    assert STAGE.misfit(Problem(5, 3, batch_size=batch, gpus=gpus), 7) == reason


@pytest.mark.parametrize(
    ("stage", "gpus", "sent"),
    [
        (ddp_step.STAGE, 2, 203_530 * 4),
        (ddp_step.STAGE, 3, 203_530 * 16 // 3),
        (STAGE, 2, 203_530 * 4),
        (ddp_overlap.STAGE, 2, 784 * 256 * 4),
        (ddp_halves.STAGE, 2, 203_530 * 4),
    ],
)
def test_what_is_sent_after_the_last_product(stage: Stage, gpus: int, sent: int) -> None:
    problem = Problem(784, 10, (256,), batch_size=8192, gpus=gpus)
    assert stage.exchanges(problem, 7, 132, 200_000) == Exchanges(peer_bytes=sent)


# Large batches on two ranks: the kernels of one GPU by the shim, the exchange by a stand-in, against the oracle.


ONE_AT_A_TIME = Lock()


class RankBits(BitsDevice):
    """One of two ranks' devices; the shim executes one kernel at a time."""

    def __init__(self, shim: Shim, group: Group) -> None:
        super().__init__(shim)
        self.captures = False
        self.group, self.block_shared_bytes = group, 99 << 10

    def kernel(self, source: Path, name: str, *args: Any, **how: Any) -> Callable[..., None]:
        if name == "peer_sums":
            return self._peer_sums
        return super().kernel(source, name, *args, **how)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        self.captures = True
        return super().capture(enqueue)

    def _launch(self, *args: Any, **how: Any) -> None:
        with ONE_AT_A_TIME:
            super()._launch(*args, **how)

    def _peer_sums(self, grid: int, block: int, first: Any, partials: Any, totals: Any, *rest: Any) -> None:
        part, splits, features, width, shares, share, units, rank, with_totals = rest[3:]
        assert (splits, shares, share, rank) == (len(first), *partials.shape, self.group.rank)
        assert 4 * units == features * width + 4 * -(-share // 4)
        halves = first.reshape(splits, features, -1, width)
        own = part * halves.sum(axis=(0, 2)), part * partials.sum(axis=0)
        weights, of_shares = (sum(both) for both in zip(*self.group.gather(own), strict=True))
        halves[0], halves[0, :, 0], partials[0] = 0, weights, of_shares
        if with_totals:
            totals[0] = totals.sum(axis=0)


class Exact(PeerHalvesEpoch, LastWay):
    pass


def stand_in(self: Any, messages: int) -> Any:
    def rounds_of(*of: Any) -> None:
        assert not self._device.captures  # a graph would make them anew in every epoch

    return SimpleNamespace(own=None, others={1 - self._group.rank: None}, rounds_of=rounds_of)


def built_halves(group: Group, problem: Problem, train: Split) -> Trainer:
    return RecipeTrainer(replace(RECIPE, launch=Exact), problem, train, RankBits(SHIMS[0], group))


SHIMS: list[Shim] = []  # of this process: what builds a rank is pickled


@requires_compiler
@pytest.mark.parametrize("batch", [64, 33])
def test_first_updates_in_halves_are_those_of_one_gpu(batch: int, shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeerHalvesEpoch, "mailbox", stand_in)
    SHIMS[:] = [shim]
    assert_train_as_one(as_ranks(built_halves), 2, batch, (35,), inputs=17, classes=10)


# References of several GPUs on the CPU: JAX on devices of its own making, PyTorch with a stand-in for its kernels.


ON_CPU_DEVICES = """
import jax
jax.config.update("jax_num_cpu_devices", 3)
from common.problem import Problem
from stages.devices.jax_shard import JaxShardTrainer
from tests.stages.devices.test_devices import assert_train_as_one
from tests.stages.engine.test_step import random_split
for ranks, batch, hidden in [(1, 6, ()), (2, 8, (6, 4)), (3, 9, (5,)), (3, 3, ())]:
    assert_train_as_one(JaxShardTrainer, ranks, batch, hidden)
    print(ranks)
JaxShardTrainer(Problem(5, 3, batch_size=4, gpus=4), random_split(8, 5, 3))
"""


@pytest.mark.jax
def test_devices_of_jax_train_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_NPROC", "2")  # it is not tried
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", ON_CPU_DEVICES], cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["1", "2", "3", "3"], done.stderr
    assert done.stderr.splitlines()[-1].endswith("MisfitError: JAX sees 3 of 4 GPUs")


def test_jax_divides_a_batch_evenly_or_not_at_all() -> None:
    misfits = [jax_shard.STAGE.build.misfit(Problem(5, 3, batch_size=size, gpus=2), 7) for size in (8, 7)]  # type: ignore[attr-defined]
    assert misfits == [None, "divides batches evenly; choose a multiple of 2 images"]


def prepare(setup: TorchSetup, group: Group) -> RunEpoch:
    import torch

    def sum_up(gradients: list[Tensor]) -> list[Tensor]:
        shares = group.gather([tensor.numpy().copy() for tensor in gradients])
        return [torch.from_numpy(sum(of_each[1:], start=of_each[0])) for of_each in zip(*shares, strict=True)]

    images = group.gather(setup.problem.batch_size)
    gradients = rank_gradients(setup, images[group.rank] / sum(images))
    return epoch_of(setup, gradients, sum_up, setup.resident_batches())


def built(group: Group, problem: Problem, train: Split) -> Trainer:
    return TorchTrainer(problem, train, partial(prepare, group=group))


@pytest.mark.torch
@pytest.mark.parametrize(("ranks", "batch"), RANKS_AND_BATCH)
@pytest.mark.parametrize("hidden", [(), (6, 4)], ids=str)
def test_ranks_of_pytorch_train_as_one(ranks: int, batch: int, hidden: tuple[int, ...]) -> None:
    assert_train_as_one(as_ranks(built), ranks, batch, hidden)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
def test_a_rank_s_gradients_are_the_same_when_compiled_and_lie_as_its_parameters_do() -> None:
    import torch

    setup = TorchSetup(Problem(49, 10, (33,), batch_size=16), random_split(16, 49, 10))
    written = rank_gradients(setup, 0.25)
    (batch,), compiled = setup.resident_batches(), compile_steps(written, {})
    for due in (False, True):
        for one, other in zip(compiled(*batch, due), written(*batch, due), strict=True):
            torch.testing.assert_close(one, other)
            assert one.is_contiguous()  # else PyTorch copies each by a kernel of its own
    assert setup.totals.correct.item() % 2 == 0
    assert setup.totals.loss_sum.item() > 2
