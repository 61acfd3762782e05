"""Honest rungs over drawn models: none is wrong, and those that are less exact count in float32 on the device."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread_with_graphs")]

from tests.torch_model import honest_pairs  # noqa: E402

SEEDS = (0, 1, 2)
PAIRS = 4  # of each seed


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore")  # of schedulers and of autocast, on the drawn models
def test_no_honest_rung_is_wrong(seed: int, tmp_path: Path) -> None:
    pairs = list(honest_pairs.judged_pairs(Random(seed), PAIRS, tmp_path))
    judged = [pair for pair in pairs if pair.status not in ("refused", "model refused")]
    assert judged
    assert [pair for pair in judged if pair.status != "passed"] == []


def test_drawn_models_are_of_all_kinds() -> None:
    drawn = "".join(honest_pairs.drawn(Random(seed)) for seed in range(200))
    layers = "Conv2d", "BatchNorm1d", "LayerNorm", "GRU", "LSTM", "Embedding", "TransformerEncoderLayer", "Dropout"
    for kind in (*layers, *honest_pairs.OPTIMIZERS, "clip_grad", "OneCycleLR"):
        assert kind in drawn, kind
