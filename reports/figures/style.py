"""The shared parts of all figures: width, colours and title.

One colour has one meaning in all figures. Each has a value for light pages and one for dark pages; a style sheet inside
the SVG lets the reader's browser choose. Text stays text.
"""

from __future__ import annotations

from typing import Literal, get_args

from ladder.records.profile import Kind
from ladder.records.run import Results
from reports.facts.provenance import gpus_name, machine_name
from reports.facts.run_table import dataset_name, named

PIXELS = 830  # the width of a figure, about that of a README
FONTS = "'DejaVu Sans',Verdana,Geneva,sans-serif"  # alike in width, so that text that fits in one fits in all
MONOSPACE = "'DejaVu Sans Mono',Menlo,Consolas,monospace"
Colour = Literal[
    "paper", "ink", "faint", "grid", "idle", "step",
    "host", "wait", "kernels", "copy", "one-kernel", "fused",
    "gemm", "layer", "softmax", "update", "other", "saved", "added", "reference", "limit", "on-pale",
]  # fmt: skip
PAPER: Colour = "paper"
# The value of each colour on a light and on a dark page; the colour-blind can tell those of kernels and parts apart.
# Those of texts have a contrast of 4.5:1 with the page.
THEME: dict[Colour, tuple[str, str]] = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#222222", "#e6edf3"),
    "faint": ("#6a6a6a", "#9aa4af"),
    "grid": ("#e4e4e4", "#2a313a"),
    "idle": ("#efefef", "#20262e"),  # a device without work
    "step": ("#c3ccd6", "#4b5663"),  # a whole step
    "host": ("#ae5f00", "#e8a33d"),  # the host launches: a call, a part of a step, a rung that launches every kernel
    "wait": ("#902b00", "#e8784a"),  # the host waits for the GPU
    "kernels": ("#44688c", "#86aed6"),  # kernels of any kind, and the rungs whose graph launches them
    "copy": ("#3d3d3d", "#b4b4b4"),
    "one-kernel": ("#6a1d79", "#cd94ff"),  # a rung of one kernel an epoch
    "fused": ("#d3b100", "#f2e26b"),  # several operations of a step in one kernel
    "gemm": ("#0072b2", "#3ba3e0"),
    "layer": ("#56b4e9", "#81dbff"),
    "softmax": ("#c080a3", "#e5b7d6"),
    "update": ("#009e73", "#11a572"),
    "other": ("#a2a796", "#7d858e"),
    "saved": ("#1a7f64", "#3fb68b"),  # time that a change takes away
    "added": ("#a3480f", "#f0883e"),
    "reference": ("#707070", "#8b949e"),  # code that is not a rung
    "limit": ("#b3261e", "#ff7b72"),  # a limit that verification sets
}
ON_PALE = "#1a1a1a"  # text inside bars whose brightness is the same on every page
RENAMED: dict[Kind, Colour] = {"launch": "host"}  # a kind whose colour has another name
OPERATION_COLOURS: dict[Kind, Colour] = {kind: RENAMED.get(kind, kind) for kind in get_args(Kind)}


def subject(results: Results) -> str:
    """The problem and the machine: `784-10, batch 128, MNIST, NVIDIA H200`."""
    problem = results.problem
    parts = (
        named(problem),
        f"batch {problem.batch_size}",
        dataset_name(problem),
        gpus_name(results) or machine_name(results),
    )
    return ", ".join(part for part in parts if part)
