"""A screen as a Markdown document, with its pictures in the folder `figures` beside it, and the parts of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from reports.facts.numbers import line
from reports.screens.blocks import Block, Code, Figure, Folded, Heading, Screen, Sentences, Table, Titled, in_document

FENCE = "````"  # longer than any fence in a program's docstrings


def markdown(screen: Screen) -> str:
    """The document."""
    title = [Heading(screen.title, 1)] if screen.title else []
    return in_markdown([*title, Sentences([screen.origin]), *screen.lead, *screen.blocks]) + "\n"


def in_markdown(blocks: Iterable[Block]) -> str:
    """A part of a document."""
    return "\n\n".join(filter(None, (text for block in in_document(blocks) for text in _block(block))))


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {line(block.text)}"
    elif isinstance(block, Titled):
        yield f"**{block.title}:** {line(block.text)}"
    elif isinstance(block, Sentences):
        if block.tone == "alarm":
            yield from map(warning_box, block.texts)
        elif block.is_list:
            yield bullets(block.texts)
        else:
            yield from (f"**{line(text)}**" if block.tone == "strong" else line(text) for text in block.texts)
    elif isinstance(block, Table):
        yield laid_out(block)
    elif isinstance(block, Figure):
        yield picture(block.title, f"figures/{block.file}")
    elif isinstance(block, Code):
        yield "\n".join([f"{FENCE}{block.language}", *block.lines, FENCE])
    elif isinstance(block, Folded):
        inside = [text for part in block.blocks for text in _block(part)]
        yield from (f"<details><summary>{line(block.title).replace('`', '')}</summary>", *inside, "</details>")


def laid_out(block: Table) -> str:
    """A table with every column that says something; a heading is a row of its own, and what is bad is bold."""
    columns = [column.widest for column in block.columns if not column.is_empty]
    rows: list[list[str]] = []
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        if heading := block.headings.get(number):
            rows.append([f"*{heading}*"] + [""] * (len(columns) - 1))
        rows.append([
            f"**{cell(text)}**" if column.tones.get(text, column.tone) == "bad" else cell(text)
            for text, column in zip(cells, columns, strict=True)
        ])  # fmt: skip
    header = [cell(column.header) for column in columns]
    return table(header, rows, [column.is_number for column in columns])


def warning_box(text: str) -> str:
    """A notice that nobody may miss."""
    return f"> [!WARNING]\n> **{line(text)}**"


def bullets(texts: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {line(text)}" for text in texts)


def picture(title: str, path: str) -> str:
    """An image."""
    return f"![{title}]({quote(path)})"


def table(header: Sequence[str], lines: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """A table of cells in markdown; `right` marks the columns that are aligned right."""
    rule = ["---:" if to_the_right else "---" for to_the_right in right or [False] * len(header)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def code(name: str) -> str:
    """A stage's name as code inside a table."""
    return cell(f"`{name}`")


def cell(text: str) -> str:
    """Text inside a table, with its bars escaped."""
    return line(text).replace("|", "\\|")
