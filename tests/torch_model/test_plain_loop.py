"""The rung `eager` does no more than the loop that a user would write: speedups over it are not our own overhead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from ladder.torch_model.judge import Judge  # noqa: E402
from stages.torch.registry import RUNGS  # noqa: E402
from tests.torch_model import models, traps  # noqa: E402

STEPS = 10
FEW_MORE = 1.2  # times the calls of a plain loop

NAMED = models.source(
    model="""
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
    def forward(self, inputs):
        return self.layer(inputs["x"])

def model():
    return Named()
""",
    data="""
def data():
    inputs = torch.randn(104, 6)
    return {"x": inputs}, inputs[:, :3].abs().argmax(1)
""",
)


class Rows:
    """A Dataset of two dicts or tensors, as a user writes it."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> Any:
        inputs = self.inputs
        read = {name: part[row] for name, part in inputs.items()} if isinstance(inputs, dict) else inputs[row]
        return read, self.targets[row]


def plain_loop(user: Any) -> Callable[[], None]:
    """The usual loop over a user's file."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    inputs, targets = user.data()
    dataset = Rows(inputs, targets) if isinstance(inputs, dict) else TensorDataset(inputs, targets)
    loader = DataLoader(dataset, batch_size=user.BATCH_SIZE, shuffle=True, drop_last=True)
    model, totals = user.model().train(), dict.fromkeys(("loss", "accuracy"), 0.0)
    optimizer = user.optimizer(model.parameters())
    scheduler = user.scheduler(optimizer) if hasattr(user, "scheduler") else None

    def train() -> None:
        for step, batch in enumerate(loader):
            if step == STEPS:
                return
            batch_inputs, batch_targets = batch
            if isinstance(batch_inputs, dict):
                batch_inputs = {name: part.to("cpu") for name, part in batch_inputs.items()}
            else:
                batch_inputs = batch_inputs.to("cpu")
            batch_targets = batch_targets.to("cpu")
            optimizer.zero_grad()
            output = model(batch_inputs)
            loss = user.loss(output, batch_targets)
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            totals["loss"] += loss.item()
            if hasattr(user, "metrics"):
                with torch.no_grad():
                    for name, value in user.metrics(output, batch_targets).items():
                        totals[name] += value.item()

    return train


def calls(function: Callable[[], Any]) -> int:
    """How many functions of Python and C a function calls."""
    number = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("text", [models.source(), NAMED, models.source(traps.ONE_CYCLE + traps.METRICS)])
def test_eager_calls_hardly_more_than_a_plain_loop(text: str, tmp_path: Path) -> None:
    opened = models.opened_text(tmp_path, text)
    trainer = Judge(opened).trainer(RUNGS["eager"].step)
    names: dict[str, Any] = {}
    exec(compile(text, "my_model.py", "exec"), names)
    plain = plain_loop(SimpleNamespace(**names))
    for warm in (plain, lambda: trainer.run(STEPS)):
        warm()
    ours = calls(lambda: trainer.run(STEPS))
    assert ours < FEW_MORE * calls(plain)
