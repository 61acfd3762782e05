"""The screens of `compare`: two runs judged stage by stage, and several runs or studies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.many_runs import MachineCell, Machines, Studies
from reports.facts.two_runs import Comparison, StageVerdict, Verdict, how_to_read
from reports.screens.blocks import Block, Column, ColumnOf, Screen, Sentences, Table, Tone, number, table_of

VERDICTS: tuple[Verdict, ...] = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS")
TONES: dict[str, Tone] = {"FASTER": "good", "SLOWER": "bad", "AMBIGUOUS": "doubtful"}
WIDE = 100  # a ratio from here on is shown without decimals
IN_BRACKETS = "In brackets: its time divided by its time in the first run (above 1 is slower), and the verdict."
TOO_NARROW = "A wider terminal, and --format markdown, show each time divided by that of the first run."
FASTEST = "Fastest rung: of a point, whatever its precision."


def comparison_screen(comparison: Comparison) -> Screen:
    """Two runs; the conclusion comes last, where a gate's log ends."""
    said = Sentences([conclusion(comparison)], "bad" if comparison.exit_code else "strong")
    if comparison.same_run:
        lines = [Sentences([conclusion(comparison)])]
        return Screen("", "", [], comparison, "stages", lines, no_rows=conclusion(comparison).removesuffix("."))
    lead: list[Block] = [
        *_verdicts(comparison),
        Sentences(comparison.warnings, "doubtful", is_list=True),
        Sentences(notes(comparison), is_list=True),
        Sentences([how_to_read(comparison)], "quiet"),
    ]
    return Screen(_names(comparison), "", [said], comparison, "stages", lead)


def comment(comparison: Comparison) -> list[Block]:
    """Two runs as a comment for a code host; the conclusion comes first."""
    if comparison.same_run:
        return [Sentences([conclusion(comparison)])]
    remarks = [*comparison.warnings, *notes(comparison)]
    return [
        Sentences([conclusion(comparison)], "strong"),
        Sentences([f"{_names(comparison)}."]),
        *_verdicts(comparison),
        *([Sentences(remarks, is_list=True)] if remarks else []),
        Sentences([how_to_read(comparison)]),
    ]


def _names(comparison: Comparison) -> str:
    return f"{comparison.new} against {comparison.base}"


def _verdicts(comparison: Comparison) -> list[Table]:
    judged = [stage for stage in comparison.stages if stage.verdict]
    columns: list[ColumnOf[StageVerdict]] = [
        ColumnOf("stage", lambda stage: stage.name),
        ColumnOf("verdict", lambda stage: stage.words, tones=TONES),
        number("new\n/ base", lambda stage: f"{stage.ratio:.3f}"),
        number("interval", lambda stage: f"{_end(stage.low)}-{_end(stage.high)}", 1),
        number("base\nus/step", lambda stage: numbers.microseconds(stage.base_us), 2),
        number("new\nus/step", lambda stage: numbers.microseconds(stage.new_us), 2),
        number("processes", lambda stage: f"{stage.base_processes}, {stage.new_processes}", 3),
    ]
    return [table_of(judged, columns)] if judged else []


def _end(ratio: float | None) -> str:
    """An end of an interval; one of few processes may be far off."""
    if ratio is None:
        return numbers.MISSING
    return f"{ratio:.3f}" if ratio < WIDE else f"{ratio:,.0f}"


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


def machines_screen(compared: Machines | Studies) -> Screen:
    """Several runs, or each point of several studies: microseconds per step, with the ratio to the first run."""
    names, cells, headings = list[str](), list[Sequence[tuple[str, str]]](), dict[int, str]()
    for title, fastest, machines in _points(compared):
        if title:
            headings[len(names)] = title
            names.append("fastest rung")
            cells.append([(name, name) for name in fastest])
        names += [row.name for row in machines.rows]
        cells += [list(map(_of_machine, row.cells)) for row in machines.rows]
    runs = compared.runs if isinstance(compared, Machines) else compared.studies
    columns = [Column("us/step", names)]
    for run, machine, pairs in zip(runs, compared.machines, zip(*cells, strict=True), strict=True):
        short, whole = zip(*pairs, strict=True)
        header = f"{run}\n({machine})"
        folders = header.replace("/", "/\n")  # a line each
        whole_name = Column(header, whole, 6, is_number=True)
        with_ratio = Column(folders, whole, 1, is_number=True, wider=whole_name)
        columns.append(Column(folders, short, is_number=True, wider=with_ratio))
    ratios = {whole for row in cells for short, whole in row if whole != short}
    lead: list[Block] = [
        Table(columns, headings, lambda texts: IN_BRACKETS if ratios & set(texts) else TOO_NARROW if ratios else ""),
        Sentences([FASTEST] if headings else [], "quiet"),
        Sentences(orders(compared), is_list=True),
    ]
    return Screen("", "", [], compared, _rows(compared), lead)


def _of_machine(pair: MachineCell) -> tuple[str, str]:
    """A stage's time, and the same beside the first run's."""
    text = numbers.microseconds(pair.step_us)
    return text, text if pair.ratio is None else f"{text} ({pair.ratio:.3f}, {pair.words})"


def _rows(compared: Machines | Studies) -> list[dict[str, Any]]:
    """A row for each stage in each run, of studies at each point."""
    return [
        {
            **({"point": title} if title else {}),
            "name": row.name,
            "run": run,
            "machine": on,
            **msgspec.to_builtins(cell),
        }
        for title, _, several in _points(compared)
        for row in several.rows
        for run, on, cell in zip(several.runs, several.machines, row.cells, strict=True)
    ]


def _points(compared: Machines | Studies) -> list[tuple[str, list[str], Machines]]:
    """The points of studies in words, with the fastest rung of each study there; runs are one point without a name."""
    if isinstance(compared, Machines):
        return [("", [], compared)]
    return [(point.point, point.fastest, point.machines) for point in compared.points]


def orders(compared: Machines | Studies) -> list[str]:
    """A sentence for each pair of rungs that changes order, and one for the pairs within the noise."""
    points = _points(compared)
    changes = [f"{f'{title}: ' if title else ''}{text}" for title, _, one in points for text in _changes(one)]
    within_noise = sum(machines.within_noise for _, _, machines in points)
    sentences = changes or ["No pair of rungs certainly changes order."]
    if within_noise:
        pairs = numbers.count(within_noise, "pair")
        change = "changes" if within_noise == 1 else "change"
        sentences.append(f"{pairs} of rungs {change} order by the medians, but within the noise.")
    return sentences + (compared.left_out if isinstance(compared, Studies) else [])


def _changes(comparison: Machines) -> list[str]:
    return [
        f"{change.higher} is faster than {change.lower} in {numbers.listing(change.faster_in)}, "
        f"slower in {numbers.listing(change.slower_in)}."
        for change in comparison.order_changes
    ]
