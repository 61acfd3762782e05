"""A short fuzz run, the same each time; `make fuzz` draws new seeds, and `python -m tests.fuzz idx 1000000` many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import COUNTS, FILES, run
from tests.seeds import SEED


@pytest.mark.parametrize(("target", "count"), COUNTS.items())
def test_every_input_is_accepted_or_refused_in_one_line(
    target: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(target, count, SEED, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= FILES
