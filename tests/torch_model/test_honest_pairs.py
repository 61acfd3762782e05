"""Honest rungs over drawn models: none is wrong, and those that are less exact count in float32 on the device."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread_with_graphs")]

from ladder.torch_model.judge import Judge  # noqa: E402
from tests.torch_model import emulated_graph, honest_pairs, models  # noqa: E402

SEEDS = (0, 1, 2)
PAIRS = 4  # of each seed


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore")  # of schedulers and of autocast, on the drawn models
def test_no_honest_rung_is_wrong(seed: int, tmp_path: Path) -> None:
    pairs = list(honest_pairs.judged_pairs(Random(seed), PAIRS, tmp_path))
    judged = [pair for pair in pairs if pair.status not in ("refused", "model refused")]
    assert judged
    assert [pair for pair in judged if pair.status != "passed"] == []


def test_an_input_of_zeros_is_judged_with_dropout_in_a_graph(tmp_path: Path) -> None:
    """Adam divides the root of its weights' mean square, which is zero, by a rate that was zero in a probe."""
    text = models.source(
        model="def model():\n    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(), nn.Linear(12, 3))\n",
        data="def data():\n    return torch.randn(104, 6) * torch.arange(6), torch.randint(3, (104,))\n",
    )
    opened = models.opened_text(tmp_path, text)
    judge = Judge(opened, recorder=emulated_graph.recorded)
    pair = honest_pairs.judged_pair(judge, opened, text, honest_pairs.UNFUSED[0])
    assert pair.status == "passed", pair.reason


def test_drawn_models_are_of_all_kinds() -> None:
    drawn = "".join(honest_pairs.drawn(Random(seed)) for seed in range(200))
    layers = (
        "Conv2d",
        "MaxPool2d",
        "BatchNorm1d",
        "LayerNorm",
        "GRU",
        "LSTM",
        "Embedding",
        "TransformerEncoderLayer",
        "Dropout",
    )
    for kind in (*layers, *honest_pairs.OPTIMIZERS, *honest_pairs.REDUCTIONS, "clip_grad", "OneCycleLR"):
        assert kind in drawn, kind
