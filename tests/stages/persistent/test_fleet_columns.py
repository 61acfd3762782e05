"""Which networks share a cluster of fleet-columns, and that their neighbours do not change a bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import MisfitError
from common.problem import Problem
from stages.engine.step import set_up
from stages.persistent import fleet_columns, fleet_columns_fp16
from stages.persistent.fleet_columns import BLOCKS, THREADS, ColumnsOfOneProduct, macros, shared_bytes
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.kernels.cases import Case, all_cases
from tests.seeds import SEED
from tests.stages.engine.test_step import random_split
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
