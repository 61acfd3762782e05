"""A screen on a terminal: columns by rank, lines that break between words, without pictures and what is folded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from reports.screens.blocks import (
    Answers,
    Block,
    Code,
    Figure,
    Folded,
    Group,
    Heading,
    Screen,
    Sentences,
    Table,
    Titled,
    Tone,
)
from reports.writers.console import STYLES, has_symbols, named, print_link, print_table, say, say_titled

BELOW = 5  # blanks before a note
MARKS: dict[Tone, str] = {"doubtful": "! ", "bad": "! ", "alarm": "!!! "}  # of a list's items, else a dash


def write_terminal(screen: Screen, console: Console) -> None:
    """Print the screen."""
    for text, style in ((screen.title, "bold"), (screen.origin, "dim")):
        if text:
            say(console, text, style)
    for block in screen.lead:
        _write(block, console)
    write_blocks(screen.blocks, console)


def print_apart(screen: Screen, console: Console) -> None:
    """Print the screen between two lines."""
    rule = Text(("─" if has_symbols(console) else "-") * console.width, "dim")
    console.print()
    console.print(rule, soft_wrap=True)
    write_terminal(screen, console)
    console.print(rule, soft_wrap=True)


def write_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Print blocks, with an empty line above each."""
    is_below_heading = False
    for block in blocks:
        if not is_below_heading and not isinstance(block, Figure | Folded):
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
        print_table(console, block)
    elif isinstance(block, Answers):
        width = max(map(len, block.answers)) + 2
        for label, answer in block.answers.items():
            first = label.ljust(width)
            tone = block.tones.get(label, "plain")
            if isinstance(answer, Path):
                print_link(console, answer, first)
            else:
                say(console, answer, STYLES[tone], first=first)
            if note := block.notes.get(label):
                say(console, note, "dim" if tone == "quiet" else "bold", first=" " * BELOW)
    elif isinstance(block, Titled):
        say_titled(console, block.title, named(block.text))
    elif isinstance(block, Code):
        for line in block.lines:
            console.print(Text(line, "dim"), soft_wrap=True)
