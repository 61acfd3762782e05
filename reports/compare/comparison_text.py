"""Comparisons of runs as text for the terminal, as markdown, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.compare.many_runs import MachineCell, Machines
from reports.compare.many_studies import PointMachines, Studies
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.numbers import line
from reports.facts.two_runs import Comparison, StageVerdict, Verdict, how_to_read
from reports.markdown.tables import bullets, cell, table
from reports.terminal.as_json import print_rows
from reports.terminal.console_layout import Column, plain_table, print_table, say, standard, wide_enough

Form = Literal["text", "markdown", "json", "csv"]
STYLES: dict[Verdict, str] = {"FASTER": "green", "SLOWER": "red", "SAME": "", "AMBIGUOUS": "yellow"}
HEADER = ("stage", "verdict", "new / base", "interval", "base us/step", "new us/step", "processes")
WIDE = 100  # a ratio from here on is shown without decimals
IN_BRACKETS = "In brackets: its time divided by its time in the first run (above 1 is slower), and the verdict."
IN_HEADINGS = "Beside a point: its fastest rung on each machine, whatever its precision."


def print_comparison(found: Comparison | Machines | Studies, form: Form, console: Console | None = None) -> None:
    """Print the comparison of two runs, or of several runs or studies side by side."""
    if form == "json":
        console = console or Console(highlight=False)
        raw = msgspec.json.format(msgspec.json.encode(found), indent=2)
        console.print(Text(raw.decode()), soft_wrap=True)
    elif form == "csv":
        print_rows(_rows_of_csv(found))
    elif form == "markdown":
        console = console or Console(highlight=False)
        text = markdown_of_two(found) if isinstance(found, Comparison) else markdown_of_many(found)
        console.print(Text(text), soft_wrap=True, end="")
    elif isinstance(found, Comparison):
        _print_two(found, standard(console))
    else:
        _print_many(found, wide_enough(console))


def _rows_of_csv(found: Comparison | Machines | Studies) -> list[dict[str, Any]]:
    """A row for each stage of two runs; of several, or of studies' points, one for each stage in each run."""
    if isinstance(found, Comparison):
        return [msgspec.to_builtins(stage) for stage in found.stages]
    parts = [({}, found)] if isinstance(found, Machines) else [({"point": p.point}, p.machines) for p in found.points]
    return [
        {**point, "name": row.name, "run": run, "machine": machine, **msgspec.to_builtins(cell)}
        for point, several in parts
        for row in several.rows
        for run, machine, cell in zip(several.runs, several.machines, row.cells, strict=True)
    ]


def markdown_of_two(found: Comparison) -> str:
    """Two runs as a comment for a code host: conclusion, table, warnings and notes."""
    if found.same_run:
        return f"{line(conclusion(found))}\n"
    lines = [[cell(text) for text in _words(stage)] for stage in found.stages if stage.verdict]
    sentences = [*found.warnings, *notes(found)]
    parts = [
        f"**{conclusion(found)}**",
        f"{line(found.new)} against {line(found.base)}.",
        *([table(HEADER, lines, right=_right(HEADER))] if lines else []),
        *([bullets(sentences)] if sentences else []),
        how_to_read(found),
    ]
    return "\n\n".join(parts) + "\n"


def markdown_of_many(found: Machines | Studies) -> str:
    """Several runs or studies in markdown: table and changes of order."""
    columns, rows = _table_of_many(found)
    cells = [[f"*{cell(text)}*" if row.is_heading else cell(text) for text in row.words] for row in rows]
    explained = IN_BRACKETS if isinstance(found, Machines) else f"{IN_BRACKETS} {IN_HEADINGS}"
    parts = (table([cell(name) for name in columns], cells, right=_right(columns)), explained, bullets(orders(found)))
    return "\n\n".join(parts) + "\n"


def conclusion(found: Comparison) -> str:
    """The conclusion in one line, for the log of a gate."""
    if found.same_run:
        twice = found.base if found.base == found.new else f"{found.base} and {found.new}"
        return f"{twice}: the same run, so nothing to compare; name two runs."
    threshold = numbers.share(found.threshold)
    if found.regressions:
        return f"Regression beyond {threshold}: {numbers.brief(found.regressions)}."
    counted = [f"{len(names)} {verdict}" for verdict in STYLES if (names := found.named(verdict))]
    text = f"No regression beyond {threshold} found: {numbers.listing(counted)}."
    if found.undecided:
        text += f" {numbers.brief(found.undecided)} may hide one."
    return f"{text} Not measured again: {numbers.brief(found.lost)}." if found.lost else text


def notes(found: Comparison) -> list[str]:
    """The remarks on stages, one sentence for all stages that share one."""
    stages_of = grouped((remark, stage.name) for stage in found.stages for remark in stage.remarks)
    return [f"{numbers.brief(names)}: {remark}." for remark, names in stages_of.items()]


def orders(found: Machines | Studies) -> list[str]:
    """A sentence for each pair of rungs that changes order, and one for the pairs within the noise."""
    if isinstance(found, Studies):
        changes = [f"{point.point}: {change}" for point in found.points for change in _changes(point.machines)]
        within_noise = sum(point.machines.within_noise for point in found.points)
    else:
        changes, within_noise = _changes(found), found.within_noise
    sentences = changes or ["No pair of rungs certainly changes order."]
    if within_noise:
        pairs = numbers.count(within_noise, "pair")
        change = "changes" if within_noise == 1 else "change"
        sentences.append(f"{pairs} of rungs {change} order by the medians, but within the noise.")
    return sentences + (found.left_out if isinstance(found, Studies) else [])


def _changes(found: Machines) -> list[str]:
    return [
        f"{change.higher} is faster than {change.lower} in {numbers.listing(change.faster_in)}, "
        f"slower in {numbers.listing(change.slower_in)}."
        for change in found.order_changes
    ]


def _words(stage: StageVerdict) -> Sequence[str]:
    """A row under `HEADER`, for a stage with a verdict."""
    return (
        stage.name,
        stage.verdict or "",
        f"{stage.ratio:.3f}",
        f"{_end(stage.low)}-{_end(stage.high)}",
        numbers.microseconds(stage.base_us),
        numbers.microseconds(stage.new_us),
        f"{stage.base_processes}, {stage.new_processes}",
    )


def _end(ratio: float | None) -> str:
    """An end of an interval; one of few processes may be far off."""
    if ratio is None:
        return numbers.MISSING
    return f"{ratio:.3f}" if ratio < WIDE else f"{ratio:,.0f}"


def _right(header: Sequence[str]) -> list[bool]:
    """Which columns are numbers."""
    return [name not in ("stage", "verdict", "us/step") for name in header]


def _print_two(found: Comparison, console: Console) -> None:
    if found.same_run:
        say(console, conclusion(found))
        return
    say(console, f"{found.new} against {found.base}", "bold")
    judged = [stage for stage in found.stages if stage.verdict]
    if judged:
        print_table(console, _columns(judged))
    for warning in found.warnings:
        say(console, warning, "yellow", first="! ")
    for note in notes(found):
        say(console, note, first="* ")
    say(console, how_to_read(found), "dim")
    console.print()
    say(console, conclusion(found), "bold red" if found.exit_code else "bold")


def _columns(judged: Sequence[StageVerdict]) -> list[Column]:
    """The columns under `HEADER`, of which a narrow terminal shows the first ones."""
    styles: dict[str, str] = {verdict: style for verdict, style in STYLES.items() if style}
    cells = zip(*map(_words, judged), strict=True)
    ranks = (0, 0, 0, 1, 2, 2, 3)
    return [
        Column(name.replace(" us/step", "\nus/step").replace(" / ", "\n/ "), column, rank, right=right, styles=styles)
        for name, column, rank, right in zip(HEADER, cells, ranks, _right(HEADER), strict=True)
    ]


def _print_many(found: Machines | Studies, console: Console) -> None:
    console.print(_rich_table(*_table_of_many(found)))
    say(console, IN_BRACKETS, "dim")
    if isinstance(found, Studies):
        say(console, IN_HEADINGS, "dim")
    for sentence in orders(found):
        say(console, sentence, first="* ")


class _Row(NamedTuple):
    """A row of a table side by side: a stage's times, or a point with its fastest rungs."""

    words: list[str]
    is_heading: bool = False


def _table_of_many(found: Machines | Studies) -> tuple[list[str], list[_Row]]:
    """Header and rows: microseconds a step, with the ratio to the first run; of studies, below a row for each point."""
    if isinstance(found, Studies):
        names, rows = found.studies, [row for point in found.points for row in _rows_of_point(point)]
    else:
        names, rows = found.runs, _rows(found)
    return ["us/step", *(f"{name} ({machine})" for name, machine in zip(names, found.machines, strict=True))], rows


def _rows_of_point(point: PointMachines) -> list[_Row]:
    return [_Row([point.point, *point.fastest], is_heading=True), *_rows(point.machines)]


def _rows(found: Machines) -> list[_Row]:
    return [_Row([row.name, *map(_of_machine, row.cells)]) for row in found.rows]


def _of_machine(one: MachineCell) -> str:
    text = numbers.microseconds(one.step_us)
    return text if one.ratio is None else f"{text} ({one.ratio:.3f}, {one.verdict})"


def _rich_table(header: Sequence[str], rows: Sequence[_Row]) -> Table:
    empty = plain_table()
    for name, right in zip(header, _right(header), strict=True):
        title = name.replace(" us/step", "\nus/step").replace(" / ", "\n/ ").replace(" (", "\n(")
        empty.add_column(Text(title), justify="right" if right else "left", overflow="fold", no_wrap=not right)
    for row in rows:
        if row.is_heading:
            empty.add_section()
        empty.add_row(*(Text(word.replace(" (", "\n(")) for word in row.words), style="italic" * row.is_heading)
    return empty
