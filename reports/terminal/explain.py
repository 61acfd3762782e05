"""One stage on the terminal: its purpose, where its time goes, its kernels, and what to try next."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from ladder.records.profile import KernelUse
from ladder.records.program import PROGRAM
from ladder.records.run import ProblemRecord, Results, StageResult, Status
from reports.facts import numbers
from reports.facts.profiles import kernel_names
from reports.facts.provenance import machine_name
from reports.facts.resolved_recipe import ResolvedPart
from reports.facts.run_table import FOUND, OF_ALL, disturbed_in_words, heading, network_us, reason
from reports.facts.time_breakdown import Change, Profiled
from reports.facts.times import median_us
from reports.report_error import ReportError
from reports.terminal.console_layout import Column, print_table, say, say_titled, standard
from reports.views.rung_view import RungView, rung_view

MOST_KERNELS = 6  # rows of the table of kernels
LONGEST_BAR = 16  # columns of the terminal
AFTER: dict[Status, str] = {
    "skipped": "leave the run out to take one that timed it",
    "failed": "repair it, then {}",
    "crashed": "repair it, then {}",
}


def print_explain(
    results: Results, name: str, run: Path | None = None, console: Console | None = None, recorded: Path | None = None
) -> None:
    """Print the explanation of one stage, from the run in a folder; one below `recorded` is named as a recorded run.

    Without a profile, it rests on what was measured beside it. Raises ReportError before it prints anything if the
    stage is not in the run, or has no time.
    """
    console = standard(console)
    stage = found_stage(results, name)
    if run is not None:
        if recorded is not None and run.resolve().is_relative_to(recorded.resolve()):
            say(console, f"Recorded on another machine: {machine_name(results)}.", "bold yellow")
        say(console, f"{numbers.shortest(run)}: {heading(results, explained=True)}")
        console.print()
    rung = rung_view(stage, results)
    _print_heading(rung, results.problem, console)
    _print_recipe(rung.recipe, console)
    if rung.profiled is not None:
        _print_blocks(rung, rung.profiled, console)
    elif stage.device != "cpu":
        _print_measured(rung, results, console)
    console.print()
    if rung.advice is not None:
        say_titled(console, "Bound", rung.advice.bound)
        if rung.advice.next:
            say_titled(console, "Next", rung.advice.next)


def _again(name: str, results: Results) -> str:
    """The command that measures a stage of a run's problem once more, with the user's files that its command named."""
    problem = results.problem
    command = f"{PROGRAM} --stages {name}"
    if problem.hidden:
        command += f" --hidden {','.join(map(str, problem.hidden))}"
    command += f" --batch-size {problem.batch_size}"
    with suppress(ValueError):  # a quotation that does not end
        words = shlex.split(results.command)
        files = [file for word, file in pairwise(words) if word == "--stage-file"]
        command += "".join(f" --stage-file {shlex.quote(file)}" for file in files)
    counts = {"networks": problem.networks, "gpus": problem.gpus}
    return command + "".join(f" --{option} {count}" for option, count in counts.items() if count > 1)


def found_stage(results: Results, name: str) -> StageResult:
    """The stage of this name; raises ReportError if it is not in the run, or without a time."""
    names = [stage.name for stage in results.stages]
    if name not in names:
        near = difflib.get_close_matches(name, names) or names
        raise ReportError(f"{name}: no such stage in this run; try {numbers.brief(near)}")
    stage = results.stages[names.index(name)]
    if stage.status != "passed":
        why = f"{reason(stage)}); {AFTER[stage.status].format(_again(name, results))}"
        raise ReportError(f"{name}: {stage.status} in this run, so there is no time to explain ({why}")
    if stage.timing is None:
        raise ReportError(f"{name}: passed in this run without a time; measure it without --at-once")
    return stage


def _print_heading(rung: RungView, problem: ProblemRecord, console: Console) -> None:
    """The timed stage's name, time, ratio to the rung that it climbs from, and docstring."""
    stage, versus = rung.stage, rung.versus_parent
    factor = f", {versus.as_fast_as(str(stage.below), spread=False)}" if versus else ""
    each_us = network_us(stage, problem)
    each = f" of {problem.networks} networks, {numbers.microseconds(each_us)} us a network-step" if each_us else ""
    what = stage.title if rung.words.startswith("the same") else rung.words  # as a stage that is not shown here
    say(console, f"{stage.name} ({what}): {rung.us} us/step{each}{factor}", "bold")
    if each:
        say(console, OF_ALL)
    both = (stage, rung.parent if versus else None)
    disturbed = [one.name for one in both if one and disturbed_in_words(one)]
    if disturbed:
        say(console, f"Other work or a falling clock disturbed the time of {numbers.listing(disturbed)}.", "yellow")
    if (doc := stage.doc) is not None:
        verdict = f"{rung.predicted}; {rung.verdict}" if rung.predicted else ""
        told = {"Why": doc.why, "Change": doc.change, "Expect": doc.expect, "Predicted": verdict, FOUND: rung.found}
        for title, text in told.items():
            if text:
                say_titled(console, title, text)


def _print_recipe(parts: Sequence[ResolvedPart], console: Console) -> None:
    """Every part of the step, with the rung that chose it and the file that defines it."""
    if not parts:
        return
    console.print()
    which = " that rungs changed"
    if all(part.file for part in parts):
        which = "" if any(part.name == "gemm" for part in parts) else "; the launch does the rest itself"
    say(console, f"The parts of its step{which}", "bold")
    print_table(
        console,
        [
            Column("part", [part.name for part in parts]),
            Column("chosen", [part.chosen for part in parts]),
            Column("by", [part.rung for part in parts], 1),
            Column("file", [part.file for part in parts], 2, style="dim"),
        ],
    )


def _print_measured(rung: RungView, results: Results, console: Console) -> None:
    """What is known without a profile, and how to get one."""
    console.print()
    words, values = zip(*rung.facts(), strict=True)
    print_table(console, [Column("measured", words), Column("", values)])
    failed = "; ".join(" ".join(reason.split()) for reason in rung.stage.unprofiled.values())
    way_out = f"record one where it runs: {_again(rung.stage.name, results)} --profile cupti"
    say_titled(console, "No profile in this run", f"{failed}{'; ' if failed else ''}{way_out}")


def _print_blocks(rung: RungView, profiled: Profiled, console: Console) -> None:
    """The parts of a step, and its kernels."""
    change = rung.change
    console.print()
    say(console, "Where a step's time goes, in us", "bold")
    print_table(console, _parts(profiled, change))
    say(console, f"Profiled by {rung.seen_by}; fitted to the time without the tool.", "dim")
    if change is not None:
        say(console, _seen_of(change), "dim")
    if rung.agreement:
        say(console, f"{rung.agreement}.", "dim")
    if profiled.profile.kernels:
        console.print()
        say(console, "The slowest kernels, as profiled", "bold")
        print_table(console, _kernels(profiled.profile.kernels, on_cpu=profiled.is_on_cpu))


def _seen_of(change: Change) -> str:
    """The share of the timed difference that the profiles saw before fitting."""
    parent = change.parent.stage.name
    if change.is_noise:
        return f"The difference from {parent} is within the noise."
    if (change.explained or 0) < 0:
        return f"Under the tool, the difference from {parent} has the other sign: do not trust the split."
    where = "in the kernels" if change.rung.is_on_cpu else "in the GPU's work"
    whole, work = (numbers.rough_share(us / change.timed_us) for us in (change.seen_us, change.seen_work_us))
    return f"Unfitted, the profiles differ from {parent}'s by {whole} of the timed difference, {where} alone by {work}."


def _parts(rung: Profiled, change: Change | None) -> list[Column]:
    """Each part with its bar, its share, and its difference from the parent's."""
    parts = rung.detailed_us if rung.is_on_cpu else rung.parts_us
    changed: dict[str, float] = {}
    if change is not None:
        changed = change.detailed_us if rung.is_on_cpu else change.parts_us
        parts = {name: parts.get(name, 0.0) for name in changed}
    total = sum(parts.values())
    longest = max(parts.values()) or 1.0
    lines = [
        (
            name,
            "█" * round(LONGEST_BAR * us / longest),
            numbers.aligned(us, total),
            numbers.share(us / total),
            numbers.change(changed[name], total) if change else "",
        )
        for name, us in parts.items()
    ]
    if change is not None:
        lines.append(("rest", "", "", "", numbers.change(change.rest_us, total)))
    timed = numbers.change(change.timed_us, total) if change else ""
    lines.append(("timed", "", numbers.aligned(rung.step_us, total), "", timed))
    names, bars, times, shares, differences = zip(*lines, strict=True)
    parent = f"vs {change.parent.stage.name}" if change else ""
    return [
        Column("part", names),
        Column("", bars, 3),
        Column("us/step", times, 0, right=True),
        Column("share", shares, 2, right=True),
        Column(parent, differences, 1, right=True),
    ]


def _kernels(kernels: list[KernelUse], *, on_cpu: bool) -> list[Column]:
    shown = sorted(kernels, key=lambda kernel: -kernel.us_per_step)[:MOST_KERNELS]
    names = kernel_names((kernel.name for kernel in shown), 18)
    rates = [
        numbers.MISSING
        if kernel.bytes is None
        else numbers.bandwidth(kernel.bytes, kernel.us_each).removesuffix(" GB/s")
        for kernel in shown
    ]
    sizes = [numbers.MISSING if kernel.bytes is None else numbers.size(kernel.bytes) for kernel in shown]

    def column(header: str, cells: Iterable[str], rank: int) -> Column:
        return Column(header, list(cells), rank, right=True)

    shape = (
        [column("threads", (str(kernel.blocks) for kernel in shown), 1)]
        if on_cpu
        else [
            column("blocks", (f"{kernel.blocks:,}" for kernel in shown), 1),
            column("threads\na block", (f"{kernel.threads:,}" for kernel in shown), 2),
            column("registers", (str(kernel.registers) for kernel in shown), 4),
            column("occupancy", (numbers.share(kernel.occupancy) for kernel in shown), 3),
        ]
    )
    return [
        Column("kernel", [names[kernel.name] for kernel in shown]),
        column("us/step", (numbers.microseconds(kernel.us_per_step) for kernel in shown), 0),
        *shape,
        column("moved", sizes, 5),
        column("GB/s", rates, 5),
    ]


def explanation_facts(results: Results, name: str, run: Path) -> dict[str, Any]:
    """Where the time of a stage goes; raises ReportError if it is not in the run or cannot be explained."""
    stage = found_stage(results, name)
    rung = rung_view(stage, results)
    profiled, advice = rung.profiled, rung.advice
    return {
        "run": str(run),
        "stage": name,
        "from": stage.below,
        "changed": stage.changed,
        "doc": stage.doc,
        "step_us": median_us(stage),
        "split": profiled.profile.split if profiled else None,
        "kernels": profiled.profile.kernels if profiled else [],
        "recipe": stage.recipe,
        "bound": advice.bound if advice is not None else "",
        "next": advice.next if advice is not None else "",
    }
