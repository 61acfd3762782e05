"""Write the JSON schema of a run's results file, docs/results.schema.json: `python -m tools.results_schema`.

msgspec derives it from `ladder.records.run.Results`, whose comments say what a field means.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from common.files import atomic_write
from ladder.records.run import SCHEMA_VERSION, Results

SCHEMA = Path(__file__).parents[1] / "docs" / "results.schema.json"


def main() -> int:
    """Write the schema; returns the exit code."""
    atomic_write(SCHEMA, as_text(schema()))
    return 0


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12, with its version."""
    described = msgspec.json.schema(Results)
    described["$defs"]["Results"]["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"schema version {SCHEMA_VERSION}; written by python -m tools.results_schema",
        **described,
    }


def as_text(described: dict[str, Any]) -> str:
    """A schema as its file has it."""
    return json.dumps(described, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
