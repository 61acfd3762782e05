"""The worker processes of the oracle's training runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ladder.verify.oracle_runs import compute_all
from tests.ladder.harness import small_dataset, small_problem


def test_workers_do_not_import_the_main_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(program), raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    small_dataset().save(tmp_path / "data")
    done = compute_all(small_problem(epochs=1), tmp_path / "data", [None, 0], 60.0)
    assert [len(run.epochs) for run in done.values()] == [1, 1]
    assert sys.modules["__main__"] is main
    assert not (tmp_path / "imported").exists()
