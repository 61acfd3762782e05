"""What a shell gets when it asks for words, as argcomplete's shell code asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def completed(line: str, folder: Path) -> list[str]:
    """The words for the end of a command line; argcomplete writes them to descriptor 8, here a file."""
    answer = folder / "answer"
    environment = {
        **os.environ, "_ARGCOMPLETE": "2", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
        "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, str(ROOT / "run_ladder.py")], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    return answer.read_text().split("\n")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("explain cuda-g", {"cuda-graph"}),
        ("--stages naive..cudn", {"naive..cudnn-softmax"}),
        ("run --stages numpy,cudn", {"numpy,cudnn-softmax"}),
        ("--learn", {"--learning-rate", "--learning-rates"}),
        ("compare --format m", {"markdown"}),
        ("profile --tool nsys,cu", {"nsys,cupti"}),
    ],
)
def test_words_are_completed(typed: str, words: set[str], tmp_path: Path) -> None:
    found = {word.strip() for word in completed(f"python run_ladder.py {typed}", tmp_path)}
    assert found == words
    assert b"PYTHON_ARGCOMPLETE_OK" in (ROOT / "run_ladder.py").read_bytes()[:1024]
