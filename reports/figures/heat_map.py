"""The heat map of `tune`: the time of each launch shape, for every kernel and size."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Patch, Rectangle

from ladder.records.tuning import TriedShape, TunedKernel, TuningRecord
from reports.facts import numbers
from reports.figures.style import BACKGROUND, CHOSEN, FAINT, FONTS, INK, ON_DEEP, ON_PALE, THEME, WIDTH

# The colours from dark to pale, each up to this multiple of a panel's fastest time.
STEPS = ((1.05, "#08306b"), (1.25, "#2171b5"), (1.5, "#6baed6"), (2.0, "#9ecae1"), (4.0, "#d0e1f2"))
SLOWEST, LEFT_OUT = "#f3f6fa", "#e2e2e2"
WHITE_ON = ("#08306b", "#2171b5")
ROW, AROUND = 0.2, 0.95  # inches: a line of cells, and a panel's title and labels
WIDE = 5  # cells across; a panel with more takes half of the width, others a third

STYLE = {
    "svg.hashsalt": "optimisation-ladder",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # part of matplotlib, so it is the same everywhere
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def heat_map(record: TuningRecord) -> Figure:
    """A panel for each kernel and size, wide ones first: block down, tile across, microseconds in each cell.

    A solid frame marks the chosen shape, a broken one the fixed shape.
    """
    rows = list(_rows(record.kernels))
    heights = [AROUND + ROW * max(len(_labels(kernel)[0]) for kernel in row) for row in rows]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.3 + sum(heights)), layout="constrained", facecolor=BACKGROUND)
        grid = GridSpec(len(rows), 6, figure, height_ratios=heights)
        for place, row in enumerate(rows):
            width = 3 if _is_wide(row[0]) else 2
            for column, kernel in enumerate(row):
                _panel(figure.add_subplot(grid[place, column * width : (column + 1) * width]), kernel)
        figure.legend(
            handles=list(_keys()), loc="outside lower center", ncols=5, frameon=False, fontsize=8, handlelength=1.6
        )
        subject = (f"{record.network}, batch {record.batch_size}", record.gpu)
        text = textwrap.fill(f"us of a launch by its shape: {', '.join(filter(None, subject))}", 80)
        figure.suptitle(text, x=0.01, horizontalalignment="left", parse_math=False)
    return figure


def _is_wide(kernel: TunedKernel) -> bool:
    return len(_labels(kernel)[1]) > WIDE


def _rows(kernels: Sequence[TunedKernel]) -> Iterator[list[TunedKernel]]:
    """Rows of two wide panels, then rows of three others."""
    for is_wide, count in ((True, 2), (False, 3)):
        some = [kernel for kernel in kernels if _is_wide(kernel) == is_wide]
        for begin in range(0, len(some), count):
            yield some[begin : begin + count]


def _labels(kernel: TunedKernel) -> tuple[list[str], list[str]]:
    """The labels down and across, sorted by their numbers."""
    down, across = {shape.down for shape in kernel.tried}, {shape.across for shape in kernel.tried}
    return sorted(down, key=_numbers), sorted(across, key=_numbers)


def _numbers(label: str) -> list[int]:
    return [int(word) for word in label.split() if word.isdigit()]


def _panel(axes: Axes, kernel: TunedKernel) -> None:
    down, across = _labels(kernel)
    fastest = min(shape.time_us.median for shape in kernel.tried if shape.time_us)
    for index, shape in enumerate(kernel.tried):
        at = (across.index(shape.across) - 0.5, down.index(shape.down) - 0.5)
        colour, hatch = _colour(shape, fastest)
        axes.add_patch(Rectangle(at, 1, 1, facecolor=colour, edgecolor=BACKGROUND, linewidth=0.8, hatch=hatch))
        text = numbers.microseconds(shape.time_us.median) if shape.time_us else "-"
        ink = ON_DEEP if colour in WHITE_ON else ON_PALE
        centre = (at[0] + 0.5, at[1] + 0.5)
        axes.text(*centre, text, size=6.5, color=ink, ha="center", va="center_baseline", in_layout=False)
        if index in (0, kernel.chosen):
            axes.add_patch(_frame(at, chosen=index == kernel.chosen))
    axes.set_xlim(-0.55, len(across) - 0.45)
    axes.set_ylim(len(down) - 0.45, -0.55)
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(down)), down)
    axes.tick_params(length=0, labelsize=7)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(kernel.axes[1], fontsize=7.5, color=FAINT)
    axes.set_ylabel(kernel.axes[0], fontsize=7.5, color=FAINT)
    title = textwrap.fill(f"{kernel.kernel}\n{kernel.sizes}", 46, replace_whitespace=False)
    axes.set_title(title, fontsize=8.5, loc="left", parse_math=False)


def _colour(shape: TriedShape, fastest: float) -> tuple[str, str | None]:
    """A cell's colour, and a hatch if it has no time."""
    if shape.time_us is None:
        return LEFT_OUT, "////"
    times = shape.time_us.median / fastest
    return next((colour for limit, colour in STEPS if times <= limit), SLOWEST), None


def _frame(at: tuple[float, float], *, chosen: bool) -> Rectangle:
    colour, width, line = (CHOSEN, 2.0, "-") if chosen else (ON_PALE, 1.2, (0, (2, 1.5)))
    return Rectangle(
        (at[0] + 0.04, at[1] + 0.06),
        0.92,
        0.88,
        fill=False,
        edgecolor=colour,
        linewidth=width,
        linestyle=line,
        zorder=3,
    )


def _keys() -> Iterator[Patch]:
    """The legend of colours and frames."""
    for limit, colour in STEPS:
        yield Patch(facecolor=colour, label=f"up to {limit:g}x the fastest")
    yield Patch(facecolor=SLOWEST, edgecolor=FAINT, linewidth=0.5, label="slower")
    yield Patch(facecolor=LEFT_OUT, edgecolor=BACKGROUND, hatch="////", label="left out")
    yield Patch(facecolor=BACKGROUND, edgecolor=CHOSEN, linewidth=2.0, label="chosen")
    yield Patch(facecolor=BACKGROUND, edgecolor=INK, linewidth=1.2, linestyle=(0, (2, 1.5)), label="fixed")


def svg(figure: Figure, description: str = "") -> str:
    """The figure as SVG text, with a title and a description for screen readers and colours for dark pages."""
    with mpl.rc_context(STYLE), io.StringIO() as text:
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        lines = "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
    # Clip paths are named by a hash of the axes' places, whose last bit may differ between runs.
    names: dict[str, str] = {}
    lines = re.sub(r"\bp[0-9a-f]{10}\b", lambda found: names.setdefault(found[0], f"clip{len(names)}"), lines)
    lines = re.sub(r"'DejaVu Sans'[^;\"]*", FONTS, lines)
    subject = escape(" ".join(figure.get_suptitle().split()))
    head = f"<title>{subject}</title>\n <desc>{escape(description or figure.get_suptitle())}</desc>\n"
    style = f"<style>@media (prefers-color-scheme: dark) {{\n{_dark()}\n}}</style>\n"
    return re.sub(r"(<svg\b[^>]*>\n)", lambda found: f"{found[1]} {head} {style}", lines, count=1)


def _dark() -> str:
    """Rules that replace each light colour of an inline style; text without a colour is black."""
    pairs = dict(reversed(THEME.values()))
    pairs["#000000"] = THEME["ink"][1]
    rules = [
        f'[style*="{what}: {light}"]{{{what}:{dark} !important}}'
        for light, dark in pairs.items()
        for what in ("fill", "stroke")
    ]
    return "\n".join([f'text:not([style*="fill"]){{fill:{THEME["ink"][1]}}}', *rules])
