"""SVG written by hand: the bytes of a figure depend on its numbers alone.

Text stays text. A style sheet inside the file gives each colour a light and a dark value, and the reader's browser
chooses between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from reports.figures.style import FONTS, MONOSPACE, ON_PALE, PAPER, THEME, Colour

Anchor = Literal["start", "middle", "end"]
SHORTEST = 1e-300  # length of an axis: nothing shorter was measured
NO_FILL = "polyline{fill:none}"
BASE = f"""\
text{{font-family:{FONTS};font-size:12px}}
.mono{{font-family:{MONOSPACE}}}
.bold{{font-weight:bold}}
.small{{font-size:11px}}
.large{{font-size:15px}}
.halo{{paint-order:stroke;stroke-width:4px;stroke-linejoin:round}}
{NO_FILL}"""

ON_PALE_RULE = f".f-on-pale{{fill:{ON_PALE}}}"


class Canvas:
    """A drawing of a fixed size in pixels; y grows downwards, and later elements cover earlier ones."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height = width, height
        self.title, self.description = title, description
        self._elements: list[str] = []

    @contextmanager
    def group(self, tag: str = "g", **attributes: str) -> Iterator[None]:
        """Elements drawn within are one group, or a link if the tag is `a`; `class_` stands for `class`."""
        given = "".join(f" {name.rstrip('_').replace('_', '-')}={quoteattr(of)}" for name, of in attributes.items())
        self._elements.append(f"<{tag}{given}>")
        yield
        self._elements.append(f"</{tag}>")

    def text(
        self, x: float, y: float, words: str, colour: Colour = "ink", *, anchor: Anchor = "start", look: str = ""
    ) -> None:
        """Words, if any, with their baseline at y; `look` names classes of the style sheet: `bold`, `small`, `mono`."""
        if not words:
            return
        where = f'class="f-{colour}{" " if look else ""}{look}" x="{_px(x)}" y="{_px(y)}"'
        end = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._elements.append(f"<text {where}{end}>{escape(words)}</text>")

    def line(self, points: Sequence[tuple[float, float]], colour: Colour, *, width: float = 1, dash: str = "") -> None:
        """A line through two points or more; `dash` alternates drawn and left-out pixels."""
        places = " ".join(f"{_px(x)},{_px(y)}" for x, y in points)
        thick = f' stroke-width="{width:g}"' if width != 1 else ""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._elements.append(f'<polyline class="s-{colour}"{thick}{dashes} points="{places}"/>')

    def polygon(self, points: Iterable[tuple[float, float]], colour: Colour, *, opacity: float = 1) -> None:
        """A filled shape."""
        faded = f' opacity="{opacity:g}"' if opacity < 1 else ""
        places = " ".join(f"{_px(x)},{_px(y)}" for x, y in points)
        self._elements.append(f'<polygon class="f-{colour}"{faded} points="{places}"/>')

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: Colour,
        *,
        opacity: float = 1,
        hollow: bool = False,
    ) -> None:
        """A rectangle by its upper left corner: filled, or a frame within these bounds if hollow."""
        look = f'class="f-{colour}"'
        if hollow:
            x, y, width, height = x + 0.75, y + 0.75, max(width - 1.5, 0.5), height - 1.5
            look = f'class="f-{PAPER} s-{colour}" stroke-width="1.5"'
        faded = f' opacity="{opacity:g}"' if opacity < 1 else ""
        size = f'width="{_px(width)}" height="{_px(height)}"'
        self._elements.append(f'<rect {look} x="{_px(x)}" y="{_px(y)}" {size}{faded}/>')

    def tip(self, words: str) -> None:
        """What a browser shows where one points at the group that is being drawn."""
        self._elements.append(f"<title>{escape(words)}</title>")

    def dot(self, x: float, y: float, radius: float, colour: Colour, *, hollow: bool = False) -> None:
        """A disc, or a ring if hollow."""
        look = f'class="f-{PAPER} s-{colour}" stroke-width="1.5"' if hollow else f'class="f-{colour}"'
        self._elements.append(f'<circle {look} cx="{_px(x)}" cy="{_px(y)}" r="{radius:g}"/>')

    def inline(self) -> str:
        """The drawing as a part of a page that has `page_rules` among its styles; it may hold links."""
        box = f'viewBox="0 0 {self.width:g} {self.height:g}" style="max-width:{_px(self.width)}px"'
        is_linked = any(element.startswith("<a ") or " data-bars=" in element for element in self._elements)
        role = "group" if is_linked else "img"  # the parts of an image cannot be reached
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="{role}" aria-label={quoteattr(self.title)}>',
            f"<desc>{escape(self.description)}</desc>",
            *self._elements,
            "</svg>",
        ]
        return "".join(lines)

    def _fixed(self) -> str:
        """The rule for text inside bars, which are pale enough on every page, if there is any."""
        return f"{ON_PALE_RULE}\n" if any("f-on-pale" in element for element in self._elements) else ""

    def svg(self) -> str:
        """The drawing as a file's text."""
        size = f'width="{_px(self.width)}" height="{_px(self.height)}" viewBox="0 0 {self.width:g} {self.height:g}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={quoteattr(self.title)}>',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(self.description)}</desc>",
            f"<style>\n{BASE}\n{self._fixed()}{_rules(0)}",
            f"@media (prefers-color-scheme: dark) {{\n{_rules(1)}\n}}\n</style>",
            f'<rect class="f-{PAPER}" width="100%" height="100%"/>',
            *self._elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def round_step(length: float, most: int) -> float:
    """The least of the steps 1, 2, 5, 10, ... of which fewer than `most` fit into this length of an axis."""
    power = math.floor(math.log10(max(length, SHORTEST) / most))
    return next(step for factor in (1, 2, 5, 10, 20) if length / (step := factor * 10.0**power) < most)


def page_rules() -> str:
    """The style sheet for inline drawings: colours follow the system or `data-theme`; on paper they are light."""
    light, dark = ("".join(f"--{name}:{values[theme]};" for name, values in THEME.items()) for theme in (0, 1))
    return "\n".join(
        [
            f":root{{{light}}}",
            f"@media screen and (prefers-color-scheme: dark) {{:root:not([data-theme=light]){{{dark}}}}}",
            f"@media screen {{:root[data-theme=dark]{{{dark}}}}}",
            ON_PALE_RULE,
            NO_FILL,
            *(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in THEME),
        ]
    )


def _rules(theme: int) -> str:
    """Rules for the fills and strokes of all colours, in light (0) or dark (1)."""
    colours = {name: values[theme] for name, values in THEME.items()}
    rules = [f".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}" for name, colour in colours.items()]
    return "\n".join([*rules, f".halo{{stroke:{colours[PAPER]}}}"])


def _px(value: float) -> str:
    """Pixels to a tenth, without a trailing zero or a negative zero."""
    return f"{round(value, 1) + 0.0:g}"
