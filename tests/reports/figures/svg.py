"""Reads an SVG figure as a browser would: its texts with their boxes, and its shapes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from functools import cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"small": 11.0, "large": 15.0}


@dataclass(frozen=True)
class Box:
    """A text with its place in pixels."""

    words: str
    left: float
    right: float
    baseline: float
    size: float

    def overlaps(self, other: Box) -> bool:
        """Whether two texts cover each other."""
        beside = self.right <= other.left or other.right <= self.left
        above = abs(self.baseline - other.baseline) >= 0.8 * max(self.size, other.size)
        return not beside and not above


def parse(text: str) -> ElementTree.Element:
    """The root of an SVG file."""
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    return root


def width_of(words: str, size: float, family: str, weight: str) -> float:
    """The width of a text."""
    return sum(_advance(letter, size, family, weight) for letter in words)


@cache
def _advance(letter: str, size: float, family: str, weight: str) -> float:
    """How much wider a text becomes by a letter; matplotlib takes a millisecond, too long for every text."""
    props = FontProperties(family=family, weight=weight)
    both = (TextPath((0, 0), words.replace("$", "S"), size=size, prop=props) for words in (f"x{letter}x", "xx"))
    wider, without = (float(path.get_extents().width) for path in both)
    return wider - without


def texts(svg: str) -> list[Box]:
    """Every text, with its width in DejaVu Sans."""
    found = []
    for one in parse(svg).iter(f"{SVG}text"):
        classes = one.get("class", "").split()
        size = next((SIZES[name] for name in classes if name in SIZES), 12.0)
        words = one.text or ""
        family = "DejaVu Sans Mono" if "mono" in classes else "DejaVu Sans"
        width = width_of(words, size, family, "bold" if "bold" in classes else "normal")
        shift = {"start": 0.0, "middle": width / 2, "end": width}[one.get("text-anchor", "start")]
        left = float(one.get("x", "nan")) - shift
        found.append(Box(words, left, left + width, float(one.get("y", "nan")), size))
    return found


def words(svg: str) -> list[str]:
    """The texts in the order in which they are drawn."""
    return [one.text or "" for one in parse(svg).iter(f"{SVG}text")]


def assert_texts_apart(svg: str) -> None:
    """Fail if a text covers another one or reaches beyond the figure."""
    root, boxes = parse(svg), texts(svg)
    width, height = float(root.get("width", "nan")), float(root.get("height", "nan"))
    for index, box in enumerate(boxes):
        assert 0 <= box.left < box.right <= width, box
        assert 0 <= box.baseline - box.size < box.baseline <= height, box
        covered = [other for other in boxes[index + 1 :] if box.overlaps(other)]
        assert not covered, (box, covered)
