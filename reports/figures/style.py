"""What all figures share: their width, their colours, their title, and how they become SVG.

The same results give the same bytes, so that a recorded figure changes only when its numbers do. Letters are drawn as
paths, since nobody knows which fonts the reader has, and the background is opaque, so that a dark page does not
swallow them.
"""

from __future__ import annotations

import io
import re
import textwrap
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ladder.records.run import Results
from reports.facts.provenance import gpu_name
from reports.facts.summary import dataset_name

WIDTH = 8.6  # inches; 826 pixels in a browser, about as wide as a README
INK, FAINT, BACKGROUND = "#222222", "#6e6e6e", "#ffffff"
# Okabe and Ito's palette, which tells its colours apart for every common kind of colour blindness.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLE = {
    "svg.hashsalt": "optimisation-ladder",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def tidy(axes: Axes, grid: Literal["x", "both"]) -> None:
    """Take away what is no information, and put a faint grid behind the rest."""
    axes.set_facecolor(BACKGROUND)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def log_y(axes: Axes) -> None:
    """A logarithmic axis whose labels are plain numbers, as many as fit."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 500 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def title(figure: Figure, what: str, results: Results) -> None:
    """Say what is drawn, of which problem, on which GPU."""
    problem = results.problem
    parts = (problem.network, f"batch {problem.batch_size}", dataset_name(results), gpu_name(results))
    text = textwrap.fill(f"{what}: {', '.join(part for part in parts if part)}", 80)
    figure.suptitle(text, x=0.01, horizontalalignment="left", parse_math=False)


def svg(figure: Figure) -> str:
    """The figure as text that depends on its content alone: no date, no version of the library."""
    with mpl.rc_context(STYLE), io.StringIO() as text:
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        lines = "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
    # Clip paths are named by a hash of where the layout puts the axes, which differs in the last bit from time to time.
    names: dict[str, str] = {}
    return re.sub(r"\bp[0-9a-f]{10}\b", lambda found: names.setdefault(found[0], f"clip{len(names)}"), lines)
