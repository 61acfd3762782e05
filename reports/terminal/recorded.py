"""The recorded run that a machine without a GPU is shown, clearly apart from its own."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ladder.records.run import ProblemRecord, Results, ResultsError, all_results, load_once
from reports.facts.provenance import gpu_name
from reports.screens.conclusion import report_in
from reports.terminal.picture import print_picture
from reports.writers.console import has_symbols, print_link, say


def lacks_gpu(results: Results) -> bool:
    """Whether the run's machine has no GPU, and the run skipped stages."""
    return not gpu_name(results) and any(stage.status == "skipped" for stage in results.stages)


def nearest_recorded(results: Results, recorded: Path) -> tuple[Path, Results] | None:
    """The folder and the run, of those in `recorded`, of the same network and batch size, or of the nearest.

    None if the run had a GPU, or if there is no recorded run that can be read.
    """
    if not lacks_gpu(results):
        return None
    runs = []
    for path in all_results(recorded, "*/*"):
        with suppress(ResultsError):
            if gpu_name(run := load_once(path)):
                runs.append((path.parent, run))
    return min(runs, key=lambda near: _distance(results.problem, near[1].problem), default=None)


def _distance(own: ProblemRecord, other: ProblemRecord) -> tuple[bool, int, float]:
    """Another network is farther than another batch size, and another depth farther than other widths."""
    depth = abs(len(own.hidden) - len(other.hidden))
    widths, batches = (abs(math.log(_width(own) / _width(other))), abs(math.log(own.batch_size / other.batch_size)))
    return own.network != other.network, depth, widths + batches


def _width(problem: ProblemRecord) -> float:
    """The geometric mean of the hidden layers' widths; 1 without any."""
    return math.exp(sum(map(math.log, problem.hidden)) / max(len(problem.hidden), 1))


def print_recorded(results: Results, folder: Path, recorded: Results, console: Console) -> None:
    """Print the recorded run's picture below a line that tells it from the user's own run."""
    gpu, own, theirs = gpu_name(recorded), results.problem, recorded.problem
    rule = "─" if has_symbols(console) else "-"
    console.print()
    console.print(Text(rule * console.width, "dim"), soft_wrap=True)
    say(console, f"Recorded on an {gpu}, not on this machine: {theirs.network}, batch {theirs.batch_size}", "bold")
    if (own.network, own.batch_size) != (theirs.network, theirs.batch_size):
        say(console, f"The nearest recorded run to your {own.network}, batch {own.batch_size}.")
    print_picture(recorded, console)
    print_link(console, report_in(folder), "Its report: ")
    console.print(Text(rule * console.width, "dim"), soft_wrap=True)
