"""Templates and drawings as HTML: whatever a template is given is escaped, unless it was made here."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from reports.facts.run_table import name_of, title_of
from reports.figures.canvas import Canvas, page_rules
from reports.figures.chart import PAGE, PHONE, ChartLayout

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parents[1] / "explorer"  # templates, styles and scripts
ELEMENT = r"(?=<(?:h2|details|section|table|tr|svg|pre|p|dl|li|g)\b)"


def template(name: str, **given: Any) -> str:
    """A template of this folder, filled in."""
    return _environment().get_template(name).render(given)


def document(name: str, styles: Sequence[str], scripts: Sequence[str], **given: Any) -> str:
    """A page by its template, with these files and a policy that permits no other script and no request."""
    script = "".join(map(asset, scripts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template(
        name,
        css=Markup("\n".join((page_rules(), *map(asset, styles)))),
        script=Markup(script),
        policy=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'",
        **given,
    )


def drawings(draw: Callable[[ChartLayout], Canvas]) -> list[Markup]:
    """A drawing for wide windows and one for narrow ones; once, if both are the same."""
    return both(draw(PAGE), draw(PHONE), "wide large")


def both(wide: Canvas, narrow: Canvas, look: str = "wide") -> list[Markup]:
    """The two, of which a page shows one; once, if both are the same."""
    return [drawing(wide)] if wide.inline() == narrow.inline() else [drawing(wide, look), drawing(narrow, "narrow")]


def drawing(canvas: Canvas, look: str = "") -> Markup:
    """A drawing in a frame that scrolls where the page is narrower; `look` names classes of the style sheet."""
    frame = Markup('<div class="drawing {}" role="region" tabindex="0" aria-label="{}">{}</div>')
    return frame.format(look, canvas.title, Markup(canvas.inline()))


@lru_cache(4096)  # cells of tables repeat
def phrase(text: str) -> Markup:
    """Words that continue a sentence, as reports write them: `name` becomes code, *word* is stressed."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"(?<![\w*])\*(\w[^*]*\w)\*(?![\w*])", r"<em>\1</em>", marked))


def prose(text: str) -> Markup:
    """The same for whole sentences: they begin with a capital."""
    return phrase(f"{text[:1].upper()}{text[1:]}")


@cache
def asset(name: str) -> str:
    """A file of this folder, such as the style sheet."""
    return (HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # late: a run imports this before it measures

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"phrase": phrase, "prose": prose, "shown": name_of, "titled": title_of}
    return environment


def packed(data: Any) -> str:
    """JSON data, gzipped, as base64 text, which cannot end a script element; equal data give equal text.

    Rungs' articles are alike, but farther apart than gzip looks back. So the JSON is cut before elements: its pieces
    are sorted, one a line, and the last line has their numbers in the order of the JSON.
    """
    pieces = re.split(ELEMENT, json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    numbers = {piece: number for number, piece in enumerate(sorted(set(pieces)))}
    text = "\n".join([*numbers, str([numbers[piece] for piece in pieces])])
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
