"""The budget of lines and words: what counts where, and what ends with 1."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.budget import main, spent_below, words

BUDGET = "[tool.ladder.budget]\nlines = {{ one = 3, 'one/part' = {part} }}\nwords = {{ 'README.md' = 4 }}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "one/a.py": "1\n2\n3\n",
        "one/part/b.py": "1\n2\n",
        "README.md": "# Four [words](that/are/long.md) in all\n",
        "results/report.md": "as many words as it likes\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


def test_a_file_counts_for_the_longest_path_above_it() -> None:
    sizes = {"one/a.py": 1, "one/part/b.py": 2, "one/party.py": 4, "two.py": 8}
    assert spent_below(["one", "one/part"], sizes) == {"one": 5, "one/part": 2, "elsewhere": 8}


def test_words_are_those_that_a_reader_sees() -> None:
    assert words("A [link](to/a%20place) <!-- and\nno comment --> | 3 | --- |") == 3


def test_what_fits_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(BUDGET.format(part=2))
    assert main(project) == 0
    assert "lines  one/part                   2 of       2\n" in capsys.readouterr().out


def test_a_line_too_many_ends_with_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(BUDGET.format(part=1))
    assert main(project) == 1
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines() if line.endswith("over")] == ["one/part", "in"]
    assert "raise the limit" in printed.err


def test_a_file_below_no_path_has_no_room(project: Path) -> None:
    (project / "pyproject.toml").write_text(BUDGET.format(part=2))
    (project / "two.py").write_text("1\n")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    assert main(project) == 1
