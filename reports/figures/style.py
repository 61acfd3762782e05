"""The shared parts of all figures: width, colours, title, and the rendering as SVG.

The same results give the same bytes, so a recorded figure changes only with its numbers. Text is drawn as paths,
because readers have different fonts, and the background is opaque to be readable on a dark page.
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

from ladder.records.profile import Kind
from ladder.records.run import Results
from reports.facts.provenance import gpu_name
from reports.facts.summary import dataset_name

WIDTH = 8.6  # inches; 826 pixels in a browser, about the width of a README
INK, FAINT, BACKGROUND = "#222222", "#6e6e6e", "#ffffff"
# Okabe and Ito's palette: its colours differ for every common kind of colour blindness.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
RUNG, REFERENCE = PALETTE[0], PALETTE[4]
ORACLE = "#c8c8c8"
KIND_COLOURS: dict[Kind, str] = {  # by a kernel's kind, which the profile derives from its name
    "gemm": "#0072b2",
    "layer": "#56b4e9",
    "softmax": "#cc79a7",
    "update": "#009e73",
    "fused": "#6a3d9a",
    "copy": "#222222",
    "launch": "#e8a33d",
    "wait": "#f3cdb5",
    "other": "#9a9a9a",
}
PART_COLOURS = {  # by the part of a step, as `reports.facts.time_breakdown` names it
    "kernels": KIND_COLOURS["gemm"],
    "copies": KIND_COLOURS["copy"],
    "between queued kernels": KIND_COLOURS["layer"],
    "host launching": KIND_COLOURS["launch"],
    "host waiting": "#d55e00",
}
NEAREST = 1e-10  # smaller relative distances are drawn here: a log axis has no zero
STYLE = {
    "svg.hashsalt": "optimisation-ladder",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # part of matplotlib, so it is the same everywhere
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def tidy(axes: Axes, grid: Literal["x", "both"]) -> None:
    """Remove the frame at the top and the right, and put a faint grid behind the data."""
    axes.set_facecolor(BACKGROUND)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def log_y(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers as labels."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 500 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def title(figure: Figure, subject: str, results: Results) -> None:
    """Set the title: the subject, the problem and the GPU."""
    problem = results.problem
    parts = (problem.network, f"batch {problem.batch_size}", dataset_name(results), gpu_name(results))
    text = textwrap.fill(f"{subject}: {', '.join(part for part in parts if part)}", 80)
    figure.suptitle(text, x=0.01, horizontalalignment="left", parse_math=False)


def svg(figure: Figure) -> str:
    """The figure as SVG text that depends on its content alone: no date, no version of the library."""
    with mpl.rc_context(STYLE), io.StringIO() as text:
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        lines = "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
    # Clip paths are named by a hash of the axes' places, whose last bit may differ between runs.
    names: dict[str, str] = {}
    return re.sub(r"\bp[0-9a-f]{10}\b", lambda found: names.setdefault(found[0], f"clip{len(names)}"), lines)
