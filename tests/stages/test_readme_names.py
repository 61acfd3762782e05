"""`docs/stages.md` names every stage."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stages.registry import load_all

ROOT = Path(__file__).parents[2]
STAGES = load_all()


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_is_in_a_table(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", (ROOT / "docs" / "stages.md").read_text(), re.MULTILINE)
