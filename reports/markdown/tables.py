"""Parts of reports and of README in markdown: the table of stages, notices, figures, plain tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from pathlib import PurePosixPath
from urllib.parse import quote

from reports.facts import numbers
from reports.facts.baselines import Lead
from reports.facts.numbers import line
from reports.facts.run_table import Row
from reports.facts.warnings import Notice

COLUMNS: dict[str, Callable[[Row], str]] = {
    "Stage": lambda row: code(row.name),
    "From": lambda row: code(row.stage.below) if row.stage.below else "",
    "us/step": lambda row: row.step,
    "us a network-step": lambda row: numbers.microseconds(row.network_us),
    "Learned best": lambda row: cell(row.learned_best),
    "x of from": lambda row: row.versus_parent.text if row.versus_parent else numbers.MISSING,
    # Only rungs are compared: a reference's own best may be another one than a rung's.
    "x of the fastest reference": lambda row: "" if row.is_reference else _brief_lead(row.lead),
    "Checked": lambda row: cell(row.verdict),
}
IN_WORDS = {"Stage", "From", "Checked", "Learned best"}  # aligned left; numbers are aligned right
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


def stage_table(shown: Iterable[Row]) -> str:
    """The table of stages; references and ablations stand under headings."""
    shown, lines = list(shown), list[list[str]]()
    columns = {name: text for name, text in COLUMNS.items() if any(text(row).strip("- ") for row in shown)}
    for block, members in groupby(shown, key=lambda row: row.block):
        if block:
            lines.append([f"*{block}*"] + [""] * (len(columns) - 1))
        lines += [[text(row) for text in columns.values()] for row in members]
    return table(list(columns), lines, right=[name not in IN_WORDS for name in columns])


def _brief_lead(lead: Lead | None) -> str:
    """A lead without its spread: `8.58x`, or `1.01x, within noise`; a dash without one."""
    if lead is None:
        return numbers.MISSING
    return lead.ratio.text if lead.ratio.is_noise else numbers.ratio(lead.ratio.times)


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
