"""The command that continues an interrupted run must be accepted, and name every file that `--resume` cannot know."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.options.continuation import continuation
from ladder.options.parsers import parse


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--stages numpy", "--resume out"),
        ("--data-dir d", "--resume out --data-dir d"),
        ("--stage-file a.py --stage-file b.py", "--resume out --stage-file a.py --stage-file b.py"),
        ("--resume out --data-dir d", "--resume out --data-dir d"),
        ("study plan.toml --points a --data-dir d", "study --resume out --data-dir d"),
        ("study --resume out --data-dir d", "study --resume out --data-dir d"),
        ("study --resume out", "study --resume out"),
    ],
)
def test_it_names_the_files_of_the_interrupted_command(typed: str, words: str) -> None:
    found = continuation(parse(typed.split()), Path("out"))  # type: ignore[arg-type]
    assert found == words.split()
    parse(found)


def test_a_config_file_s_data_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('data_dir = "far away"')
    asked = parse(["--config", str(tmp_path / "mine.toml")])
    assert continuation(asked, Path("out")) == ["--resume", "out", "--data-dir", "far away"]  # type: ignore[arg-type]
