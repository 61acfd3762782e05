"""The published schema is today's, fits every recorded run, and refuses others."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ladder.records.run import SCHEMA_VERSION
from tools.results_schema import SCHEMA, as_text, schema

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed; make test installs it")
ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "results" / "reference").glob("*/*/results.json"))
VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_the_file_has_today_s_schema() -> None:
    assert SCHEMA.read_text() == as_text(schema()), "run python -m tools.results_schema"
    assert f"schema version {SCHEMA_VERSION}" in (ROOT / "docs" / "results.md").read_text()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_runs_fit_it(path: Path) -> None:
    assert RECORDED
    VALIDATOR.validate(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("schema_version",), SCHEMA_VERSION + 1),
        (("stages", 0, "status"), "unknown"),
        (("stages", 0, "processes", 0, "runs_s"), "1.0"),
        (("problem", "inputs"), None),
    ],
)
def test_other_files_do_not(where: tuple[str | int, ...], value: object) -> None:
    whole: Any = copy.deepcopy(json.loads(RECORDED[0].read_text()))
    inner = whole
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    assert not VALIDATOR.is_valid(whole)
