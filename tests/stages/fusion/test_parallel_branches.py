"""What runs beside each other in a step of parallel-branches touches nothing that the other writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from common.problem import Problem
from stages.engine.parts import SeparateEpilogue
from stages.engine.step import Step, set_up
from stages.engine.workspace import Array, Setup
from stages.fusion.fused_head import FusedHead
from stages.fusion.fused_update import FusedUpdate
from stages.fusion.parallel_branches import ParallelUpdate
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import RECIPE, HostDevice, HostEvent, HostStream, NumpyGemm

WRITES = {"add_bias": [0], "relu": [0], "relu_backward": [0], "bias_update": [1], "softmax_xent": [2, 3]}
WRITES |= {"neighbour_grams": [1, 2], "persistent_cluster": [4, 5, 6]}


@dataclass
class Work:
    """Something enqueued: what it reads and writes, and which work it surely comes after."""

    name: str
    reads: list[Array]
    writes: list[Array]
    after: frozenset[int]


@dataclass
class RacingDevice(HostDevice):
    """Enqueues nothing, and writes down what may overlap with what."""

    work: list[Work] = field(default_factory=list)
    done: dict[int | None, frozenset[int]] = field(default_factory=lambda: {None: frozenset()})  # by branch
    branch: int | None = None

    def __post_init__(self) -> None:
        super().__init__()

    @contextmanager
    def beside(self, branch: int, after: HostEvent | None = None) -> Iterator[None]:
        before = after.before if isinstance(after, Mark) else self.done[None]
        self.done[branch] = self.done.get(branch, frozenset()) | before
        self.branch = branch
        yield
        self.branch = None

    def join(self) -> None:
        self.done[None] = frozenset().union(*self.done.values())

    def event(self) -> HostEvent:
        return Mark(self)

    def enqueue(self, name: str, reads: list[Array], writes: list[Array]) -> None:
        self.work.append(Work(name, reads, writes, self.done[self.branch]))
        self.done[self.branch] |= {len(self.work) - 1}

    def kernel(self, source: Path, name: str, **shape: Any) -> Callable[..., None]:
        def launch(grid: Any, block: Any, *arguments: Any) -> None:
            arrays = [argument for argument in arguments if hasattr(argument, "ctypes") and argument.ndim > 0]
            self.enqueue(name, arrays, [arrays[i] for i in WRITES[name]])

        return launch

    def races(self) -> list[tuple[str, str]]:
        """Pairs of work of which neither waits for the other, although one writes what the other touches."""
        conflicts = []
        for late, work in enumerate(self.work):
            for early, other in enumerate(self.work[:late]):
                if early in work.after:
                    continue
                touched = [(a, b) for a in work.writes for b in other.reads + other.writes]
                touched += [(a, b) for a in work.reads for b in other.writes]
                if any(a is b for a, b in touched):
                    conflicts.append((other.name, work.name))
        return conflicts


class Mark(HostEvent):
    """A mark on a stream of such a device, and what has surely been done when it is passed."""

    def __init__(self, device: RacingDevice) -> None:
        self._device = device
        self.before: frozenset[int] = frozenset()

    def record(self, stream: HostStream) -> None:
        self.before = self._device.done[self._device.branch]


class RecordedGemm(NumpyGemm):
    def __init__(self, setup: Setup) -> None:
        self._device = setup.device

    def __call__(self, a: Array, b: Array, out: Array, **options: Any) -> None:
        self._device.enqueue("gemm", [a, b, out], [out])


def enqueued(update: type[FusedUpdate], hidden: tuple[int, ...]) -> RacingDevice:
    """Two steps, one after the other."""
    problem = Problem(inputs=9, classes=3, hidden=hidden, batch_size=4)
    device = RacingDevice()
    recipe = replace(RECIPE, gemm=RecordedGemm, epilogue=SeparateEpilogue, head=FusedHead, update=update)
    setup = set_up(recipe, problem, random_split(8, 9, 3), device)
    step = Step(recipe, setup)
    for images, labels in setup.tensors.batches:
        step(images, labels, True)
    return device


@pytest.mark.parametrize("hidden", [(), (5,), (5, 6, 7)], ids=str)
def test_nothing_overlaps_with_what_touches_the_same(hidden: tuple[int, ...]) -> None:
    assert enqueued(ParallelUpdate, hidden).races() == []


def test_updates_do_overlap_with_the_backward_pass() -> None:
    def chained(update: type[FusedUpdate]) -> bool:
        work = enqueued(update, (5,)).work
        return all(early in work[late].after for late in range(len(work)) for early in range(late))

    assert chained(FusedUpdate)
    assert not chained(ParallelUpdate)


def test_without_a_join_the_next_step_would_race() -> None:
    class Unjoined(ParallelUpdate):
        def finish(self) -> None:
            pass

    assert ("gemm", "gemm") in enqueued(Unjoined, (5,)).races()
