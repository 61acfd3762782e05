"""Rows as CSV, for spreadsheets: what is no number is text there, and never a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute


def sheet(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and rows of as many cells, None for an empty one. Text that begins like a formula gets an apostrophe."""
    with io.StringIO(newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([_as_text(cell) for cell in row] for row in (header, *rows))
        return text.getvalue()


def _as_text(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) and not _is_number(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
