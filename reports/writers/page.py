"""A screen as one HTML file, for light and dark, wide and narrow windows; it sends and asks for nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from markupsafe import Markup

from reports.explorer.html import asset, drawing, phrase, template
from reports.figures.canvas import page_rules
from reports.figures.chart import PAGE, PHONE
from reports.screens.blocks import Block, Figure, Screen, Sentences, Table, in_document

LOOKS = (PAGE, "wide"), (PHONE, "narrow")


def page(screen: Screen, file: str) -> str:
    """The page as HTML text; `file` is the record beside it."""
    script = asset("theme.js") + asset("screen.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template(
        "screen.html",
        title=screen.title,
        origin=screen.origin,
        file=file,
        blocks=[_block(block) for block in in_document([*screen.warnings, *screen.blocks])],
        css=Markup(f"{page_rules()}\n{asset('explorer.css')}\n{asset('screen.css')}"),
        script=Markup(script),
        policy=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'",
    )


def _block(block: Block) -> dict[str, Any]:
    """What the template lays out: the kind of a block and its parts."""
    parts: dict[str, Any] = {"kind": type(block).__name__, "block": block}
    if isinstance(block, Figure):
        parts["drawings"] = [drawing(block.draw(layout), look) for layout, look in LOOKS]
    elif isinstance(block, Table):
        columns = [column.widest for column in block.columns if not column.is_empty]
        parts["columns"] = columns
        parts["rows"] = list(zip(*(column.cells for column in columns), strict=True))
    elif isinstance(block, Sentences):
        parts["texts"] = list(map(phrase, block.texts))
    return parts
