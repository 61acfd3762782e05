"""References of several GPUs on the CPU: JAX on devices of its own making, PyTorch with a stand-in for its kernels."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from common.data.dataset import Split
from common.problem import Problem
from common.ranks import Group
from common.trainer import Trainer
from stages.devices import jax_shard
from stages.devices.torch_symmetric import epoch_of, rank_gradients
from stages.references.torch_common import RunEpoch, Tensor, TorchSetup, TorchTrainer
from stages.references.torch_step import compile_steps
from tests.stages.devices.test_ranks import RANKS_AND_BATCH, as_ranks, assert_train_as_one
from tests.stages.engine.test_step import random_split

ON_CPU_DEVICES = """
import jax
jax.config.update("jax_num_cpu_devices", 3)
from common.problem import Problem
from stages.devices.jax_shard import JaxShardTrainer
from tests.stages.devices.test_ranks import assert_train_as_one
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


def build(group: Group, problem: Problem, train: Split) -> Trainer:
    return TorchTrainer(problem, train, partial(prepare, group=group))


@pytest.mark.torch
@pytest.mark.parametrize(("ranks", "batch"), RANKS_AND_BATCH)
@pytest.mark.parametrize("hidden", [(), (6, 4)], ids=str)
def test_ranks_of_pytorch_train_as_one(ranks: int, batch: int, hidden: tuple[int, ...]) -> None:
    assert_train_as_one(as_ranks(build), ranks, batch, hidden)


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
