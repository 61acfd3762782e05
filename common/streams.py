"""Standard output on every terminal: characters that its encoding lacks get a stand-in."""

from __future__ import annotations

import codecs
import io
import os
import sys

STAND_INS = {
    **dict.fromkeys("█▉▊▋▌▍▎▏━╸╺", "#"), **dict.fromkeys("─–—‐−", "-"), **dict.fromkeys("│┃", "|"),
    "×": "x", "µ": "u", "μ": "u", "→": "->", "←": "<-", "…": "...", "·": ".", "•": "*", "≤": "<=", "≥": ">=",
    "≈": "~", "±": "+-", "’": "'", "‘": "'", "“": '"', "”": '"',
}  # fmt: skip


def accept_any_text() -> None:
    """Let stdout and stderr print any text; without this, an ASCII terminal ends the program at the first bar."""
    codecs.register_error("stand-in", _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="stand-in")


def drop_output() -> int:
    """After the reader has gone, send the rest of stdout nowhere, since Python flushes once more; returns status 1."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def printable(text: str) -> str:
    """The text as one line without control characters, as a damaged file may hold any."""
    return "".join(character if character.isprintable() else " " for character in text)


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(STAND_INS.get(character, "?") for character in error.object[error.start : error.end]), error.end
