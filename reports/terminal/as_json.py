"""What the tables show, as JSON for other programs; the whole record of a run is its `results.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

Data = TypeVar("Data")


def show(data: Data, print_table: Callable[[Data], None], *, as_json: bool) -> int:
    """Print data by this function, or as JSON; returns the exit status 0."""
    print_json(data) if as_json else print_table(data)
    return 0


def print_json(data: Any) -> None:
    """Print plain data, records, or a list of named tuples; in ASCII, so that no terminal changes it."""
    if isinstance(data, list):
        data = [one._asdict() if hasattr(one, "_asdict") else one for one in data]
    json.dump(msgspec.to_builtins(data), sys.stdout, indent=2)
    sys.stdout.write("\n")
