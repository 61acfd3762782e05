"""A short fuzz run with a new seed each time; `python -m tests.fuzz idx 1000000` is a long one."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.fuzz.targets import FILES, run


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("idx", 20_000),
        ("results", 1_500),
        ("command-line", 400),
        ("toml", 400),
        ("study", 1_500),
        ("commands", 60),
        ("study-command", 60),
    ],
)
def test_every_input_is_accepted_or_refused_in_one_line(
    target: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(target, count, secrets.randbits(40), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= FILES
