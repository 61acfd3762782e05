"""A screen as a Markdown document, with its pictures in the folder `figures` beside it."""

from __future__ import annotations

from collections.abc import Iterator

from reports.facts.numbers import line
from reports.markdown.tables import bullets, folded, laid_out, picture, warning_box
from reports.screens.blocks import Block, Code, Figure, Heading, Screen, Sentences, Table, in_document

FENCE = "````"  # longer than any fence in a program's docstrings


def markdown(screen: Screen) -> str:
    """The document."""
    told = (text for block in in_document([*screen.warnings, *screen.blocks]) for text in _block(block))
    blocks = [f"# {line(screen.title)}", line(screen.origin), *told]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"## {line(block.text)}"
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
        program = "\n".join([f"{FENCE}{block.language}", *block.lines, FENCE])
        yield from folded(line(block.title).replace("`", ""), [program]) if block.is_folded else [program]
