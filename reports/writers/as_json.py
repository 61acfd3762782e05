"""What the tables show, as JSON or CSV for other programs; the whole record of a run is its `results.json`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

Data = TypeVar("Data")
Form = Literal["table", "text", "markdown", "json", "csv"]  # a table is text


def show(
    data: Data, print_table: Callable[[Data], object], form: Form, facts: Callable[[Data], object] = lambda data: data
) -> int:
    """Print data by this function, or its facts as JSON, or the rows of these as CSV; returns the exit status 0."""
    if form == "table":
        print_table(data)
    else:
        (print_json if form == "json" else print_csv)(facts(data))
    return 0


def print_csv(data: Any) -> None:
    """Print the rows of what `print_json` prints, with a column for each number, empty where it is missing."""
    plain = _plain(data)
    print_rows(plain if isinstance(plain, list) else plain["kernels"])


def print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print plain rows as CSV, with a column for each number of any of them."""
    flat = [dict(_columns(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def _columns(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """A row without nesting: `epoch_s` of three numbers becomes `epoch_s_median` and two more."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _columns(value, f"{before}{name}_")
        elif isinstance(value, list):
            yield before + name, ("; " if isinstance(next(iter(value), 0), str) else " ").join(map(str, value))
        elif value is not None:
            yield before + name, value


def print_json(data: Any) -> None:
    """Print plain data, records, or a list of named tuples; in ASCII, so that no terminal changes it."""
    json.dump(_plain(data), sys.stdout, indent=2)
    sys.stdout.write("\n")


def _plain(data: Any) -> Any:
    if isinstance(data, list):
        data = [item._asdict() if hasattr(item, "_asdict") else item for item in data]
    return msgspec.to_builtins(data)
