"""The last screen of a run: its problem, a table of one line a rung, and three lines to go on from."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from rich.console import Console

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.energy import how_to_read_energy, joules, to_accuracy, why_none
from reports.facts.launch_regimes import change_in_words
from reports.facts.ratios import Ratio
from reports.facts.run_table import Row, disturbed_in_words, heading, networks_in_words, skipped_in_words
from reports.facts.warnings import not_made_in_words
from reports.terminal.conclusion import print_conclusion
from reports.terminal.console_layout import STATUS_STYLE, Column, fitting, has_symbols, print_table, say, standard
from reports.terminal.recorded import nearest_recorded, print_recorded
from reports.views.run_view import RunView, run_view

FROM, BEST = "x of\nfrom", "x of\nbest"  # headers
ABOUT = "≈", "~"  # before a ratio that is within the noise; the second one is ASCII
UNDECIDED = "passed?"  # its style in `STATUS_STYLE`
STAR = "*"  # beside a time, or after its first remark: more remarks than have room
REMARKS = {
    "throttled": "the GPU slowed itself down",
    "disturbed": "other work ran beside it",
    "shortened": "fewer epochs, to save time (--budget)",
    "expected to lose": "by a model of recorded runs",
}
MOST_REASONS = 3  # lines on stages that failed or crashed; the report has all of them


def print_results(
    results: Results, folder: Path | None = None, console: Console | None = None, *, recorded: Path | None = None
) -> None:
    """Print a run; one without a GPU is followed by the nearest run in the folder `recorded`, if that is given."""
    console = standard(console)
    console.print()
    say(console, heading(results, explained=True), "bold")
    run = run_view(results)
    for notice in run.loud:
        say(console, f"!!! {notice}", "bold white on red")
    if skipped := {name: row.reason for row in run.not_passed("skipped") for name in row.names}:
        say(console, skipped_in_words(skipped, len(results.stages)))
    _print_broken(run, console)
    shown = [row for row in run.rows if row.stage.status != "skipped"]
    columns = _columns(results, shown, console)
    if shown:
        console.print()
        print_table(console, columns, _headings(shown))
        if how := _how_to_read(shown, fitting(columns, console.width)[0]):
            say(console, how, "dim")
        if several := networks_in_words(results):
            say(console, several)
        for sentence in filter(None, (how_to_read_energy(results), why_none(results))):
            say(console, sentence, "dim")
        for sentence in not_made_in_words(results):
            say(console, sentence, "yellow")
    example = nearest_recorded(results, recorded) if recorded else None
    if example is not None:
        print_recorded(results, *example, console)
    print_conclusion(results, folder, example, console)


def _print_broken(run: RunView, console: Console) -> None:
    """A line for each reason why stages failed or crashed."""
    broken = run.not_passed("failed", "crashed")
    lines = [f"{numbers.brief(stage.names)} {stage.status}: {stage.reason}" for stage in broken]
    if (more := len(lines) - MOST_REASONS) > 0:
        lines[MOST_REASONS:] = [f"{numbers.count(more, 'more reason')} in the report."]
    for line in lines:
        say(console, line, "bold red", first="! ")


def _headings(shown: list[Row]) -> dict[int, str]:
    """The heading of each block but the ladder's, by the number of its first row."""
    headings = {}
    for block, members in groupby(enumerate(shown), key=lambda pair: pair[1].block):
        if block:
            headings[next(members)[0]] = block
    return headings


def _columns(results: Results, shown: list[Row], console: Console) -> list[Column]:
    """Every column, in the order of the table; the rank tells which of them a narrow terminal keeps."""
    target = results.settings.target_accuracy
    about = ABOUT[0] if has_symbols(console) else ABOUT[1]
    of_row = list(map(remarks, shown))
    full = Column("", [", ".join(cells.values()) for cells in of_row], 15, style="yellow")
    first = [f"{next(iter(cells), '')}{STAR * (len(cells) > 1)}" for cells in of_row]
    brief = Column("", first, 2, style="yellow", wider=full)
    starred = Column("", [STAR if cells else "" for cells in of_row], 0, style="yellow", wider=brief)
    checked, in_words = ([_checked(row, words) for row in shown] for words in (False, True))
    styles = {**dict.fromkeys((*checked, *in_words), STATUS_STYLE[UNDECIDED]), **STATUS_STYLE}

    def column(header: str, cells: list[str], rank: int, *, left: bool = False, style: str = "") -> Column:
        return Column(header, cells, rank, right=not left, style=style)

    return [
        column("rung", [row.name for row in shown], 0, left=True),
        column("from", [row.stage.below or "" for row in shown], 4, left=True, style="dim"),
        column("us/step", [numbers.microseconds(row.step_us) for row in shown], 0, style="bold"),
        starred,
        column("us a\nnetwork", [_of_several(row.network_us) for row in shown], 0),
        column("learned best", [row.learned_best for row in shown], 2, left=True),
        column(FROM, [_ratio(row.versus_parent, about) for row in shown], 1),
        column(BEST, [_ratio(row.lead.ratio if row.lead else None, about if _best(row) else "") for row in shown], 5),
        Column("checked", checked, 3, styles=styles, wider=Column("checked", in_words, 7, styles=styles)),
        column("what it changes", [change_in_words(row.stage) for row in shown], 6, left=True, style="dim"),
        column("best reference", [_best(row) for row in shown], 8, left=True, style="dim"),
        column("J/epoch", [_joules(row.stage) for row in shown], 2),
        column(f"to {numbers.share(target)}" if target else "", [_reached(row.stage, target) for row in shown], 2),
        column("accuracy", [numbers.percent(row.test_accuracy) for row in shown], 9),
        column("ms/epoch\n(min-max)", [numbers.spread_milliseconds(row.epoch_s) for row in shown], 10),
        column("launches\na step", [numbers.per_step(row.launches_per_step) for row in shown], 11),
        column("x of\nits floor", [numbers.ratio(row.times_floor) for row in shown], 12),
        column("memory", [numbers.memory(row.gpu_memory_mib) for row in shown], 13),
        column("prepare", [numbers.seconds(row.prepare_s) for row in shown], 14),
    ]


def remarks(row: Row) -> dict[str, str]:
    """Why a time is to be read with care, in a word and in full: `disturbed`, `1 of 2 disturbed`."""
    if row.step_us is None:
        return {}
    told = {"throttled": "throttled"} if row.throttled else {}
    if disturbed := disturbed_in_words(row.stage):
        told["disturbed"] = disturbed
    if row.shortened:
        told["shortened"] = f"shortened to {row.shortened}"
    if row.stage.expected and row.stage.expected.remark:
        told["expected to lose"] = row.stage.expected.remark
    return told


def _checked(row: Row, in_words: bool) -> str:
    """The status; marked if rounding decides a check that the stage passed, or some checks were not made."""
    stage = row.stage
    open_ones = stage.status == "passed" and any(check.is_undecided for check in stage.checks)
    not_made = row.verdict.removeprefix(stage.status) if in_words else f" -{stage.not_made}"
    return f"{UNDECIDED if open_ones else stage.status}{not_made if stage.not_made else ''}"


def _of_several(us: float | None) -> str:
    """A network's share of a step; empty where one trains, so that no column shows it."""
    return numbers.microseconds(us) if us is not None else ""


def _joules(stage: StageResult) -> str:
    """An epoch's energy; empty where none was measured, so that no column shows it."""
    return joules(stage.energy.joules) if stage.energy is not None else ""


def _reached(stage: StageResult, target: float | None) -> str:
    """The time to the accuracy that the run names; empty where it names none."""
    reached = to_accuracy(stage, target)
    return reached.text if reached else numbers.MISSING * (target is not None)


def _ratio(ratio: Ratio | None, about: str = "") -> str:
    """A ratio, marked if it is within the noise."""
    if ratio is None:
        return numbers.MISSING
    return f"{about if ratio.is_noise else ''}{numbers.ratio(ratio.times)}"


def _best(row: Row) -> str:
    """The reference that a row's lead is taken over, unless it is the row itself."""
    return row.lead.reference.name if row.lead and row.lead.reference.name != row.name else ""


def _how_to_read(shown: list[Row], columns: list[Column]) -> str:
    """The meaning of the columns and marks that are shown."""
    headers = {column.header for column in columns}
    told = [cell for column in columns for cell in column.cells]
    of_row = [list(remarks(row)) for row in shown]
    said = {word for words in of_row for word in words}
    star = f"{STAR} " if STAR in told else ""
    others = [word for word in REMARKS if any(word in words[1:] for words in of_row)]
    parts = ["x of: times as fast"] if headers & {FROM, BEST} else []
    parts += ["best: the fastest reference as exact"] if BEST in headers else []
    parts += [f"{mark}: within the noise" for mark in ABOUT if any(cell.startswith(mark) for cell in told)]
    if any(cell.startswith(UNDECIDED) for cell in told):
        parts.append(f"{UNDECIDED}: rounding decides some checks, as its controls show; the report names them")
    parts += [f"{star}{word}: {meaning}" for word, meaning in REMARKS.items() if word in said]
    if any(cell.endswith(STAR) and cell != STAR for cell in told):
        parts.append(f"{STAR}: also {' or '.join(others)}")
    return "; ".join(parts) + "." if parts else ""
