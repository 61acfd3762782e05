"""The parts of the rungs that launch kernels of our own, run on the CPU as they stand: grids, arguments, kernels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from common.cuda.epilogue import Fusion
from common.problem import Problem
from stages.classic.naive import STAGE as NAIVE
from stages.engine.recipe import FusingGemm, Precision, Recipe
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Array, Setup
from stages.fusion.fused_epilogue import FusedEpilogue
from stages.fusion.fused_head import FusedHead
from stages.fusion.fused_update import FusedUpdate
from stages.persistent.persistent_grid import GridEpoch
from stages.registry import load_all
from stages.streamed.last_layer_head import LastLayerHead
from stages.tiles.exact_u8 import ExactGemm
from stages.tiles.fused_bias import FusedBias
from stages.tiles.skinny_gemm import SkinnyGemm
from stages.tiles.tile_kernels import TileProducts
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.stages.engine.test_step import assert_first_updates, assert_validates, random_split
from tests.stages.numpy_parts import RECIPE, HostDevice

pytestmark = [requires_compiler, pytest.mark.slow]

NAIVE_RECIPE: Any = NAIVE.recipe
STEPS = 2


class AnyCut(FusingGemm):
    """Our tile kernel by itself, each product cut in another of the ways that are tried on a GPU."""

    precision: ClassVar[Precision] = "float32"
    needs: ClassVar[tuple[str, ...]] = ()
    kernel: ClassVar[tuple[str, str]] = SkinnyGemm.kernel

    def __init__(self, setup: Setup) -> None:
        self._tiles = TileProducts(setup, *self.kernel)
        self._random = random.Random(setup.problem.batch_size)

    def fused(self, a: Array, b: Array, out: Array, fusion: Fusion | None, **options: Any) -> None:
        spec = {"trans_a": False, "trans_b": False, "alpha": 1.0, "beta": 0.0, "fusion": fusion} | options
        cut = self._random.choice(self._tiles.cuts(out, a.shape[0 if spec["trans_a"] else 1]))
        self._tiles(cut, a, b, out, **spec)


class AnyCutOfHalves(AnyCut):
    """The same on tensor cores, in two halves."""

    kernel: ClassVar[tuple[str, str]] = ExactGemm.kernel


def alone() -> Iterator[tuple[str, Recipe]]:
    """The part that each rung for one GPU brings, among plain ones; products, launches and libraries are left out."""
    for name, entry in load_all().items():
        recipe, (part, _, own) = entry.stage.recipe, (entry.stage.changed or "").partition(": ")
        if recipe is None or entry.stage.group == "cpu" or part in ("", "gemm", "launch", "metrics"):
            continue
        chosen, plain = recipe.parts()[part], NAIVE_RECIPE if part in ("memory", "data") else RECIPE
        if own and chosen.needs == ("cuda",) and not chosen.takes_gpus:
            yield name, replace(plain, **{part: chosen})


RECIPES = {
    "naive": NAIVE_RECIPE,
    **dict(alone()),
    "fused-epilogue": replace(RECIPE, epilogue=FusedEpilogue),
    "tiles": replace(RECIPE, gemm=AnyCut, epilogue=FusedEpilogue, update=FusedUpdate),
    "tiles-and-bias": replace(RECIPE, gemm=AnyCut, epilogue=FusedEpilogue, update=FusedBias),
    "tiles-in-halves": replace(RECIPE, gemm=AnyCutOfHalves, epilogue=FusedEpilogue, update=FusedBias),
    "all-fused": replace(RECIPE, epilogue=FusedEpilogue, head=FusedHead, update=FusedUpdate),
    "persistent-grid": replace(RECIPE, launch=GridEpoch),
}


class ShimDevice(HostDevice):
    """NumPy's memory, and kernels that are executed by the shim."""

    def __init__(self, shim: Shim) -> None:
        super().__init__()
        self._shim = shim
        self.multiprocessors, self.block_shared_bytes, self.l2_bytes = 1, 64 << 10, 1 << 20

    def kernel(
        self, source: Path, name: str, cluster: int | None = None, shared_bytes: int = 0, **how: Any
    ) -> Callable[..., None]:
        kernel = partial(self._launch, name, {**how, "cluster": cluster, "shared_bytes": shared_bytes})
        kernel.clusters_at_once = lambda threads: 1  # type: ignore[attr-defined]
        return kernel

    def _launch(self, name: str, how: dict[str, Any], grid: Any, block: Any, *args: Any) -> None:
        self._shim.launch(name, grid, block, *args, **how)


@pytest.fixture
def device(shim: Shim) -> ShimDevice:
    return ShimDevice(shim)


@pytest.mark.parametrize(("hidden", "batch"), [((), 1), ((35,), 37), ((4, 1, 3), 33)], ids=str)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_first_updates_are_the_oracle_s(
    recipe: Recipe, hidden: tuple[int, ...], batch: int, device: ShimDevice
) -> None:
    problem = Problem(inputs=17, classes=10, hidden=hidden, batch_size=batch, metrics_every=2)
    split = random_split(STEPS * batch + batch // 2, problem.inputs, problem.classes)
    trainer = RecipeTrainer(recipe, problem, split, device)
    for run, epoch in enumerate((1, 0, 1)):  # with totals, without, and with them again
        assert_first_updates(trainer, problem, split, run=run, epoch=epoch)


@pytest.mark.parametrize(("hidden", "batch"), [((8,), 5), ((3, 68), 33)], ids=str)
def test_the_last_layer_in_one_kernel(hidden: tuple[int, ...], batch: int, device: ShimDevice) -> None:
    recipe = replace(RECIPE, head=LastLayerHead)
    test_first_updates_are_the_oracle_s(recipe, hidden, batch, device)
    test_validation_is_by_the_parts_that_train(recipe, hidden, batch, device)


@pytest.mark.parametrize(("hidden", "batch"), [((), 37), ((5, 3, 4), 8)], ids=str)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_validation_is_by_the_parts_that_train(
    recipe: Recipe, hidden: tuple[int, ...], batch: int, device: ShimDevice
) -> None:
    problem = Problem(inputs=17, classes=10, hidden=hidden, batch_size=batch)
    trainer = RecipeTrainer(recipe, problem, random_split(STEPS * batch, 17, 10), device)
    assert_validates(trainer, problem, random_split(2 * batch + 3, 17, 10, seed=1))
