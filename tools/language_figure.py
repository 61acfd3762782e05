"""The figure of docs/languages.md: for each operation a bar a language, from the runs of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from reports.figures.canvas import Canvas
from reports.figures.style import PIXELS, Colour

COLOURS: dict[str, Colour] = {"CUDA C++": "gemm", "Triton": "update", "PyTorch": "reference", "CuTe": "softmax"}
TOP, ROW, GAP, HEAD, FOOT = 72, 22, 16, 26, 24  # pixels
LEFT, RIGHT = 150, 740  # the axis; the longest bar's time stands on its right


class LanguageBar(NamedTuple):
    """A rung in one language."""

    operation: str
    language: str
    rung: str
    step_us: float


def figure(networks: Mapping[str, Sequence[LanguageBar]], machine: str) -> str:
    """SVG text: a panel a network, whose bars begin at 0."""
    title = "The same operation in several languages: us a step"
    told = "; ".join(f"{bar.rung} {bar.step_us:.2f}" for bars in networks.values() for bar in bars)
    height = (
        TOP + FOOT + sum(HEAD + sum(ROW + GAP * begins for _, begins in _grouped(bars)) for bars in networks.values())
    )
    canvas = Canvas(PIXELS, height, f"{title}, {machine}", f"Microseconds a training step: {told}.")
    canvas.text(12, 24, title, look="bold large")
    canvas.text(
        12, 44, f"a whole step, batch 128, float32, {machine}; pairs differ in one operation's language", "faint"
    )
    top = float(TOP)
    for name, bars in networks.items():
        canvas.text(12, top, name, look="bold")
        longest = max(bar.step_us for bar in bars)
        for bar, begins in _grouped(bars):
            if begins:
                top += GAP
                canvas.text(LEFT, top + 4, bar.operation, "faint", look="small")
            width = bar.step_us / longest * (RIGHT - LEFT)
            colour = next(colour for language, colour in COLOURS.items() if bar.language.startswith(language))
            canvas.text(LEFT - 10, top + 20, bar.rung, anchor="end", look="mono small")
            canvas.rectangle(LEFT, top + 8, width, 15, colour)
            canvas.text(LEFT + width + 6, top + 20, f"{bar.step_us:.2f}", look="bold small")
            canvas.text(LEFT + 6, top + 20, bar.language, "paper", look="small")
            top += ROW
        top += HEAD
    return canvas.svg()


def _grouped(bars: Sequence[LanguageBar]) -> Iterator[tuple[LanguageBar, bool]]:
    """Each bar, and whether it is the first of its operation."""
    for index, bar in enumerate(bars):
        yield bar, not index or bars[index - 1].operation != bar.operation
