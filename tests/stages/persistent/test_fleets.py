"""Which networks share a cluster of fleet-columns, or the chip by fleet-grid; neighbours change no bit of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cost import Exchanges
from common.errors import MisfitError
from common.problem import Problem
from stages.engine.fleet import FleetTrainer
from stages.engine.step import set_up
from stages.persistent import fleet_columns, fleet_columns_fp16
from stages.persistent.fleet_columns import BLOCKS, THREADS, ColumnsOfOneProduct, macros, shared_bytes
from stages.persistent.fleet_grid import STAGE, turns
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.kernels.cases import Case, all_cases
from tests.seeds import SEED
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import assert_each_network_follows_its_oracle, random_split
from tests.stages.numpy_parts import RECIPE, HostDevice


@dataclass
class Room(HostDevice):
    """Writes down launches as clusters and macros, on a GPU with room for so many clusters."""

    clusters: int = 30
    block_shared_bytes: int = 227 << 10
    launches: list[tuple[int, str]] = field(default_factory=list)

    def kernel(self, source: Path, name: str, **shape: Any) -> Callable[..., None]:
        def launch(clusters: int, threads: int, *arguments: Any) -> None:
            assert (threads, shape["cluster"]) == (THREADS, BLOCKS)
            self.launches.append((clusters, shape["macros"][0][1]))

        launch.clusters_at_once = lambda block: self.clusters  # type: ignore[attr-defined]
        return launch


@pytest.mark.parametrize(
    ("networks", "clusters", "of_each"),
    [(2, 2, 1), (30, 30, 1), (31, 16, 2), (60, 30, 2), (64, 22, 3), (90, 30, 3), (91, 46, 2), (300, 100, 3)],
)
def test_a_cluster_takes_as_few_networks_as_let_all_run_in_as_few_turns(
    networks: int, clusters: int, of_each: int
) -> None:
    device, problem = Room(), Problem(inputs=784, classes=10, batch_size=128)
    train = ColumnsOfOneProduct(set_up(RECIPE, problem, random_split(128, 784, 10), device), [0.1] * networks)
    train(with_metrics=False)
    assert device.launches == [(clusters, dict(macros(problem, of_each))["SIZES"])]


def test_a_gpu_without_enough_shared_memory_is_told() -> None:
    device, problem = Room(block_shared_bytes=99 << 10), Problem(inputs=784, classes=10, batch_size=128)
    with pytest.raises(MisfitError, match=f"Needs {shared_bytes(problem, 3):,} bytes of shared memory a block"):
        ColumnsOfOneProduct(set_up(RECIPE, problem, random_split(128, 784, 10), device), [0.1])


@pytest.mark.parametrize(
    ("hidden", "batch", "blocks"),
    [((128, 128, 128), 32, 4), ((128, 128, 128, 128), 32, 8), ((256,), 32, 8), ((64,), 64, 4)],
    ids=str,
)
def test_in_float16_a_network_has_as_few_blocks_as_hold_it(hidden: tuple[int, ...], batch: int, blocks: int) -> None:
    problem = Problem(784, 10, hidden, batch_size=batch, networks=2)
    assert fleet_columns_fp16.blocks_for(problem, 10) == blocks


@requires_compiler
def test_a_network_s_neighbours_do_not_change_a_bit_of_it(shim: Shim) -> None:
    case = next(one for one in all_cases("fleet_columns", np.random.default_rng(SEED)) if one.args["count"] == 7)
    together = launched(shim, case)
    for network in (0, 3, 6):
        args: dict[str, Any] = dict(case.args)
        for name in ("weight", "bias", "totals", "learning_rates"):
            args[name] = args[name][network : network + 1]
        problem = Problem(args["inputs"], case.besides["classes"], batch_size=case.args["labels"].shape[1])  # type: ignore[union-attr]
        sizes = {"macros": macros(problem, 1), "shared_bytes": shared_bytes(problem, 1), "grid": (1,)}
        alone = launched(shim, Case(**{**vars(case), "args": args | {"count": 1}, **sizes}))
        for name in ("weight", "bias", "totals"):
            np.testing.assert_array_equal(alone[name][0], together[name][network])


def launched(shim: Shim, case: Case) -> dict[str, Any]:
    """The arguments as a launch leaves them."""
    args = case.copy_args()
    shim.launch(case.kernel, case.grid, case.block, *args.values(), macros=case.macros, limit_s=60, **case.how)
    return args


def test_the_kernel_s_own_sizes_are_the_ones_that_the_host_counts() -> None:
    source = (Path(fleet_columns.__file__).parents[1] / "kernels/cluster/fleet_columns.cu").read_text()
    (sizes,) = (line for line in source.splitlines() if line.startswith("#define SIZES"))
    assert (
        sizes.removeprefix("#define SIZES ").replace(" ", "")
        == dict(macros(Problem(784, 10, batch_size=128), 3))["SIZES"]
    )


# Which networks share the chip by fleet-grid, and that each trains as it does alone.


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
