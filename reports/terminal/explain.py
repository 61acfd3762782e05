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
from ladder.records.run import Results, StageResult, Status
from reports.errors import ReportError
from reports.facts import numbers
from reports.facts.advice import Advice
from reports.facts.bottleneck import next_step
from reports.facts.cpu_bottleneck import next_on_cpu
from reports.facts.profiles import agreement, kernel_names, seen_by
from reports.facts.summary import FOUND, reason, title_of
from reports.facts.time_breakdown import Change, Profiled, changes, profiled

MOST_KERNELS = 6  # rows of the table of kernels
LONGEST_BAR = 16  # columns of the terminal
AFTER: dict[Status, str] = {
    "skipped": "leave the run out to take one that profiled it",
    "failed": "repair it and run it again",
    "crashed": "repair it and run it again",
}
RECORD = "run_ladder.py --stages {} --profile cupti"  # the command that profiles a stage


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
    """The explanation of one stage; raises ExplainError if it is not in the run, has no time, or lacks a profile.

    No tool profiles a stage on the CPU, so its explanation rests on its time alone.
    """
    stage = _find(results, name)
    one = profiled(stage)
    if stage.status != "passed":
        why = f"{reason(stage)}); {AFTER[stage.status]}"
        raise ExplainError(f"{name}: {stage.status} in this run, so there is no time to explain ({why}")
    if stage.timing is None:
        raise ExplainError(f"{name}: passed in this run without a time; measure it without --at-once")
    if stage.device == "cpu":
        return Group(*_heading(stage), *_advice(next_on_cpu(results.problem, stage)))
    if one is None:
        way_out = f"leave the run out to take one that profiled it, or record one: {RECORD.format(name)}"
        raise ExplainError(f"{name}: {_without_profile(stage)}; {way_out}")
    change = next((change for change in changes(results) if change.rung.stage is stage), None)
    return Group(*_heading(stage), *_blocks(results, one, change))


def _without_profile(stage: StageResult) -> str:
    """The reason why a passed stage has no profile."""
    failed = "; ".join(" ".join(reason.split()) for reason in stage.unprofiled.values())
    return f"no profile in this run{f' ({failed})' if failed else ''}"


def _find(results: Results, name: str) -> StageResult:
    names = [stage.name for stage in results.stages]
    if name not in names:
        near = difflib.get_close_matches(name, names) or names
        raise ExplainError(f"{name}: no such stage in this run; try {numbers.listing(near)}")
    return results.stages[names.index(name)]


def _heading(stage: StageResult) -> Iterator[RenderableType]:
    """The timed stage's name, time and docstring."""
    assert stage.timing is not None
    changed = f", from {stage.below} by {stage.changed}" if stage.below and stage.changed else ""
    time = f"{numbers.microseconds(stage.timing.step_us)} us/step"
    yield Text(f"{stage.name} ({title_of(stage)}){changed}: {time}", "bold")
    doc = stage.doc
    paragraphs = (
        [] if doc is None else [("Why", doc.why), ("Change", doc.change), ("Expect", doc.expect), (FOUND, doc.found)]
    )
    for heading, text in paragraphs:
        if text:
            yield Text.assemble((f"{heading}: ", "bold"), " ".join(text.split()))


def _blocks(results: Results, one: Profiled, change: Change | None) -> Iterator[RenderableType]:
    """The parts of a step, its kernels, and the next thing to try."""
    yield Text("\nWhere a step's time goes, in us", "bold")
    yield _indented(_bars(one, change))
    yield Text(f"  Profiled by {seen_by(one.profile)}; fitted to the time without the tool.", "dim")
    if change is not None:
        yield Text(f"  {_seen_of(change)}", "dim")
    if compared := agreement(one.stage):
        yield Text(f"  {compared}.", "dim")
    if one.profile.kernels:
        yield Text("\nThe slowest kernels", "bold")
        yield _indented(_kernels(one.profile.kernels))
    yield from _advice(next_step(results, one))


def _advice(advice: Advice) -> Iterator[Text]:
    yield Text.assemble(("\nBound: ", "bold"), advice.bound)
    if advice.next:
        yield Text.assemble(("Next: ", "bold"), advice.next)


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
