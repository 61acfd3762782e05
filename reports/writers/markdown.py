"""A screen as a Markdown document, with its pictures in the folder `figures` beside it."""

from __future__ import annotations

from collections.abc import Iterator

from reports.facts.numbers import line
from reports.markdown.tables import bullets, cell, folded, picture, table
from reports.screens.blocks import Block, Code, Figure, Heading, Screen, Sentences, Table, flat

FENCE = "````"  # longer than any fence in a program's docstrings


def markdown(screen: Screen) -> str:
    """The document."""
    told = (text for block in flat([screen.warnings, *screen.blocks]) for text in _block(block))
    blocks = [f"# {line(screen.title)}", line(screen.origin), *told]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"## {line(block.text)}"
    elif isinstance(block, Sentences):
        if block.is_list:
            yield bullets(block.texts)
        else:
            yield from (f"**{line(text)}**" if block.tone == "strong" else line(text) for text in block.texts)
    elif isinstance(block, Table):
        yield _table(block)
    elif isinstance(block, Figure):
        yield picture(block.title, f"figures/{block.file}")
    elif isinstance(block, Code):
        program = "\n".join([f"{FENCE}{block.language}", *block.lines, FENCE])
        yield from folded(line(block.title).replace("`", ""), [program]) if block.is_folded else [program]


def _table(block: Table) -> str:
    """A table with every column that says something; a heading is a row of its own."""
    columns = [column.widest for column in block.columns if not column.is_empty]
    rows: list[list[str]] = []
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        if heading := block.headings.get(number):
            rows.append([f"*{heading}*"] + [""] * (len(columns) - 1))
        rows.append([cell(text) for text in cells])
    header = [line(column.header) for column in columns]
    return table(header, rows, [column.is_number for column in columns])
