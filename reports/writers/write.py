"""Prints a screen in the form that a command was asked for: laid out, or its facts for other programs.

The whole record of a run is its `results.json`; JSON and CSV have what the tables show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from rich.console import Console

from reports.facts.sheet import sheet
from reports.report_error import ReportError
from reports.screens.blocks import Screen
from reports.writers.console import standard
from reports.writers.markdown import markdown
from reports.writers.terminal import write_terminal

Form = Literal["table", "text", "markdown", "json", "csv"]  # a table is text


def write(screen: Screen, form: Form = "table", console: Console | None = None) -> int:
    """Print the screen as text or as a document, its facts as JSON, or its rows as CSV; returns the exit status 0.

    Raises ReportError for CSV of a screen that cannot do without rows and has none.
    """
    if form in ("table", "text"):
        write_terminal(screen, standard(console))
    elif form == "markdown":
        print(markdown(screen), end="")
    else:
        facts, rows = msgspec.to_builtins(screen.facts), screen.rows
        if form == "json":  # in ASCII, so that no terminal changes it
            print(json.dumps(facts, indent=2))
        else:
            found = facts[rows] if isinstance(rows, str) else msgspec.to_builtins(rows)
            if not found and screen.no_rows:
                raise ReportError(screen.no_rows)
            _print_rows(found)
    return 0


def _print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print plain rows as CSV, with a column for each number of any of them, empty where it is missing."""
    flat = [dict(_columns(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    print(sheet(columns, ([row.get(name) for name in columns] for row in flat)), end="")


def _columns(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """A row without nesting: `epoch_s` of three numbers becomes `epoch_s_median` and two more."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _columns(value, f"{before}{name}_")
        elif isinstance(value, list):
            yield before + name, ("; " if isinstance(next(iter(value), 0), str) else " ").join(map(str, value))
        elif value is not None:
            yield before + name, value
