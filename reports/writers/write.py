"""Prints a screen in the form that a command was asked for: laid out, or its facts for other programs."""

from __future__ import annotations

import msgspec
from rich.console import Console

from reports.screens.blocks import Screen
from reports.writers.as_json import Form, print_json, print_rows
from reports.writers.console import standard
from reports.writers.markdown import markdown
from reports.writers.terminal import write_terminal


def write(screen: Screen, form: Form = "table", console: Console | None = None) -> int:
    """Print the screen as text or as a document, its facts as JSON, or its rows as CSV; returns the exit status 0."""
    if form in ("table", "text"):
        write_terminal(screen, standard(console))
    elif form == "markdown":
        print(markdown(screen), end="")
    elif form == "json":
        print_json(screen.facts)
    else:
        rows = screen.rows
        print_rows(msgspec.to_builtins(screen.facts)[rows] if isinstance(rows, str) else msgspec.to_builtins(rows))
    return 0
