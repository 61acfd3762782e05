"""In a step whose kernels start early, nothing touches what an earlier one is still using; and the rung on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from common.cuda.epilogue import Fusion
from common.problem import Problem
from stages.engine.step import RecipeTrainer, Step, set_up
from stages.engine.workspace import Array
from stages.fusion.fused_epilogue import FusedEpilogue
from stages.fusion.fused_head import FusedHead
from stages.tiles.dependent_launch import DependentEpoch
from stages.tiles.fused_bias import FusedBias
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.stages.engine.test_parts_on_cpu import AnyCut, ShimDevice
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.fusion.test_parallel_branches import RacingDevice, RecordedGemm, Work
from tests.stages.numpy_parts import RECIPE

Is = Callable[[int], bool]  # of the kernel of that number


@dataclass
class EarlyDevice(RacingDevice):
    """Writes down what is surely complete when a kernel of a chain touches memory, if each starts as soon as it may.

    One that waits comes after the one before it and whatever that came after; one that does not, after whatever was
    complete when it started, and it starts when the one before it does. Edges to and from a library's are ordinary.
    """

    waits: Is = lambda number: True
    is_library: Is = lambda number: False
    started: frozenset[int] = field(default_factory=frozenset)  # what was complete when the last one started
    ended: frozenset[int] = field(default_factory=frozenset)  # what is complete when the last one is

    def enqueue(self, name: str, reads: list[Array], writes: list[Array]) -> None:
        number = len(self.work)
        is_early = number > 0 and not self.is_library(number) and not self.is_library(number - 1)
        self.started = self.started if is_early else self.ended
        after = self.ended if self.waits(number) else self.started
        self.work.append(Work(name, reads, writes, after))
        self.ended = after | {number}


class RecordedTiles(RecordedGemm):
    def fused(self, a: Array, b: Array, out: Array, fusion: Fusion | None, **options: Any) -> None:
        assert fusion is not None
        besides = [array for array in (fusion.bias, fusion.mask) if array is not None]
        written = {"relu_bias": [fusion.mask], "bias_row": [fusion.bias]}.get(fusion.kind, [])
        self._device.enqueue(fusion.kind, [a, b, out, *besides], [out, *written])


def enqueued(device: EarlyDevice, hidden: tuple[int, ...], between: Callable[[], None] = lambda: None) -> EarlyDevice:
    """Two steps, one after the other, and something else between them."""
    problem = Problem(inputs=9, classes=3, hidden=hidden, batch_size=4)
    recipe = replace(RECIPE, gemm=RecordedTiles, epilogue=FusedEpilogue, head=FusedHead, update=FusedBias)
    setup = set_up(recipe, problem, random_split(8, 9, 3), device)
    step = Step(recipe, setup)
    for images, labels in setup.tensors.batches:
        step(images, labels, True)
        between()
    return device


SIZES = pytest.mark.parametrize("hidden", [(), (5,), (5, 6, 7)], ids=str)


@SIZES
@pytest.mark.parametrize("library", [(), (0,), (2, 4, 5), (1, 3)], ids=str)
def test_kernels_that_all_wait_touch_nothing_that_is_in_use(hidden: tuple[int, ...], library: tuple[int, ...]) -> None:
    assert enqueued(EarlyDevice(is_library=lambda number: number in library), hidden).races() == []


@SIZES
def test_they_start_early_and_any_one_that_did_not_wait_would_race(hidden: tuple[int, ...]) -> None:
    early = enqueued(EarlyDevice(), hidden)
    assert early.started == frozenset()
    kernels = len(early.work)
    for lazy in range(1, kernels):
        assert enqueued(EarlyDevice(waits=lambda number, lazy=lazy: number != lazy), hidden).races(), lazy  # type: ignore[misc]


@pytest.mark.parametrize("waits", [True, False])
def test_one_that_touches_nothing_has_to_wait_for_the_others_sake(waits: bool) -> None:
    kernels = len(enqueued(EarlyDevice(), (5,)).work)
    device = EarlyDevice(waits=lambda number: waits or number != kernels // 2)
    races = enqueued(device, (5,), between=lambda: device.enqueue("nothing", [], [])).races()
    assert ("bias_row", "relu_bias") in races or waits
    assert races == [] or not waits


class DependentShim(ShimDevice):
    """Replays what it captured; what was captured as dependents may touch no tensor before it has waited."""

    is_dependent = False
    launched: int = 0

    @contextmanager
    def dependent(self, to: bool = True) -> Iterator[None]:
        before, self.is_dependent = self.is_dependent, to
        yield
        self.is_dependent = before

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        captured = self.is_dependent

        def replay() -> None:
            with self.dependent(captured):
                enqueue()

        return replay

    def _launch(self, name: str, how: dict[str, Any], grid: Any, block: Any, *args: Any) -> None:
        self.launched += self.is_dependent
        super()._launch(name, {**how, "dependent": self.is_dependent}, grid, block, *args)


@pytest.fixture
def device(shim: Shim) -> DependentShim:
    return DependentShim(shim)


@requires_compiler
@pytest.mark.parametrize(("hidden", "kernels"), [((), 3), ((35,), 6), ((5, 3, 4), 12)], ids=str)
def test_the_rung_s_kernels_all_wait_and_train_as_the_oracle_does(
    hidden: tuple[int, ...], kernels: int, device: DependentShim
) -> None:
    recipe = replace(
        RECIPE, gemm=AnyCut, epilogue=FusedEpilogue, head=FusedHead, update=FusedBias, launch=DependentEpoch
    )
    problem = Problem(inputs=17, classes=10, hidden=hidden, batch_size=33, metrics_every=1)
    split = random_split(2 * 33, problem.inputs, problem.classes)
    trainer = RecipeTrainer(recipe, problem, split, device)
    device.launched = 0
    assert_first_updates(trainer, problem, split)
    assert device.launched == 2 * kernels
