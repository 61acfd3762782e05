"""Epochs of large batches on the CPU: the kernels by the shim, the library's products by NumPy, against float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cuda.epilogue import Fusion
from common.errors import MisfitError
from common.problem import Problem
from stages.engine.step import RecipeTrainer
from stages.large_batch.large_batch import HalvesEpoch, Product
from stages.large_batch.large_batch_dependent import DependentFloat16Epoch
from stages.large_batch.large_batch_early import EarlyEpoch
from stages.large_batch.large_batch_early_fp16 import EarlyFloat16Epoch
from stages.large_batch.large_batch_fp16 import Float16Epoch
from stages.large_batch.large_batch_plain import PlainEpoch
from stages.large_batch.large_batch_wide import WideEpoch, shapes
from stages.large_batch.layout import EXACT, ROUNDED, Layout
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.numpy_parts import RECIPE


def multiply(a: Any, b: Any, out: Any, trans_a: bool, alpha: float) -> None:
    """The library's product: sums in float32."""
    left = a.swapaxes(-1, -2) if trans_a else a
    out[...] = np.float32(alpha) * (left.astype(np.float32) @ b.astype(np.float32))


class LastWay(HalvesEpoch):
    """Chooses the most parts of a batch."""

    def product(self, setup: Any) -> Product:
        return multiply

    def fastest(self, setup: Any, ways: list[Callable[[], None]]) -> int:
        for way in ways:
            way()
        return len(ways) - 1


class ByNumpy(LastWay):
    pass


class ByNumpyInFloat16(LastWay, Float16Epoch):
    pass


class ByNumpyDependent(LastWay, DependentFloat16Epoch):
    pass


EPOCHS = [ByNumpy, ByNumpyInFloat16, ByNumpyDependent, EarlyEpoch, EarlyFloat16Epoch]


class BitsDevice(ShimDevice):
    """float16 tensors are bits to the shim. A dependent launch may touch no tensor before it has waited."""

    dependents: int = 0

    def kernel(self, source: Path, name: str, *args: Any, **how: Any) -> Callable[..., None]:
        kernel = super().kernel(source, name, *args, **how)
        kernel.dependent = lambda: partial(kernel.func, name, {**kernel.args[1], "dependent": True})  # type: ignore[attr-defined]
        return kernel

    def _launch(self, name: str, how: dict[str, Any], grid: Any, block: Any, *args: Any) -> None:
        seen = [arg.view(np.uint16) if isinstance(arg, np.ndarray) and arg.dtype == np.float16 else arg for arg in args]
        if (sums := {"hidden_head": 0, "hidden_layers": 0, "images_product": 2}.get(name)) is not None:
            seen[sums] = seen[sums].view(np.uint16)
        self.dependents += how.get("dependent", False)
        super()._launch(name, how, grid, block, *seen)


@requires_compiler
@pytest.mark.parametrize(
    ("epoch", "hidden", "batch"),
    [
        *itertools.product([ByNumpy, EarlyEpoch], [(16,), (20,) * 5], [40]),
        *itertools.product(EPOCHS, [(300,), (35, 20)], [33]),
        *itertools.product(EPOCHS, [(1,), (1, 1)], [1]),
        *((epoch, (8, 40, 8), 80) for epoch in EPOCHS),
    ],
    ids=str,
)
def test_first_updates_are_the_oracle_s(
    epoch: type[HalvesEpoch], hidden: tuple[int, ...], batch: int, shim: Shim
) -> None:
    problem = Problem(inputs=17, classes=10, hidden=hidden, batch_size=batch, metrics_every=2)
    split = random_split(3 * batch + batch // 2, problem.inputs, problem.classes)
    device = BitsDevice(shim)
    device.multiprocessors, device.block_shared_bytes = 1, 99 << 10
    recipe = replace(RECIPE, launch=epoch)
    trainer = RecipeTrainer(recipe, problem, split, device)
    device.dependents = 0
    for run, number in ((0, 1), (1, 0)):  # with totals and without, the second from other parameters
        assert_first_updates(trainer, problem, split, recipe.precision, run, number)
    kernels = 2 if epoch is ByNumpyDependent else 3 if issubclass(epoch, EarlyEpoch) else None
    assert device.dependents == (2 * (1 + 3 * kernels) if kernels else 0)


@requires_compiler
def test_the_update_waits_for_the_further_layers_branch(shim: Shim) -> None:
    events: list[str] = []

    class Logging(BitsDevice):
        def beside(self, branch: int, after: Any = None) -> Any:
            events.append("beside")
            return super().beside(branch, after)

        def join(self) -> None:
            events.append("join")

        def _launch(self, name: str, *args: Any, **how: Any) -> None:
            events.append(name)
            super()._launch(name, *args, **how)

    problem = Problem(inputs=5, classes=3, hidden=(4, 3), batch_size=8)
    trainer = RecipeTrainer(replace(RECIPE, launch=ByNumpy), problem, random_split(16, 5, 3), Logging(shim))
    events.clear()
    trainer.run_epoch(0)
    assert events == ["update_all"] + 2 * ["hidden_layers", "beside", "join", "update_all"]


@pytest.mark.parametrize(("batch", "blocks"), [(1, 1), (128, 8), (512, 32), (2048, 128), (8192, 128), (20_000, 125)])
def test_the_head_has_a_block_a_multiprocessor_and_few_tiles_a_block(batch: int, blocks: int) -> None:
    assert Layout(Problem(784, 10, (256,), batch), EXACT, 132).head_blocks == blocks


@pytest.mark.parametrize(("batch", "splits"), [(7, [1]), (16, [1]), (64, [1, 2, 4]), (96, [1, 2]), (8192, [1, 2, 4])])
def test_parts_of_a_batch_are_whole_tiles(batch: int, splits: list[int]) -> None:
    assert Layout(Problem(784, 10, (256,), batch)).splits(4) == splits


@pytest.mark.parametrize(
    ("hidden", "halves", "kib", "tiles"),
    [
        ((128,) * 3, EXACT, 227, 2),
        ((128,) * 3, EXACT, 190, 1),
        ((128,) * 3, ROUNDED, 99, 1),
        ((256,) * 2, ROUNDED, 227, 2),
    ],
)
def test_a_block_takes_tiles_that_it_has_room_for(hidden: tuple[int, ...], halves: int, kib: int, tiles: int) -> None:
    layout = Layout(Problem(784, 10, hidden, 8192), halves, 132, kib << 10)
    assert (layout.head_tiles, layout.head_bytes <= kib << 10) == (tiles, True)


@requires_compiler
def test_a_network_too_large_for_shared_memory_is_told_so(shim: Shim) -> None:
    problem = Problem(inputs=17, classes=10, hidden=(256, 256), batch_size=16)
    device = BitsDevice(shim)
    device.block_shared_bytes = 227 << 10
    with pytest.raises(MisfitError, match=r"Needs .* bytes of shared memory"):
        RecipeTrainer(replace(RECIPE, launch=ByNumpy), problem, random_split(16, 17, 10), device)


def test_the_largest_network_fits_the_smallest_gpu() -> None:
    assert Layout(Problem(784, 16, (512,), 20_000), EXACT, 132).head_bytes <= 99 << 10


# Wide layers on the CPU: the kernels by the shim, the library's products by NumPy, against the oracle.


class Library:
    """Products with sums in float32, and ReLU's masks."""

    def __init__(self) -> None:
        self._masks: dict[int, Any] = {}

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Any,
        trans_a: bool,
        trans_b: bool,
        alpha: float,
        beta: float,
        fusion: Fusion | None = None,
    ) -> None:
        left, right = a.T if trans_a else a, b.T if trans_b else b
        product = np.float32(alpha) * (left.astype(np.float32) @ right.astype(np.float32))
        if fusion is not None and fusion.kind == "relu":
            self._masks[id(fusion.mask)] = product > 0
        product = product if fusion is None else product * self._masks[id(fusion.mask)]
        out[...] = product + beta * out if beta else product


class WideByNumpy(WideEpoch):
    def product(self, setup: Any) -> Any:
        return Library()


class PlainByNumpy(PlainEpoch):
    def product(self, setup: Any) -> Any:
        return Library()


@requires_compiler
@pytest.mark.parametrize("epoch", [WideByNumpy, PlainByNumpy])
@pytest.mark.parametrize(
    ("hidden", "classes", "batch"),
    [((1,), 1, 1), ((300,), 10, 33), ((35, 20), 47, 40), ((8, 40, 7, 16), 3, 80)],
    ids=str,
)
def test_first_updates_of_wide_layers_are_the_oracle_s(
    hidden: tuple[int, ...], classes: int, batch: int, epoch: type[WideEpoch], shim: Shim
) -> None:
    problem = Problem(inputs=17, classes=classes, hidden=hidden, batch_size=batch, metrics_every=2)
    split = random_split(3 * batch + batch // 2, problem.inputs, classes)
    recipe = replace(RECIPE, launch=epoch)
    trainer = RecipeTrainer(recipe, problem, split, BitsDevice(shim))
    for run, number in ((0, 1), (1, 0)):  # with totals and without, the second from other parameters
        assert_first_updates(trainer, problem, split, recipe.precision, run, number)


def test_matrices_have_room_for_biases_and_ones() -> None:
    assert shapes(Problem(16, 8, (7, 8))) == [(24, 8), (8, 16), (16, 8)]
