"""On how many GPUs a stage of several trains, and why not on others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from common.problem import Problem
from stages.devices.r1_ddp_peer import STAGE


@pytest.mark.parametrize(
    ("found", "gpus", "batch", "reason"),
    [
        (2, 1, 8, "divides each batch among several GPUs; add --gpus 2"),
        (1, 2, 8, "needs 2 GPUs (--gpus); this machine shows 1"),
        (0, 2, 8, "needs 2 GPUs (--gpus); this machine shows none"),
        (2, 2, 1, "a batch of 1 is fewer images than GPUs"),
        (4, 3, 8, "takes two GPUs; choose --gpus 2"),
        (2, 2, 2, None),
    ],
)
def test_what_fits(found: int, gpus: int, batch: int, reason: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.engine.stage.devices", lambda: [SimpleNamespace()] * found)
    assert STAGE.misfit(Problem(5, 3, batch_size=batch, gpus=gpus), 7) == reason
