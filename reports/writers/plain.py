"""A screen's facts for other programs: JSON, or its rows as CSV."""

from __future__ import annotations

from typing import Literal

import msgspec

from reports.screens.blocks import Screen
from reports.terminal.as_json import print_json, print_rows


def write_plain(screen: Screen, form: Literal["json", "csv"]) -> None:
    """Print the facts."""
    if form == "json":
        print_json(screen.facts)
    else:
        print_rows(msgspec.to_builtins(screen.facts[screen.rows]))
