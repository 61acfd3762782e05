"""Tensors in allocations of their own, where `tools/sanitize.sh` asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.ladder.times import judged_times


def sanitizer() -> str:
    """The tool of compute-sanitizer that watches, under which a launch takes minutes; empty where none does."""
    return os.environ.get("LADDER_SANITIZER", "")


@pytest.fixture(autouse=True, scope="package")
def times_count() -> Iterator[None]:
    """GPU tests run one after the other, as a user's runs do."""
    with judged_times():
        yield


@pytest.fixture(autouse=True, scope="session")
def no_pool() -> Iterator[None]:
    """CuPy's pool hands out parts of large blocks, in which a sanitizer does not see where one tensor ends."""
    if not sanitizer():
        yield
        return
    import cupy

    cupy.cuda.set_allocator(None)
    yield
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
