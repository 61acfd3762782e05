"""The README names every stage, and says how many lines each rung's file has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stages.registry import load_all

ROOT = Path(__file__).parents[2]
STAGES = load_all()
RUNGS = [entry for entry in STAGES.values() if entry.stage.recipe is not None]


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_is_in_a_table_of_the_readme(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", (ROOT / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("entry", RUNGS, ids=lambda entry: entry.stage.name)
def test_the_line_count_of_a_rung_is_in_the_readme(entry) -> None:  # type: ignore[no-untyped-def]
    row = re.search(rf"^\| `{entry.stage.name}` \|.*\| (\d+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert row is not None
    file = ROOT / (entry.source.split(":")[0].replace(".", "/") + ".py")
    assert int(row[1]) == len(file.read_text().splitlines())
