"""One stage on the terminal: its purpose, where its time goes, its kernels, and what to try next."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ladder.records.profile import KernelUse
from ladder.records.run import Results, StageResult
from reports.errors import ReportError
from reports.facts import numbers
from reports.facts.bottleneck import next_step
from reports.facts.profiles import agreement, kernel_names, seen_by
from reports.facts.summary import reason, title_of
from reports.facts.time_breakdown import Change, Profiled, changes, profiled

MOST_KERNELS = 6  # rows of the table of kernels
LONGEST_BAR = 16  # columns of the terminal


class ExplainError(ReportError):
    """A stage without anything to explain: one line with its name, the reason and the way out."""


def print_explain(results: Results, name: str, heading: str = "", console: Console | None = None) -> None:
    """Print the explanation of one stage below a heading; raises ExplainError before it prints anything."""
    console = console or Console(highlight=False)
    explanation = explain(results, name)
    if heading:
        console.print(Text(f"{heading}\n"))
    console.print(explanation)


def explain(results: Results, name: str) -> RenderableType:
    """The explanation of one stage; raises ExplainError if it is not in the run, did not pass or has no profile."""
    stage = _find(results, name)
    one = profiled(stage)
    if stage.status != "passed":
        raise ExplainError(f"{name}: {stage.status} in this run, so there is no time to explain ({reason(stage)})")
    if one is None:
        raise ExplainError(f"{name}: no profile in this run; record one with --profile")
    change = next((change for change in changes(results) if change.rung.stage is stage), None)
    return Group(*_blocks(one, change))


def _find(results: Results, name: str) -> StageResult:
    names = [stage.name for stage in results.stages]
    if name not in names:
        near = difflib.get_close_matches(name, names) or names
        raise ExplainError(f"{name}: no such stage in this run; try {numbers.listing(near)}")
    return results.stages[names.index(name)]


def _blocks(one: Profiled, change: Change | None) -> Iterator[RenderableType]:
    stage = one.stage
    changed = f", from {stage.below} by {stage.changed}" if stage.below and stage.changed else ""
    yield Text(f"{stage.name} ({title_of(stage)}){changed}: {numbers.microseconds(one.step_us)} us/step", "bold")
    doc = stage.doc
    paragraphs = (
        [] if doc is None else [("Why", doc.why), ("Change", doc.change), ("Expect", doc.expect), ("Found", doc.found)]
    )
    for heading, text in paragraphs:
        if text:
            yield Text.assemble((f"{heading}: ", "bold"), " ".join(text.split()))
    yield Text("\nWhere a step's time goes, in us", "bold")
    yield _indented(_bars(one, change))
    yield Text(f"  Profiled by {seen_by(one.profile)}; fitted to the time without the tool.", "dim")
    if change is not None:
        yield Text(f"  {_seen_of(change)}", "dim")
    if compared := agreement(stage):
        yield Text(f"  {compared}.", "dim")
    if one.profile.kernels:
        yield Text("\nThe slowest kernels", "bold")
        yield _indented(_kernels(one.profile.kernels))
    yield Text.assemble(("\nNext: ", "bold"), next_step(one))


def _seen_of(change: Change) -> str:
    """The share of the timed difference that the profiles saw before fitting."""
    parent = change.parent.stage.name
    if change.is_noise:
        return f"The difference from {parent} is within the noise."
    whole, work = (numbers.rough_share(us / change.timed_us) for us in (change.seen_us, change.seen_work_us))
    return f"Before fitting, the profiles saw {whole} of the difference from {parent}, in the GPU's work alone {work}."


def _bars(one: Profiled, change: Change | None) -> Table:
    """A bar for each part, its share, and its difference from the parent's."""
    parent = f"vs {change.parent.stage.name}" if change else ""
    table = _empty_table("part", "", "us/step", "share", parent)
    parts = one.parts_us
    total = sum(parts.values())
    longest = max(parts.values()) or 1.0
    for name, us in parts.items():
        bar = "█" * round(LONGEST_BAR * us / longest)
        differs = numbers.change(change.parts_us[name], total) if change else ""
        table.add_row(name, bar, numbers.aligned(us, total), numbers.share(us / total), differs)
    if change is not None:
        table.add_row("rest", "", "", "", numbers.change(change.rest_us, total))
    timed = numbers.change(change.timed_us, total) if change else ""
    table.add_row("timed", "", numbers.aligned(one.step_us, total), "", timed, style="bold")
    return table


def _kernels(kernels: list[KernelUse]) -> Table:
    table = _empty_table("kernel", "us/step", "regs", "blocks", "threads", "occ.", "bytes", "GB/s")
    shown = sorted(kernels, key=lambda kernel: -kernel.us_per_step)[:MOST_KERNELS]
    names = kernel_names((kernel.name for kernel in shown), 18)
    for kernel in shown:
        moved = kernel.bytes
        table.add_row(
            names[kernel.name],
            numbers.microseconds(kernel.us_per_step),
            str(kernel.registers),
            f"{kernel.blocks:,}",
            f"{kernel.threads:,}",
            numbers.share(kernel.occupancy),
            numbers.MISSING if moved is None else numbers.size(moved),
            numbers.MISSING if moved is None else numbers.bandwidth(moved, kernel.us_each).removesuffix(" GB/s"),
        )
    return table


def _empty_table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table


def _indented(table: Table) -> Padding:
    return Padding(table, (0, 0, 0, 2))
