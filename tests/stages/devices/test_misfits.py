"""On how many GPUs a stage of several trains, and why not on others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from common.cost import Exchanges
from common.problem import Problem
from stages.devices import ddp_halves, ddp_overlap, ddp_step
from stages.devices.ddp_peer import STAGE
from stages.engine.stage import Stage


@pytest.mark.parametrize(
    ("found", "gpus", "batch", "reason"),
    [
        (["H100"] * 2, 1, 8, "divides each batch among several GPUs; add --gpus 2"),
        (["H100"], 2, 8, "needs 2 GPUs (--gpus); this machine shows 1"),
        ([], 2, 8, "needs 2 GPUs (--gpus); this machine shows none"),
        (["L4", "A10", "A10"], 2, 8, "needs GPUs of one kind; $CUDA_VISIBLE_DEVICES can choose among A10 and L4"),
        (["H100"] * 2, 2, 1, "a batch of 1 is fewer images than GPUs"),
        (["H100"] * 4, 3, 8, "Needs two GPUs. Closest rung here: `ddp-step`."),
        (["A10", "A10", "L4"], 2, 2, None),
    ],
    ids=str,
)
def test_what_fits(
    found: list[str], gpus: int, batch: int, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.engine.stage.devices", lambda: [SimpleNamespace(name=name) for name in found])
    assert STAGE.misfit(Problem(5, 3, batch_size=batch, gpus=gpus), 7) == reason


@pytest.mark.parametrize(
    ("stage", "gpus", "sent"),
    [
        (ddp_step.STAGE, 2, 203_530 * 4),
        (ddp_step.STAGE, 3, 203_530 * 16 // 3),
        (STAGE, 2, 203_530 * 4),
        (ddp_overlap.STAGE, 2, 784 * 256 * 4),
        (ddp_halves.STAGE, 2, 203_530 * 4),
    ],
)
def test_what_is_sent_after_the_last_product(stage: Stage, gpus: int, sent: int) -> None:
    problem = Problem(784, 10, (256,), batch_size=8192, gpus=gpus)
    assert stage.exchanges(problem, 7, 132, 200_000) == Exchanges(peer_bytes=sent)
