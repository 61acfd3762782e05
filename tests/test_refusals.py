"""Requests that cannot be met: `tests/golden/refusals.txt` has them, each with its one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.refusals import make_folder, refusal, written


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("refusals"))


@pytest.mark.parametrize(("command", "line"), written().items())
def test_it_is_refused_with_its_way_out_and_leaves_nothing(
    command: str, line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    assert refusal(command, here) == line
    assert capsys.readouterr().out == ""
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
