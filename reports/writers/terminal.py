"""A screen on a terminal: columns by rank, lines that break between words. Pictures and folded code are elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from reports.screens.blocks import Block, Code, Column, Figure, Heading, Screen, Sentences, Table, Tone, flat
from reports.terminal import console_layout
from reports.terminal.console_layout import named, print_table, say

STYLES: dict[Tone, str] = {
    "plain": "", "strong": "bold", "quiet": "dim", "good": "green", "doubtful": "yellow", "bad": "bold red",
}  # fmt: skip
MARKS: dict[Tone, str] = {"bad": "! "}  # of a list's items, else a dash


def write_terminal(screen: Screen, console: Console) -> None:
    """Print the screen."""
    for text, style in ((screen.title, "bold"), (screen.origin, "dim")):
        if text:
            say(console, text, style)
    _write(screen.warnings, console)
    is_below_heading = False
    for block in screen.blocks:
        if not is_below_heading and not isinstance(block, Figure | Code):
            console.print()
        is_below_heading = isinstance(block, Heading)
        for one in flat([block]):
            _write(one, console)


def _write(block: Block, console: Console) -> None:
    if isinstance(block, Heading):
        say(console, block.text, "bold")
    elif isinstance(block, Sentences):
        first = MARKS.get(block.tone, "- ") if block.is_list else ""
        for text in block.texts:
            say(console, named(text), STYLES[block.tone], first=first)
    elif isinstance(block, Table):
        print_table(console, map(_column, block.columns), block.headings)
    elif isinstance(block, Code) and not block.is_folded:
        for line in block.lines:
            console.print(Text(line, "dim"), soft_wrap=True)


def _column(column: Column) -> console_layout.Column:
    """The same column with the console's styles."""
    return console_layout.Column(
        column.header,
        column.cells,
        column.rank,
        right=column.is_number,
        style=STYLES[column.tone],
        styles={cell: STYLES[tone] for cell, tone in column.tones.items()},
        wider=_column(column.wider) if column.wider is not None else None,
    )
