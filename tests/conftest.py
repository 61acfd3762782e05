"""Fixtures and hooks for all tests: skips by marker, and kernels executed on the CPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from ladder.machine.environment import missing
from tests.cpu_cuda.shim import Shim, Toolchain
from tests.cpu_cuda.sources import KERNELS_FOLDER, cuda_files

NEEDS = {"gpu": ("cuda",), "torch": ("torch",), "jax": ("jax",)}


def pytest_configure() -> None:
    """Let programs that tests start receive Ctrl-C even if pytest runs in the background, where it is ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests with a marker in `NEEDS` that this machine cannot run."""
    for marker, needs in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = missing(needs) if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """Compiles and executes kernels; workers of pytest-xdist share the compiled code."""
    base = tmp_path_factory.getbasetemp()
    with closing(Toolchain((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cpu_cuda")) as toolchain:
        yield toolchain


@pytest.fixture(scope="session")
def shim(toolchain: Toolchain) -> Shim:
    """All kernels of the project."""
    return Shim(cuda_files(KERNELS_FOLDER), toolchain)
