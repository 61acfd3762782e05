"""The planted errors of a user's model in real CUDA graphs: each is caught, and the rungs that hold them are right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.torch]

from stages.torch import dropout  # noqa: E402
from stages.torch.trainer import Trainer, recorded_by_cuda  # noqa: E402
from stages.torch.user_model import Batch  # noqa: E402
from tests.torch_model import emulated_graph, traps  # noqa: E402
from tests.torch_model.test_traps import check_caught, check_honest  # noqa: E402


class FixedMask(Trainer):
    """Dropout has one mask, drawn before the recording."""

    mask: Any = None

    def step(self, batch: Batch) -> None:
        drop = torch.nn.functional.dropout

        def fixed(values: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if self.mask is None:
                self.mask = (torch.rand_like(values) >= p) / (1 - p)
            return values * self.mask if training and dropout.SWITCH.on else values

        torch.nn.functional.dropout = fixed
        try:
            super().step(batch)
        finally:
            torch.nn.functional.dropout = drop


# Some plant their error in the recording itself, or in the CPU's random numbers: the CPU emulates these.
ON_CPU = (traps.FrozenAtSeed, traps.FrozenInside, traps.CompiledFrozenInside)
RECORDED = {
    name: trap
    for name, trap in traps.TRAPS.items()
    if trap.recorder is emulated_graph.recorded and trap.trainer not in ON_CPU
}
RECORDED |= {
    "one mask": traps.Trap("dropout", traps.GRAPH, traps.SEEDS_DIFFER, FixedMask),
    "one mask in eight steps": traps.Trap("dropout", traps.GRAPHS, traps.STEPS_DIFFER, FixedMask),
}
HONEST = {(trap.model, trap.step): name for name, trap in RECORDED.items()}.values()


@pytest.fixture(autouse=True)
def one_stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a worker: a graph is recorded on the stream that all steps run on."""
    monkeypatch.setattr(emulated_graph, "recorded", recorded_by_cuda)
    with torch.cuda.stream(torch.cuda.Stream()):
        yield


@pytest.mark.parametrize("name", RECORDED)
def test_traps_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(RECORDED[name], recorded_by_cuda, recorded_by_cuda, monkeypatch)


@pytest.mark.parametrize("name", HONEST)
def test_the_rungs_are_right_without_their_traps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_honest(name, RECORDED[name], recorded_by_cuda, monkeypatch)
