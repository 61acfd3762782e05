"""The screen of `check`: every check of a stage in one line, the advice on those that failed, and the verdict."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.text import Text

from ladder.records.check import Checked
from ladder.records.files import PROGRAM
from ladder.records.run import Check
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.run_table import trained
from reports.terminal.console_layout import Column, print_table, say, standard

PASSED = {"yes": "green", "no": "bold red", "not judged": "yellow"}


def print_check(found: Checked, console: Console | None = None) -> None:
    """Print whether a stage is right, and what that does not tell."""
    console = standard(console)
    problem = found.problem
    data = problem.dataset if problem.is_mnist else f"{problem.dataset} (not MNIST)"
    training = f"batch {problem.batch_size}, {trained(problem)}"
    say(console, f"{found.name}, {numbers.precision(found.precision)}: {problem.network} on {data}, {training}", "bold")
    console.print()
    if found.checks:
        columns = [
            Column("check", [one.what for one in found.checks]),
            Column("error", [numbers.error(one.error) for one in found.checks], right=True),
            Column("limit", [numbers.error(one.limit) for one in found.checks], right=True),
            Column("passed", [_passed(one) for one in found.checks], styles=PASSED),
        ]
        print_table(console, columns)
        console.print()
    for line in _wrong(found):
        say(console, line, "bold red", first="! ")
    for line in found.output.splitlines():
        console.print(Text(line, "dim"), soft_wrap=True)
    if counts := found.counts:
        kernels = (
            "" if counts.kernels_per_step is None else f"{numbers.per_step(counts.kernels_per_step)} kernels a step, "
        )
        reads = numbers.count(counts.host_reads, "read")
        say(console, f"Counted in an epoch of {numbers.count(counts.steps, 'step')}: {kernels}{reads} by the host.")
    for award in found.graded.awards if found.graded else ():
        say(console, f"{award.points} of {award.most}: {award.checks}")
    if found.graded:
        say(console, f"{found.graded.title}: {found.graded.points} of {found.graded.most} points.", "bold")
    say(console, _verdict(found))


def _passed(one: Check) -> str:
    return "no" if not one.passed else "yes" if one.judged else "not judged"


def _wrong(found: Checked) -> list[str]:
    """The one cause, else a line for each advice, with its checks; without a failed check, the reason."""
    if found.lead:
        return [found.lead]
    for_checks = grouped((advice, what) for what, advice in found.advice.items())
    lines = [f"{numbers.brief(checks, 2)}: {advice}" for advice, checks in for_checks.items()]
    return lines or [found.reason] * bool(found.reason)


def _verdict(found: Checked) -> str:
    took = f"in {numbers.duration(found.seconds)}"
    if not found.checks:
        return f"{found.status.capitalize()}, {took}."
    failed = sum(not one.passed for one in found.checks)
    if found.status == "failed":
        return f"Wrong: {failed} of {numbers.count(len(found.checks), 'check')} failed, {took}."
    unjudged = sum(not one.judged for one in found.checks)
    passed = f"{numbers.count(len(found.checks) - unjudged, 'check')} passed"
    more = f"; {unjudged} cannot be judged here" if unjudged else ""
    run, does = f"--stages {found.name}", "does both"
    if found.file:
        run = f"--stages {found.below or 'numpy'} --stage-file {shlex.quote(found.file)}"
        does = f"does both, beside {found.below or 'NumPy'}; it checks again first"
    return (
        f"Right: {passed}, {took}{more}. It is not timed, nor are whole runs and work outside of the timer checked: "
        f"`{PROGRAM} run {run}` {does}."
    )
