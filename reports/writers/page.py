"""A screen as one HTML file, for light and dark, wide and narrow windows; it sends and asks for nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from html import unescape
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from reports.screens.blocks import Block, Figure, Folded, Heading, Screen, Sentences, Table, Titled, in_document
from reports.writers.html import document, drawings, phrase, prose, template


def page(screen: Screen, file: str) -> str:
    """The page as HTML text; `file` is the record beside it."""
    return document(
        "screen.html",
        ("explorer.css", "screen.css"),
        ("theme.js",),
        title=screen.title,
        origin=screen.origin,
        file=file,
        blocks=in_html([*screen.lead, *screen.blocks]),
    )


def in_html(blocks: Iterable[Block], linked: Collection[str] = ()) -> Markup:
    """A part of a page; names between backticks that are among `linked` lead to a view of this page."""

    def told(text: str, begins: bool = False) -> Markup:
        def link(found: re.Match[str]) -> str:
            name = unescape(found[1])
            return f'<a href="#{quote(name, safe="")}">{found[0]}</a>' if name in linked else found[0]

        shown = prose(text) if begins else phrase(text)
        return Markup(re.sub("<code>([^<]+)</code>", link, shown)) if linked else shown

    def parts(block: Block) -> dict[str, Any]:
        """What the template lays out: the kind of a block and its parts."""
        known: dict[str, Any] = {"kind": type(block).__name__, "block": block, "told": told}
        if isinstance(block, Figure):
            known["drawings"] = drawings(block.draw)
        elif isinstance(block, Table):
            columns = [column.widest for column in block.columns if not column.is_empty]
            known["columns"] = columns
            known["rows"] = list(zip(*(column.cells for column in columns), strict=True))
        elif isinstance(block, Sentences):
            known["texts"] = list(map(told, block.texts))
        elif isinstance(block, Titled):
            known["text"] = told(block.text, begins=True)
        elif isinstance(block, Folded | Heading):
            known["text"] = told(block.title if isinstance(block, Folded) else block.text)
            known["inside"] = in_html(block.blocks, linked) if isinstance(block, Folded) else ""
        return known

    return Markup(template("blocks.html", blocks=[parts(block) for block in in_document(blocks)]).strip())
