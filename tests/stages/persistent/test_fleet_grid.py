"""Which networks share the chip by fleet-grid, and that each trains as it does alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.cost import Exchanges
from common.problem import Problem
from stages.engine.fleet import FleetTrainer
from stages.persistent.fleet_grid import STAGE, turns
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.kernels.cases import all_cases
from tests.seeds import SEED
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import assert_each_network_follows_its_oracle, random_split
from tests.stages.persistent.test_fleet_columns import launched

H100 = (132, 227 << 10)  # multiprocessors, bytes of shared memory of each


@pytest.mark.parametrize(
    ("hidden", "batch", "networks", "expected", "barriers"),
    [
        ((784,) * 4, 64, 3, [1, 1, 1], 42),
        ((1024,), 128, 7, [2, 2, 2, 1], 8),
        ((1024,), 32, 7, [3, 2, 2], 6),
        ((512, 512), 32, 7, [4, 3], 12),
        ((), 128, 2, [2], 2),
        ((4096,) * 3, 32, 2, [1, 1], 20),  # no weights in shared memory
    ],
    ids=str,
)
def test_as_many_networks_are_at_once_as_keep_their_weights_on_the_chip(
    hidden: tuple[int, ...], batch: int, networks: int, expected: list[int], barriers: int
) -> None:
    problem = Problem(784, 10, hidden, batch_size=batch, networks=networks)
    assert turns(problem, 468, networks, *H100) == expected
    assert STAGE.exchanges(problem, 468, *H100) == Exchanges(grid_barriers=barriers)


@requires_compiler
@pytest.mark.parametrize(("hidden", "multiprocessors"), [((), 7), ((20,), 4), ((4, 1, 3), 2)], ids=str)
def test_each_network_follows_its_oracle(hidden: tuple[int, ...], multiprocessors: int, shim: Shim) -> None:
    rates = (0.02, 0.5, 0.1)
    problem = Problem(17, 10, hidden, batch_size=16, networks=3, learning_rates=rates, metrics_every=2)
    split, device = random_split(40, 17, 10), ShimDevice(shim)
    device.multiprocessors = multiprocessors
    assert STAGE.recipe is not None
    trainer = FleetTrainer(STAGE.recipe, problem, split, device)
    for run, epoch in enumerate((1, 0, 1)):  # with totals, without, and with them again
        assert_each_network_follows_its_oracle(trainer, problem, split, run=run, epoch=epoch)


@requires_compiler
def test_each_network_has_the_bits_of_persistent_grid_by_the_same_plan(shim: Shim) -> None:
    case = [*all_cases("fleet_grid", np.random.default_rng(SEED))][2]
    together = launched(shim, case)
    for network, rate in enumerate(np.asarray(case.args["learning_rates"])):
        args = {name: value for name, value in case.args.items() if name not in ("stride", "room", "with_totals")}
        for name in ("parameters", "workspace", "block_totals", "totals", "arrived"):
            args[name] = np.asarray(args[name])[network]
        del args["learning_rates"]
        args |= {"learning_rate": float(rate), "with_totals": case.args["with_totals"]}
        alone = launched(shim, replace(case, kernel="persistent_grid", grid=case.grid[:1], args=args))
        for name in ("parameters", "totals", "arrived"):
            np.testing.assert_array_equal(alone[name], together[name][network])
