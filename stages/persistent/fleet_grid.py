"""Fleet grid: an equal share of all multiprocessors for each of several networks at once.

Why: `persistent-grid` trains several networks in a row. A step of 784-128x3-10 in batches of 32 takes 9.0 us, of which
products are little more than one. The rest is barriers, sums from L2 and rows, which take hardly less on more
multiprocessors.

Change: launch. Networks that train at once have as many multiprocessors each, and barriers of their own, so that none
waits for another. If phases looped over networks instead, each block would fetch the weights of all, and wait for the
slowest. As many are at once as keep their weights in shared memory, since without a step takes three times as long; the
others follow in further launches. A single wide layer's tiles then take the batch in chunks where that makes room. With
the same plan each network has, bit for bit, the parameters that it has alone.

Expect: by the model that is fitted to `persistent-grid` on an H200 (`ladder/run/expected.py`), a step of seven: the
chip holds one 784-784x4-10 in batches of 64, so 324 us, as in a row; two 784-1024-10 in batches of 128, 70 us and a few
for chunks, in a row 87; in batches of 32 three, 28 us, in a row 51. It gains most where four fit: 784-512x2-10 in
batches of 32 take 34 us, in a row 94, and 784-384x4-10 62, in a row 185 (docs/notebook/fleets.md).

Predict: on H100: 7 of 784-784x4-10, batch 64: 320 to 350 us; 7 of 784-1024-10, batch 128: 66 to 80 us; 7 of
784-1024-10, batch 32: 25 to 31 us; 7 of 784-512x2-10, batch 32: 30 to 38 us; 7 of 784-384x4-10, batch 32: 55 to 68 us.

Found: in trials it gains most where four networks fit at once, over twice the speed of training in a row; where one
fills the chip, as 784-784x4-10 does, it gains next to nothing. Three estimates are missed by a little; why was not
measured. Where `cluster-ahead` or `grid-messages` takes the network, training in a row by those is faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from common.cost import Arithmetic, Exchanges
from common.problem import Problem
from common.vocabulary import Regime
from stages.engine.fleet import FleetLaunch
from stages.engine.parts import int32
from stages.engine.recipe import Recipe
from stages.engine.workspace import Setup
from stages.persistent import persistent_grid
from stages.persistent.grid_plan import ALL_PARTS, THREADS, GridPlan, make_plan
from stages.persistent.persistent_grid import GridEpoch, GridMemory, grid_misfit

CHUNKS = (64, 32)  # rows


class SharesOfGrid(FleetLaunch):
    """An epoch of several networks in one or more cooperative launches; MisfitError for a GPU that does not fit."""

    regime: ClassVar[Regime] = GridEpoch.regime
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = GridEpoch.arithmetic

    def __init__(self, setups: Sequence[Setup], recipe: Recipe) -> None:  # noqa: ARG002
        first, device = setups[0], setups[0].device
        problem, steps, count = first.problem, len(first.tensors.batches), len(setups)
        sizes = turns(problem, steps, count, device.multiprocessors, device.block_shared_bytes)
        kernel = ("grid/fleet_grid.cu", "fleet_grid")
        grids = {size: GridMemory(first, kernel, ALL_PARTS, size, CHUNKS) for size in set(sizes)}
        rates = device.upload(np.array([setup.problem.learning_rate for setup in setups], np.float32))
        parameters, totals = first.tensors.parameters.flat.base, first.tensors.totals.base  # of all networks
        begins = itertools.accumulate(sizes, initial=0)
        self._turns = [
            (grids[size], *(of_all[begin : begin + size] for of_all in (parameters, totals, rates)))
            for size, begin in zip(sizes, begins, strict=False)
        ]
        self._zero = device.zero

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit every GPU; empty if it fits."""
        return grid_misfit(problem, steps, ALL_PARTS)

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:
        """Grid barriers of a step of all networks; two for each launch if no plan fits this GPU."""
        sizes = turns(problem, steps, problem.networks, multiprocessors, block_shared_bytes)
        plans = (_plan(problem, steps, size, multiprocessors, block_shared_bytes) for size in sizes)
        return Exchanges(grid_barriers=sum(plan.barriers if plan else 2 for plan in plans))

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of all networks' epochs."""
        for grid, parameters, totals, rates in self._turns:
            self._zero(grid.arrived)
            sizes = (int32(parameters.shape[1]), int32(grid.own[0].shape[1]), grid.steps, int32(with_metrics))
            args = (*grid.batches, parameters, *grid.own, totals, grid.arrived, rates, *sizes)
            grid.train((grid.blocks, len(rates)), THREADS, *args)


def turns(problem: Problem, steps: int, count: int, multiprocessors: int, shared_bytes: int) -> list[int]:
    """How many of `count` networks train at once, launch by launch: as few launches as keep the weights on the chip."""
    at_once = 1
    for networks in range(2, min(count, multiprocessors) + 1):
        plan = _plan(problem, steps, networks, multiprocessors, shared_bytes)
        if plan and plan.sizes.held:
            at_once = networks
    launches = -(-count // at_once)
    return [count // launches + (turn < count % launches) for turn in range(launches)]


def _plan(problem: Problem, steps: int, networks: int, multiprocessors: int, shared_bytes: int) -> GridPlan | None:
    """The plan of each of so many networks at once; None if none fits."""
    places = [0] * len(problem.layers)
    return make_plan(problem, steps, places, places, multiprocessors // networks, shared_bytes, chunks=CHUNKS)


STAGE = persistent_grid.STAGE.climb(
    "fleet-grid",
    "A share of the grid a network",
    words="a share of the chip for each network",
    closest="fleet-graph",
    launch=SharesOfGrid,
)
