"""The planted errors of a user's model in real CUDA graphs: each is caught, and the rungs that hold them are right."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.torch]

from common.errors import MisfitError  # noqa: E402
from ladder.torch_model.judge import Judge  # noqa: E402
from stages.torch.trainer import Trainer, recorded_by_cuda  # noqa: E402
from tests.torch_model import emulated_graph, models, traps  # noqa: E402
from tests.torch_model.test_traps import HONEST_STEPS, checks_of  # noqa: E402

# What these plant is in the recording itself, which the CPU emulates.
RECORDED = {name: trap for name, trap in traps.TRAPS.items() if trap.recorder is emulated_graph.recorded}


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


@pytest.mark.parametrize("name", [name for name in HONEST_STEPS if name in RECORDED])
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
