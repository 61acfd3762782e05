"""Skips, with the reason, what this machine cannot run."""

from __future__ import annotations

import pytest

from ladder.environment import missing

NEEDS = {"gpu": ("cuda",), "torch": ("torch",), "jax": ("jax",)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that carries one of the markers in `NEEDS` and cannot run here as skipped."""
    for marker, needs in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = missing(needs) if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))
