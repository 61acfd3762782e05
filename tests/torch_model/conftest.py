"""What tests of rungs in graphs need on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def one_thread_with_graphs() -> Iterator[None]:
    """One thread of PyTorch's, and optimizers that let an emulated graph capture them."""
    import torch

    from tests.torch_model import emulated_graph

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with emulated_graph.capturable_on_cpu():
        yield
    torch.set_num_threads(threads)
