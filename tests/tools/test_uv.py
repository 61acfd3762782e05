"""`uv run run_ladder.py` needs to know which extras exclude each other, as `tools/setup.py` does."""

from __future__ import annotations

import tomllib
from itertools import combinations, product
from pathlib import Path

from tools.setup import CONFLICTS

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


def test_extras_that_cannot_be_together_are_conflicts_for_uv() -> None:
    known = {
        frozenset((one["extra"], other["extra"]))
        for conflict in PROJECT["tool"]["uv"]["conflicts"]
        for one, other in combinations(conflict, 2)
    }
    wanted = {frozenset(pair) for left, right in CONFLICTS for pair in product(left, right)}
    assert wanted <= known
    assert {extra for pair in known for extra in pair} <= PROJECT["project"]["optional-dependencies"].keys()
