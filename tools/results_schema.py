"""Write the JSON schemas of the files that runs leave, in docs/: `python -m tools.results_schema`.

msgspec derives them from `ladder.records.run.Results` and `ladder.records.torch_run.TorchResults`, whose comments say
what a field means.
"""

from __future__ import annotations

import json
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from common.files import atomic_write
from ladder.records import run, torch_run

DOCS = Path(__file__).parents[1] / "docs"
SCHEMAS: dict[Path, tuple[type[msgspec.Struct], int]] = {
    DOCS / "results.schema.json": (run.Results, run.SCHEMA_VERSION),
    DOCS / "torch.schema.json": (torch_run.TorchResults, torch_run.SCHEMA_VERSION),
}


def main() -> int:
    """Write the schemas; returns the exit code."""
    for path, (record, version) in SCHEMAS.items():
        atomic_write(path, as_text(schema(record, version)))
    return 0


def _of_any_version(part: Any) -> Any:
    """A part of a schema as every msgspec makes it: 0.23 cleans docstrings, and adds the names that a dict may have."""
    if isinstance(part, list):
        return [_of_any_version(item) for item in part]
    if not isinstance(part, dict):
        return part
    cleaned = {name: _of_any_version(value) for name, value in part.items() if name != "propertyNames"}
    if isinstance(cleaned.get("description"), str):
        cleaned["description"] = cleandoc(cleaned["description"])
    return cleaned


def schema(record: type[msgspec.Struct], version: int) -> dict[str, Any]:
    """The schema of a record, draft 2020-12, with its version."""
    described = _of_any_version(msgspec.json.schema(record))
    described["$defs"][record.__name__]["properties"]["schema_version"] = {"const": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"schema version {version}; written by python -m tools.results_schema",
        **described,
    }


def as_text(described: dict[str, Any]) -> str:
    """A schema as its file has it."""
    return json.dumps(described, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
