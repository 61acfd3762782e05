"""The planted errors of a user's model in real CUDA graphs: each is caught, and the rungs that hold them are right."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.torch]

from common.errors import MisfitError  # noqa: E402
from ladder.torch_model.judge import Judge  # noqa: E402
from stages.torch import dropout  # noqa: E402
from stages.torch.trainer import Trainer, recorded_by_cuda  # noqa: E402
from stages.torch.user_model import Batch  # noqa: E402
from tests.torch_model import emulated_graph, models, traps  # noqa: E402
from tests.torch_model.test_traps import checks_of  # noqa: E402


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


@functools.cache
def judge_of(model: str) -> Judge:
    with tempfile.TemporaryDirectory() as folder:
        return Judge(models.opened_text(Path(folder), traps.MODELS[model]))


@pytest.mark.parametrize("name", RECORDED)
def test_traps_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = RECORDED[name]
    judge = Judge(judge_of(trap.model)._opened, judge_of(trap.model).reference)
    checks = checks_of(judge, trap.planted, trap.trainer, recorded_by_cuda, monkeypatch)
    wrong = [check.what for check in checks if check.is_wrong]
    assert trap.caught_by in wrong


@pytest.mark.parametrize("name", HONEST)
def test_the_rungs_are_right_without_their_traps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = RECORDED[name]
    judge = Judge(judge_of(trap.model)._opened, judge_of(trap.model).reference)
    if name in traps.REFUSED:
        with pytest.raises(MisfitError, match=traps.REFUSED[name]):
            judge.trainer(trap.step)
        return
    kind = traps.Compiles if trap.step.compiler.arguments is not None else Trainer
    checks = checks_of(judge, trap.step, kind, recorded_by_cuda, monkeypatch)
    assert [check for check in checks if check.is_wrong] == []
