"""Screens as text, in any width, as a file or a terminal gets them."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console


def screen(shows: Callable[[Console], None], width: int, *, encoding: str = "utf-8", terminal: bool = False) -> str:
    """What a function prints on a console of this width."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width, highlight=False, force_terminal=terminal, legacy_windows=False)
    shows(console)
    file.flush()
    return raw.getvalue().decode(encoding)


def too_wide(text: str, width: int) -> list[str]:
    """The lines that a terminal of this width would break; a path or a link may be longer, as it is never broken."""
    return [line for line in text.splitlines() if len(line) > width and not _is_one_word(line)]


def _is_one_word(line: str) -> bool:
    """Whether the line is a path or a link, with the word that says what it is."""
    *others, last = line.split()
    return "/" in last and len(others) <= 2
