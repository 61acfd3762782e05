"""The exact text of renderings. After a wanted change, run `python -m tests.golden.update` and read the diff."""

from __future__ import annotations

import pytest

from tests.golden import FOLDER, renderings


@pytest.mark.parametrize("name", sorted(renderings()))
def test_rendering_is_as_recorded(name: str) -> None:
    assert renderings()[name] == (FOLDER / name).read_text(encoding="utf-8"), "see this test's docstring"


def test_no_golden_file_is_left_over() -> None:
    recorded = {path.name for path in FOLDER.iterdir() if path.suffix in {".txt", ".md"}}
    assert recorded == set(renderings())
