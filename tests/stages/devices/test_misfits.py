"""Stages on several devices: their misfits, and the halves of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from common.cost import Exchanges
from common.data.dataset import Split
from common.problem import Problem
from common.ranks import Group
from common.trainer import Trainer
from stages.devices import ddp_halves, ddp_overlap, ddp_step
from stages.devices.ddp_halves import PeerHalvesEpoch
from stages.devices.ddp_peer import STAGE
from stages.engine.stage import Stage
from stages.engine.step import RecipeTrainer
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.stages.devices.test_ranks import as_ranks, assert_train_as_one
from tests.stages.large_batch.test_halves_epoch import BitsDevice, LastWay
from tests.stages.numpy_parts import RECIPE

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


def build(group: Group, problem: Problem, train: Split) -> Trainer:
    return RecipeTrainer(replace(RECIPE, launch=Exact), problem, train, RankBits(SHIMS[0], group))


SHIMS: list[Shim] = []  # of this process: what builds a rank is pickled


@requires_compiler
@pytest.mark.parametrize("batch", [64, 33])
def test_first_updates_are_those_of_one_gpu(batch: int, shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeerHalvesEpoch, "mailbox", stand_in)
    SHIMS[:] = [shim]
    assert_train_as_one(as_ranks(build), 2, batch, (35,), inputs=17, classes=10)
