"""The folder of a new run: the named one, or one that no other run has."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from ladder.run import folders
from ladder.run.folders import make_folder


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stopped = SimpleNamespace(now=lambda: datetime(2026, 1, 2, 3, 4, 5))
    monkeypatch.setattr(folders, "datetime", stopped)
    found = [str(make_folder(None, "plan-")) for _ in range(3)]
    assert found == ["runs/plan-20260102-030405", "runs/plan-20260102-030405-2", "runs/plan-20260102-030405-3"]
    assert str(make_folder(None)) == "runs/20260102-030405"
    assert make_folder(tmp_path) == tmp_path
