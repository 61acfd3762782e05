"""Graphs emulated on the CPU hold what a capture holds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread_with_graphs")]

from common.errors import MisfitError  # noqa: E402
from tests.torch_model import emulated_graph  # noqa: E402


def test_a_replay_reads_and_writes_the_recorded_memory() -> None:
    number, total, factor = torch.ones(()), torch.zeros(()), 2.0
    seen = []

    def body() -> None:
        seen.append(factor)
        total.add_(number * factor)

    replay = emulated_graph.recorded(body)
    assert total.item() == 0.0
    number.fill_(3.0)
    factor = 100.0
    replay()
    replay()
    assert total.item() == 12.0
    assert seen == [2.0]


def test_a_recording_leaves_random_numbers_and_statistics_alone() -> None:
    layer, inputs = torch.nn.BatchNorm1d(3), torch.randn(8, 3)
    torch.manual_seed(1)
    replay = emulated_graph.recorded(lambda: layer(inputs + torch.randn(8, 3)))
    assert torch.equal(layer.running_mean, torch.zeros(3))
    drawn = torch.randn(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.randn(1))
    replay()
    assert not torch.equal(layer.running_mean, torch.zeros(3))


def test_a_host_that_waits_cannot_be_recorded() -> None:
    with pytest.raises(MisfitError, match="_local_scalar_dense"):
        emulated_graph.recorded(lambda: torch.ones(()).item())
