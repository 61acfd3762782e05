"""Loops of Accelerate and Lightning: judged right, caught with a planted mistake, and absent where not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from common.errors import UsageError  # noqa: E402
from ladder.options.commands import Torch  # noqa: E402
from ladder.torch_model import session  # noqa: E402
from ladder.torch_model.judge import Judge  # noqa: E402
from ladder.torch_model.messages import Judged  # noqa: E402
from stages.torch import training_step  # noqa: E402
from stages.torch.registry import RUNGS, chosen  # noqa: E402
from stages.torch.trainer import Trainer  # noqa: E402
from tests.torch_model import models, traps  # noqa: E402

NAMES = ("accelerate", "lightning")
ALL_PARTS = models.source(traps.ONE_CYCLE + traps.CLIPPED + traps.NOISE + traps.METRICS, model=traps.DROPOUT)


def status(folder: Path, name: str, text: str, plant: Any = None) -> str:
    pytest.importorskip(name)
    judge = Judge(models.opened_text(folder, text))
    trainer = judge.trainer(RUNGS[name].step)
    if plant is not None:
        plant(trainer)
    try:
        checks, _, _ = judge.judged(trainer)
    finally:
        trainer.close()
    return session.verdict(Judged(name, checks=checks))[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_is_as_exact_as_eager(name: str, tmp_path: Path) -> None:
    assert status(tmp_path, name, ALL_PARTS) == "passed"


def skipped_batch(trainer: Trainer) -> None:
    trainer.batches.start(1)


def schedule_that_stands_still(trainer: Trainer) -> None:
    trainer.scheduler.step = lambda: None


@pytest.mark.parametrize("plant", [skipped_batch, schedule_that_stands_still])
@pytest.mark.parametrize("name", NAMES)
def test_a_planted_mistake_is_caught(name: str, plant: Any, tmp_path: Path) -> None:
    assert status(tmp_path, name, models.source(traps.ONE_CYCLE), plant) == "wrong"


def test_lightning_refuses_a_scheduler_that_it_cannot_save(tmp_path: Path) -> None:
    opened = models.opened_text(tmp_path, traps.MODELS["moving decay"])
    assert "Moving lacks; inherit from" in opened.misfit(RUNGS["lightning"])
    assert opened.misfit(RUNGS["accelerate"]) == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_that_is_not_installed_has_no_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "find_spec", lambda package: None)
    assert name not in [rung.name for rung in chosen(["all"], on_gpu=True)]
    line = f"--stages {name}: needs {name}, which is not installed; `pip install {name}` adds it"
    with pytest.raises(UsageError) as refused:
        chosen([name], on_gpu=True)
    assert str(refused.value) == line


def test_a_loop_of_others_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "find_spec", lambda package: True)
    file = tmp_path / "my_model.py"
    file.write_text(models.source())
    asked = Torch(model=file, stages=NAMES, write=tmp_path / "fast.py")
    view: Any = None
    with (
        pytest.raises(UsageError, match="accelerate, lightning has no script; add a rung of ours"),
        session.opened(asked, view, "torch"),
    ):
        pass
