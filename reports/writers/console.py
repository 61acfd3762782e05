"""Text that fits the terminal: lines that break only between words, and tables that choose their columns.

A path, a link or a name is never broken. A table shows the columns that fit, so that each row takes one line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from reports.facts.numbers import shortest
from reports.screens.blocks import NO_BREAK, Column, Table, Tone, unbroken

STATUS_STYLE = {"passed": "green", "passed?": "yellow", "failed": "bold red", "crashed": "bold red", "skipped": "dim"}
ESSENTIAL = 5  # the highest rank of the columns that every reader needs


STYLES: dict[Tone, str] = {
    "plain": "", "strong": "bold", "quiet": "dim", "good": "green", "doubtful": "yellow", "bad": "bold red",
    "alarm": "bold white on red",
}  # fmt: skip
ASCII = str.maketrans("≈─", "~-")  # for a console without symbols


def standard(console: Console | None) -> Console:
    """The console, or one for standard output."""
    return console or Console(highlight=False)


def aside() -> Console:
    """A console for standard error, which leaves standard output to JSON."""
    return Console(stderr=True, highlight=False)


def is_live(console: Console) -> bool:
    """Whether the console can redraw a line."""
    return console.is_terminal and not console.is_dumb_terminal


def has_symbols(console: Console) -> bool:
    """Whether the console's encoding has more than ASCII."""
    return console.encoding.startswith("utf")


def print_link(console: Console, path: Path, first: str) -> None:
    """A file as a file:// link; where that is too long for the terminal, as a path that is the link."""
    link = path.resolve().as_uri()
    shown = link if len(first) + len(link) <= console.width else shortest(path)
    line = Text(first).append(shown, f"link {link}" if is_live(console) else "")
    console.print(line, soft_wrap=True)


def say(console: Console, text: str, style: str = "", *, first: str = "") -> None:
    """Print a paragraph, broken only between words; later lines hang below the text after `first`."""
    for line in wrapped(text, console.width, first, " " * len(first)) or [first.rstrip()]:
        console.print(Text(line, style), soft_wrap=True)


def say_titled(console: Console, title: str, text: str) -> None:
    """Print a paragraph that begins with a title in bold."""
    first, *others = wrapped(f"{title}: {text}", console.width)
    console.print(Text.assemble((f"{title}:", "bold"), first.removeprefix(f"{title}:")), soft_wrap=True)
    for line in others:
        console.print(Text(line), soft_wrap=True)


def named(text: str) -> str:
    """The text without the backticks of a single word: they matter where a reader must see the ends of a command."""
    return re.sub(r"`([^` ]+)`", r"\1", text)


def wrapped(text: str, width: int, first: str = "", indent: str = "") -> list[str]:
    """The lines of a paragraph; a word that is wider than a line has one of its own.

    A `command` is broken only if it is wider than a line.
    """
    marked = re.sub("`[^`]+`", lambda match: unbroken(match[0]), " ".join(re.split(r"[ \t\n]+", text.strip())))
    words = [word if len(indent) + len(word) <= width else word.replace(NO_BREAK, " ") for word in marked.split(" ")]
    lines = textwrap.wrap(
        " ".join(words),
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(NO_BREAK, " ") for line in lines]


def fitting(columns: Iterable[Column], width: int) -> tuple[list[Column], int]:
    """The columns that fit a width in their order, and the gap between them.

    Of columns with something to say, the lowest ranks come first. If one of the ranks that every reader needs does not
    fit, all of higher rank are left out with it.
    """
    told = [column for column in columns if not column.is_empty]
    waiting = [(form.rank, place, form) for place, column in enumerate(told) for form in _forms(column)]
    chosen: dict[int, Column] = {}
    for rank, place, form in sorted(waiting, key=lambda column: column[:2]):
        others = [column for other, column in chosen.items() if other != place]
        if rank == 0 or _width([*others, form], 1) <= width:
            chosen[place] = form
        elif rank <= ESSENTIAL and place not in chosen:
            break
    shown = [chosen[place] for place in sorted(chosen)]
    return shown, 2 if _width(shown, 2) <= width else 1


def _forms(column: Column | None) -> Iterator[Column]:
    """The column, then its wider forms."""
    while column is not None:
        yield column
        column = column.wider


def _width(columns: Sequence[Column], gap: int) -> int:
    return sum(map(_letters, columns)) + gap * (len(columns) - 1)


def print_table(console: Console, table: Table) -> None:
    """Print one line a row, below a line of headers, with a heading above its rows, and how to read what is shown."""
    shown, gap = fitting(map(_named, table.columns), console.width)
    if not shown:
        return
    headers = [column.header.split("\n") for column in shown]
    height = max(map(len, headers))
    for line in zip(*([""] * (height - len(header)) + header for header in headers), strict=True):
        _print_cells(console, shown, gap, line, "bold")
    rule = "─" if has_symbols(console) else "-"
    console.print(Text(rule * _width(shown, gap), "dim"), soft_wrap=True)
    for number, cells in enumerate(zip(*(column.cells for column in shown), strict=True)):
        if heading := table.headings.get(number):
            if number:
                console.print()
            say(console, heading, "italic")
        _print_cells(console, shown, gap, cells)
    if note := table.note([text for column in shown for text in (column.header, *column.cells)]):
        say(console, note.translate({} if has_symbols(console) else ASCII), "dim")


def _print_cells(console: Console, columns: Sequence[Column], gap: int, cells: Iterable[str], style: str = "") -> None:
    """Print a line; blanks at its end are left out, so that nothing is wider than it looks."""
    letters = {} if has_symbols(console) else ASCII
    line = Text()
    for column, cell in zip(columns, cells, strict=True):
        blanks = " " * (_letters(column) - len(cell))
        line.append(blanks if column.is_number else "")
        line.append(cell.translate(letters), style or STYLES[column.tones.get(cell, column.tone)])
        line.append(("" if column.is_number else blanks) + " " * gap)
    line.rstrip()
    console.print(line, soft_wrap=True)


def _named(column: Column) -> Column:
    """The column as a terminal shows its names."""
    wider, tones = column.wider, {named(cell): tone for cell, tone in column.tones.items()}
    return replace(column, cells=list(map(named, column.cells)), tones=tones, wider=wider and _named(wider))


def _letters(column: Column) -> int:
    """The letters of a column's longest line."""
    return max(len(line) for text in (column.header, *column.cells) for line in (text.splitlines() or [""]))
