"""Checks of what a GPU must offer to a part; a MisfitError says that the stage is skipped, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from common.errors import MisfitError

HINT = "Closest rung here: "


def with_closest(reason: str, name: str | None) -> str:
    """Why a problem does not fit, and the next rung to try; as it is if there is none, or if it says what to do."""
    return f"{reason} {HINT}`{name}`." if name and reason.endswith(".") and HINT not in reason else reason


@contextmanager
def closest_rung(name: str | None) -> Iterator[None]:
    """Inside, a MisfitError also names this rung as the closest one."""
    try:
        yield
    except MisfitError as error:
        raise MisfitError(with_closest(str(error), name)) from error


def require_shared_bytes(device: Any, needed: int) -> None:
    """Raise MisfitError unless a block of this device can have this many bytes of shared memory."""
    most = device.block_shared_bytes
    if needed > most:
        raise MisfitError(f"Needs {needed:,} bytes of shared memory a block; this GPU has {most:,}.")


def require_cluster(kernel: Any, threads: int, blocks: int) -> int:
    """Number of the kernel's clusters that fit on the GPU at once; MisfitError if none does.

    A GPU may lack multiprocessors that are neighbours, for example in a MIG slice.
    """
    at_once: int = kernel.clusters_at_once(threads)
    if at_once < 1:
        raise MisfitError(f"This GPU cannot run a cluster of {blocks} blocks.")
    return at_once
