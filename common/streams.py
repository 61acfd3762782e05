"""Text on every terminal: stand-ins for characters that its encoding lacks, escapes for those that nobody sees."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import traceback
from contextlib import suppress

STAND_INS = {
    **dict.fromkeys("█▉▊▋▌▍▎▏━╸╺", "#"), **dict.fromkeys("─–—‐−", "-"), **dict.fromkeys("│┃", "|"),
    "×": "x", "µ": "u", "μ": "u", "→": "->", "←": "<-", "…": "...", "·": ".", "•": "*", "≤": "<=", "≥": ">=",
    "≈": "~", "±": "+-", "’": "'", "‘": "'", "“": '"', "”": '"',
}  # fmt: skip
ODD = re.compile(r"[^ -~\n\t]")
UNDRAWN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # letters and marks by category, but nothing is drawn
NO_BREAK = "\N{NO-BREAK SPACE}"


def accept_any_text() -> None:
    """Let stdout and stderr print any text; without this, an ASCII terminal ends the program at the first bar."""
    codecs.register_error("stand-in", _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="stand-in")


def flush_output() -> None:
    """Write out what is printed; streams that a stage closed or took away have nothing to write."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


def print_error() -> None:
    """Print the exception that is being handled, if stderr is still open."""
    with suppress(AttributeError, OSError, ValueError):
        traceback.print_exc()


def drop_output() -> int:
    """After the reader has gone, send the rest of stdout nowhere, since Python flushes once more; returns status 1."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def visible(text: str) -> str:
    r"""The text with an escape such as `\x1b` for each character that steers a terminal, or that nobody sees.

    Those are control characters (C0, C1), changes of direction, and characters without width; line feeds and tabs stay.
    """
    return ODD.sub(_seen, text.replace("\r\n", "\n"))


def printable(text: str) -> str:
    """The visible text as one line."""
    return visible(text).replace("\n", " ").replace("\t", " ")


def _seen(odd: re.Match[str]) -> str:
    character = odd[0]
    is_seen = character == NO_BREAK or (character.isprintable() and character not in UNDRAWN)
    return character if is_seen else ascii(character)[1:-1]


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(STAND_INS.get(character, "?") for character in error.object[error.start : error.end]), error.end
