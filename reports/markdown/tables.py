"""Parts of reports and of README in markdown: tables of screens, notices, figures, plain tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath
from urllib.parse import quote

from reports.facts.numbers import line
from reports.facts.warnings import Notice
from reports.screens.blocks import Table

FIGURE_TITLES = {
    "ladder.svg": "Microseconds a training step of each rung, with an arrow from the rung that it climbs from",
    "loss_distance.svg": "Distance of each loss curve from the float64 oracle's, and its limit",
    "curves.svg": "Training loss within epochs, validation loss and accuracy, with the oracle's",
    "timelines.svg": "Three steps of every stage on one time scale",
    "waterfall.svg": "The way to the fastest rung: what each rung on it changed, part by part",
    "roofline.svg": "The rate of each rung below the measured limits of the GPU, by its traffic",
    "energy.svg": "Joules an epoch of each stage, and what the idle GPU draws in the same time",
    "memory.svg": "The parts of a step for each way to allocate its tensors",
    "data_path.svg": "The parts of a step for each way to bring its batch",
}

# Prefixes of the figures that git keeps of a recorded run, as `.gitignore` lists them; `report` draws every figure.
KEPT = ("curves", "energy", "ladder", "loss_distance", "roofline", "step_time", "waterfall")


def laid_out(block: Table) -> str:
    """A table with every column that says something; a heading is a row of its own."""
    columns = [column.widest for column in block.columns if not column.is_empty]
    rows: list[list[str]] = []
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        if heading := block.headings.get(number):
            rows.append([f"*{heading}*"] + [""] * (len(columns) - 1))
        rows.append([cell(text) for text in cells])
    header = [line(column.header) for column in columns]
    return table(header, rows, [column.is_number for column in columns])


def notice_blocks(notices: Sequence[Notice]) -> list[str]:
    """A warning box for each loud notice, a list of the others."""
    plain = [notice.text for notice in notices if not notice.loud]
    return [*(warning_box(notice.text) for notice in notices if notice.loud), *([bullets(plain)] if plain else [])]


def warning_box(text: str) -> str:
    """A notice that nobody may miss."""
    return f"> [!WARNING]\n> **{line(text)}**"


def folded(summary: str, blocks: Iterable[str]) -> list[str]:
    """Blocks below a line that a reader unfolds; empty without any."""
    inside = list(blocks)
    return [f"<details><summary>{summary}</summary>", *inside, "</details>"] if inside else []


def bullets(texts: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {line(text)}" for text in texts)


def figure_links(figures: Collection[str], folder: str) -> list[str]:
    """The drawn figures, with links relative to the folder's parent."""
    return [picture(title, f"{folder}/{name}") for name, title in FIGURE_TITLES.items() if name in figures]


def picture(title: str, path: str) -> str:
    """An image; for a figure that git does not keep of a recorded run, its path."""
    if PurePosixPath(path).name.startswith(KEPT):
        return f"![{title}]({quote(path)})"
    return line(f"Drawn where this report is written anew: `{path}`, {title[0].lower()}{title[1:]}.")


def table(header: Sequence[str], lines: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """A table of cells in markdown; `right` marks the columns that are aligned right."""
    rule = ["---:" if to_the_right else "---" for to_the_right in right or [False] * len(header)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def code(name: str) -> str:
    """A stage's name as code inside a table."""
    return cell(f"`{name}`")


def cell(text: str) -> str:
    """Text inside a table, with its bars escaped."""
    return line(text).replace("|", "\\|")
