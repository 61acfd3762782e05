"""What the user hears while a run's images are loaded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from common.data import dataset
from ladder.run import data
from ladder.run.data import load_dataset
from tests.ladder.harness import Watcher, small_dataset


class Downloads(Watcher):
    def download(self, done: int, total: int | None, name: str) -> None:
        """Nothing arrives here."""


@pytest.mark.parametrize(("folder", "notes"), [(None, 1), (Path("digits"), 0)])
def test_only_who_needs_mirrors_hears_that_they_are_slow(
    monkeypatch: pytest.MonkeyPatch, folder: Path | None, notes: int
) -> None:
    watcher = Downloads()

    def slowly(**_: Any) -> dataset.Dataset:
        deadline = time.monotonic() + 60
        while len(watcher.notes) < notes and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(5 * data.PATIENCE_S)
        return small_dataset()

    monkeypatch.delenv("LADDER_DATA_DIR", raising=False)
    monkeypatch.setattr(data, "PATIENCE_S", 0.01)
    monkeypatch.setattr(dataset, "load_dataset", slowly)
    load_dataset(data_dir=folder, seed=0, observer=watcher)
    assert len(watcher.notes) == notes
