from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.ladder.study.jobs import FOUR_POINTS, Start

ROOT = Path(__file__).parents[3]


@pytest.fixture
def four_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a study of four points in `four.toml`, and data found by default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADDER_DATA_DIR", str(write_files(tmp_path / "digits", quartet_arrays(400, 50, (6, 6), 4))))
    (tmp_path / "four.toml").write_text(FOUR_POINTS)
    return tmp_path


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the command `study` with these words, in a session of its own, as a terminal does."""
    begun: list[subprocess.Popen[str]] = []

    def run(*argv: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "run_ladder.py"), "study", *argv]
        begun.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        )
        return begun[-1]

    yield run
    for program in begun:
        program.kill()
        program.communicate()
