"""What tests of rungs in graphs need on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def one_thread_with_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread of PyTorch's, and optimizers that let an emulated graph capture them.

    A device that is not there keeps each seed for later, with the stack of the call, which takes a tenth of the time.
    """
    import torch

    from tests.torch_model import emulated_graph

    for device in (torch.cuda, torch.xpu, torch.mtia):
        if not device.is_available():
            monkeypatch.setattr(device, "manual_seed_all", lambda seed: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with emulated_graph.capturable_on_cpu():
        yield
    torch.set_num_threads(threads)
