"""Pieces of markdown that a report and a README are made of: the table of stages, notices, figures, plain tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from pathlib import PurePosixPath

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.numbers import line
from reports.facts.summary import Row, rows
from reports.facts.warnings import Notice

COLUMNS: dict[str, Callable[[Row], str]] = {
    "Stage": lambda row: cell(row.label),
    "What changed": lambda row: cell(row.changed),
    "Precision": lambda row: numbers.precision(row.precision),
    "ms/epoch (min-max)": lambda row: row.times,
    "us/step": lambda row: numbers.microseconds(row.step_us),
    "Cycles/step": lambda row: numbers.cycles(row.step_cycles),
    "Launches/step": lambda row: numbers.per_step(row.launches_per_step),
    "vs below": lambda row: numbers.ratio(row.versus_below),
    "vs naive": lambda row: numbers.ratio(row.versus_naive),
    "vs PyTorch": lambda row: numbers.ratio(row.versus_torch),
    "x own floor": lambda row: numbers.ratio(row.times_own_floor),
    "x physical floor": lambda row: numbers.ratio(row.times_physical_floor),
    "GPU memory": lambda row: numbers.memory(row.gpu_memory_mib),
    "Prepare": lambda row: numbers.seconds(row.prepare_s),
    "Test accuracy": lambda row: row.accuracy,
    "Checked": lambda row: cell(row.verdict),
}
REPORT_COLUMNS = tuple(COLUMNS)
CYCLE_COLUMNS = ("Cycles/step",)
FLOOR_COLUMNS = ("x own floor", "x physical floor")
IN_WORDS = {"Stage", "What changed", "Precision", "Checked"}  # to the left; numbers stand to the right
FIGURE_TITLES = {
    "epoch_time.svg": "Milliseconds an epoch, stage by stage",
    "loss_curves.svg": "Training loss by epoch, and its distance to the oracle's",
    "curves.svg": "Training loss within epochs, validation loss and accuracy, with the oracle's",
    "timelines.svg": "Three steps of every stage on one time scale",
    "waterfall.svg": "What each rung changed, part by part",
    "memory.svg": "Where a step's time goes, by how its tensors are allocated",
    "data_path.svg": "Where a step's time goes, by how it gets its batch",
}

# How the names of figures begin that git keeps of a recorded run: `.gitignore` has the same list. `report` draws all.
KEPT = ("curves.svg", "data_path", "epoch_time", "memory", "step_time")


def stage_table(results: Results, columns: Sequence[str]) -> str:
    """The table of all stages, each block but the ladder's under its heading, with these of the `COLUMNS`."""
    lines: list[list[str]] = []
    for block, members in groupby(rows(results), key=lambda row: row.block):
        if block:
            lines.append([f"*{block}*"] + [""] * (len(columns) - 1))
        lines += [[COLUMNS[name](row) for name in columns] for row in members]
    return table(columns, lines, right=[name not in IN_WORDS for name in columns])


def notice_blocks(found: Sequence[Notice]) -> list[str]:
    """Notices: a warning box for a loud one, a list for the others."""
    loud = [f"> [!WARNING]\n> **{line(notice.text)}**" for notice in found if notice.loud]
    plain = [notice.text for notice in found if not notice.loud]
    return [*loud, bullets(plain)] if plain else loud


def bullets(texts: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {line(text)}" for text in texts)


def figure_links(figures: Collection[str], folder: str) -> list[str]:
    """The figures that were drawn, by relative links into the folder."""
    return [picture(title, f"{folder}/{name}") for name, title in FIGURE_TITLES.items() if name in figures]


def picture(title: str, path: str) -> str:
    """An image, or the path of one that git does not keep of a recorded run."""
    if PurePosixPath(path).name.startswith(KEPT):
        return f"![{title}]({path})"
    return f"Drawn beside this report: `{path}`, {title[0].lower()}{title[1:]}."


def table(header: Sequence[str], lines: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """A table of cells that are markdown already; `right` says which columns are set to the right."""
    rule = ["---:" if to_the_right else "---" for to_the_right in right or [False] * len(header)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def code(name: str) -> str:
    """A stage's name inside a table: `` `cuda-graph` ``."""
    return cell(f"`{name}`")


def cell(text: str) -> str:
    """The same inside a table, where a bar would begin another cell."""
    return line(text).replace("|", "\\|")
