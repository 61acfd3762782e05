"""The size of the project: what counts where, and what ends with 1."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.size import code_lines, main, spent_below, words

SIZE = (
    "[tool.ladder.size]\ncode = {{ one = 60, 'one/part' = {part} }}\nwords = {{ 'README.md' = 4 }}\n"
    "released = {{ code = {{ one = 50 }}, words = {{ }} }}\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "one/a.py": "a = 1\n" * 63,
        "one/part/b.py": "b = 1\n" * 21,
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


def test_lines_of_code_are_no_docstrings_comments_or_blanks() -> None:
    text = '"""A module.\n\nOf two."""\n\n# why\nTEXT = """kept\nas it is"""\n'
    text += '\n\ndef f():\n    """Do."""\n    return 1  # so\n'
    assert code_lines(text) == 4


def test_what_fits_within_the_headroom_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(SIZE.format(part=20))
    assert main(project) == 0
    printed = capsys.readouterr().out
    assert "code   one                       63      +13\n" in printed
    assert "code   in all                    84      +34\n" in printed


def test_a_room_beyond_it_ends_with_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(SIZE.format(part=19))
    assert main(project) == 1
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines() if line.endswith("over")] == ["one/part"]
    assert "say why" in printed.err


def test_a_file_below_no_path_has_no_room(project: Path) -> None:
    (project / "pyproject.toml").write_text(SIZE.format(part=20))
    (project / "two.py").write_text("a = 1\n")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    assert main(project) == 1
