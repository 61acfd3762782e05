"""Comparisons of runs as text for the terminal, as markdown, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from reports.compare.many_runs import MachineCell, Machines
from reports.compare.many_studies import Studies
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.numbers import line
from reports.facts.two_runs import Comparison, StageVerdict, Verdict, how_to_read
from reports.screens.blocks import Column, Table, Tone
from reports.writers.as_json import print_rows
from reports.writers.console import plain_table, print_table, say, standard, wide_enough
from reports.writers.markdown import bullets, cell, table

Form = Literal["text", "markdown", "json", "csv"]
TONES: dict[str, Tone] = {"FASTER": "good", "SLOWER": "bad", "AMBIGUOUS": "doubtful"}
VERDICTS: tuple[Verdict, ...] = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS")
HEADER = ("stage", "verdict", "new / base", "interval", "base us/step", "new us/step", "processes")
WIDE = 100  # a ratio from here on is shown without decimals
IN_BRACKETS = "In brackets: its time divided by its time in the first run (above 1 is slower), and the verdict."
IN_HEADINGS = "Beside a point: its fastest rung on each machine, whatever its precision."


def print_comparison(comparison: Comparison | Machines | Studies, form: Form, console: Console | None = None) -> None:
    """Print the comparison of two runs, or of several runs or studies side by side."""
    if form == "json":
        console = console or Console(highlight=False)
        raw = msgspec.json.format(msgspec.json.encode(comparison), indent=2)
        console.print(Text(raw.decode()), soft_wrap=True)
    elif form == "csv":
        print_rows(_rows_of_csv(comparison))
    elif form == "markdown":
        console = console or Console(highlight=False)
        text = markdown_of_two(comparison) if isinstance(comparison, Comparison) else markdown_of_many(comparison)
        console.print(Text(text), soft_wrap=True, end="")
    elif isinstance(comparison, Comparison):
        _print_two(comparison, standard(console))
    else:
        _print_many(comparison, wide_enough(console))


def _rows_of_csv(comparison: Comparison | Machines | Studies) -> list[dict[str, Any]]:
    """A row for each stage of two runs; of several, or of studies' points, one for each stage in each run."""
    if isinstance(comparison, Comparison):
        return [msgspec.to_builtins(stage) for stage in comparison.stages]
    parts = (
        [({}, comparison)]
        if isinstance(comparison, Machines)
        else [({"point": p.point}, p.machines) for p in comparison.points]
    )
    return [
        {**point, "name": row.name, "run": run, "machine": machine, **msgspec.to_builtins(cell)}
        for point, several in parts
        for row in several.rows
        for run, machine, cell in zip(several.runs, several.machines, row.cells, strict=True)
    ]


def markdown_of_two(comparison: Comparison) -> str:
    """Two runs as a comment for a code host: conclusion, table, warnings and notes."""
    if comparison.same_run:
        return f"{line(conclusion(comparison))}\n"
    lines = [[cell(text) for text in _words(stage)] for stage in comparison.stages if stage.verdict]
    sentences = [*comparison.warnings, *notes(comparison)]
    parts = [
        f"**{conclusion(comparison)}**",
        f"{line(comparison.new)} against {line(comparison.base)}.",
        *([table(HEADER, lines, right=_right(HEADER))] if lines else []),
        *([bullets(sentences)] if sentences else []),
        how_to_read(comparison),
    ]
    return "\n\n".join(parts) + "\n"


def markdown_of_many(comparison: Machines | Studies) -> str:
    """Several runs or studies in markdown: table and changes of order."""
    columns, rows = _table_of_many(comparison)
    cells = [[f"*{cell(text)}*" if row.is_heading else cell(text) for text in row.words] for row in rows]
    explained = IN_BRACKETS if isinstance(comparison, Machines) else f"{IN_BRACKETS} {IN_HEADINGS}"
    grid = table([cell(name) for name in columns], cells, right=_right(columns))
    return "\n\n".join((grid, explained, bullets(orders(comparison)))) + "\n"


def conclusion(comparison: Comparison) -> str:
    """The conclusion in one line, for the log of a gate."""
    if comparison.same_run:
        twice = comparison.base if comparison.base == comparison.new else f"{comparison.base} and {comparison.new}"
        return f"{twice}: the same run, so nothing to compare; name two runs."
    threshold = numbers.share(comparison.threshold)
    if comparison.regressions:
        return f"Regression beyond {threshold}: {numbers.brief(comparison.regressions)}."
    counted = [f"{len(names)} {verdict}" for verdict in VERDICTS if (names := comparison.named(verdict))]
    text = f"No regression beyond {threshold} found: {numbers.listing(counted)}."
    if comparison.undecided:
        text += f" {numbers.brief(comparison.undecided)} may hide one."
    return f"{text} Not measured again: {numbers.brief(comparison.lost)}." if comparison.lost else text


def notes(comparison: Comparison) -> list[str]:
    """The remarks on stages, one sentence for all stages that share one."""
    stages_of = grouped((remark, stage.name) for stage in comparison.stages for remark in stage.remarks)
    return [f"{numbers.brief(names)}: {remark}." for remark, names in stages_of.items()]


def orders(comparison: Machines | Studies) -> list[str]:
    """A sentence for each pair of rungs that changes order, and one for the pairs within the noise."""
    if isinstance(comparison, Studies):
        changes = [f"{point.point}: {change}" for point in comparison.points for change in _changes(point.machines)]
        within_noise = sum(point.machines.within_noise for point in comparison.points)
    else:
        changes, within_noise = _changes(comparison), comparison.within_noise
    sentences = changes or ["No pair of rungs certainly changes order."]
    if within_noise:
        pairs = numbers.count(within_noise, "pair")
        change = "changes" if within_noise == 1 else "change"
        sentences.append(f"{pairs} of rungs {change} order by the medians, but within the noise.")
    return sentences + (comparison.left_out if isinstance(comparison, Studies) else [])


def _changes(comparison: Machines) -> list[str]:
    return [
        f"{change.higher} is faster than {change.lower} in {numbers.listing(change.faster_in)}, "
        f"slower in {numbers.listing(change.slower_in)}."
        for change in comparison.order_changes
    ]


def _words(stage: StageVerdict) -> Sequence[str]:
    """A row under `HEADER`, for a stage with a verdict."""
    return (
        stage.name,
        stage.words,
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


def _print_two(comparison: Comparison, console: Console) -> None:
    if comparison.same_run:
        say(console, conclusion(comparison))
        return
    say(console, f"{comparison.new} against {comparison.base}", "bold")
    judged = [stage for stage in comparison.stages if stage.verdict]
    if judged:
        print_table(console, Table(_columns(judged)))
    for warning in comparison.warnings:
        say(console, warning, "yellow", first="! ")
    for note in notes(comparison):
        say(console, note, first="- ")
    say(console, how_to_read(comparison), "dim")
    console.print()
    say(console, conclusion(comparison), "bold red" if comparison.exit_code else "bold")


def _columns(judged: Sequence[StageVerdict]) -> list[Column]:
    """The columns under `HEADER`, of which a narrow terminal shows the first ones."""
    cells = zip(*map(_words, judged), strict=True)
    ranks = (0, 0, 0, 1, 2, 2, 3)
    return [
        Column(name.replace(" us/step", "\nus/step").replace(" / ", "\n/ "), column, rank, right, TONES)
        for name, column, rank, right in zip(HEADER, cells, ranks, _right(HEADER), strict=True)
    ]


def _print_many(comparison: Machines | Studies, console: Console) -> None:
    console.print(_rich_table(*_table_of_many(comparison)))
    say(console, IN_BRACKETS, "dim")
    if isinstance(comparison, Studies):
        say(console, IN_HEADINGS, "dim")
    for sentence in orders(comparison):
        say(console, sentence, first="- ")


class _Row(NamedTuple):
    """A row of a table side by side: a stage's times, or a point with its fastest rungs."""

    words: list[str]
    is_heading: bool = False


def _table_of_many(comparison: Machines | Studies) -> tuple[list[str], list[_Row]]:
    """Header and rows: microseconds a step, with the ratio to the first run; of studies, below a row for each point."""
    if isinstance(comparison, Studies):
        names, rows = comparison.studies, []
        for point in comparison.points:
            rows += [_Row([point.point, *point.fastest], is_heading=True), *_rows(point.machines)]
    else:
        names, rows = comparison.runs, _rows(comparison)
    return ["us/step", *(f"{name} ({machine})" for name, machine in zip(names, comparison.machines, strict=True))], rows


def _rows(comparison: Machines) -> list[_Row]:
    return [_Row([row.name, *map(_of_machine, row.cells)]) for row in comparison.rows]


def _of_machine(pair: MachineCell) -> str:
    text = numbers.microseconds(pair.step_us)
    return text if pair.ratio is None else f"{text} ({pair.ratio:.3f}, {pair.words})"


def _rich_table(header: Sequence[str], rows: Sequence[_Row]) -> RichTable:
    empty = plain_table()
    for name, right in zip(header, _right(header), strict=True):
        title = name.replace(" us/step", "\nus/step").replace(" / ", "\n/ ").replace(" (", "\n(")
        empty.add_column(Text(title), justify="right" if right else "left", overflow="fold", no_wrap=not right)
    for row in rows:
        if row.is_heading:
            empty.add_section()
        empty.add_row(*(Text(word.replace(" (", "\n(")) for word in row.words), style="italic" * row.is_heading)
    return empty
