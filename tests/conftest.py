"""What holds for all tests: what is skipped here, and kernels executed on the CPU."""

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
    """Let the programs that tests start be interrupted where the tests themselves, run with `&`, cannot be."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that carries one of the markers in `NEEDS` and cannot run here as skipped."""
    for marker, needs in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = missing(needs) if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """What compiles and executes kernels; the workers of pytest-xdist share what is compiled."""
    base = tmp_path_factory.getbasetemp()
    with closing(Toolchain((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cpu_cuda")) as toolchain:
        yield toolchain


@pytest.fixture(scope="session")
def shim(toolchain: Toolchain) -> Shim:
    """Every kernel that we have."""
    return Shim(cuda_files(KERNELS_FOLDER), toolchain)
