"""A screen on a terminal: columns by rank, lines that break between words. Pictures and folded code are elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from reports.screens.blocks import Answers, Block, Code, Column, Figure, Group, Heading, Screen, Sentences, Table, Tone
from reports.terminal import console_layout
from reports.terminal.console_layout import fitting, has_symbols, named, print_link, print_table, say

STYLES: dict[Tone, str] = {
    "plain": "", "strong": "bold", "quiet": "dim", "good": "green", "doubtful": "yellow", "bad": "bold red",
    "alarm": "bold white on red",
}  # fmt: skip
ASCII = str.maketrans("≈─", "~-")  # for a console without symbols
MARKS: dict[Tone, str] = {"bad": "! ", "alarm": "!!! "}  # of a list's items, else a dash


def write_terminal(screen: Screen, console: Console) -> None:
    """Print the screen."""
    for text, style in ((screen.title, "bold"), (screen.origin, "dim")):
        if text:
            say(console, text, style)
    for warning in screen.warnings:
        _write(warning, console)
    write_blocks(screen.blocks, console)


def write_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Print blocks, with an empty line above each."""
    is_below_heading = False
    for block in blocks:
        if not is_below_heading and not isinstance(block, Figure | Code):
            console.print()
        is_below_heading = isinstance(block, Heading)
        for one in block.blocks if isinstance(block, Group) else [block]:
            _write(one, console)


def _write(block: Block, console: Console) -> None:
    if isinstance(block, Heading):
        say(console, block.text, "bold")
    elif isinstance(block, Sentences):
        first = MARKS.get(block.tone, "- ") if block.is_list else ""
        for text in block.texts:
            say(console, named(text), STYLES[block.tone], first=first)
    elif isinstance(block, Table):
        letters = {} if has_symbols(console) else ASCII
        shown, _ = fitting((_column(column, {}) for column in block.columns), console.width)
        print_table(console, (_column(column, letters) for column in block.columns), block.headings)
        if note := block.note([text for column in shown for text in (column.header, *column.cells)]):
            say(console, note.translate(letters), "dim")
    elif isinstance(block, Answers):
        width = max(map(len, block.answers)) + 2
        for label, answer in block.answers.items():
            first = label.ljust(width)
            print_link(console, answer, first) if isinstance(answer, Path) else say(console, answer, first=first)
    elif isinstance(block, Code) and not block.is_folded:
        for line in block.lines:
            console.print(Text(line, "dim"), soft_wrap=True)


def _column(column: Column, letters: Mapping[int, int]) -> console_layout.Column:
    """The same column with the console's styles and letters."""
    return console_layout.Column(
        column.header,
        [cell.translate(letters) for cell in column.cells],
        column.rank,
        right=column.is_number,
        style=STYLES[column.tone],
        styles={cell: STYLES[tone] for cell, tone in column.tones.items()},
        wider=_column(column.wider, letters) if column.wider is not None else None,
    )
