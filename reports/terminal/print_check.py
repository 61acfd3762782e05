"""The screen of `check`: every check of a stage in one line, the advice on those that failed, and the verdict."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.text import Text

from ladder.records.checked import Checked
from ladder.records.program import PROGRAM
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.run_table import trained
from reports.terminal.console_layout import Column, print_table, say, standard

PASSED = {"yes": "green", "no": "bold red", "not judged": "yellow"}


def print_check(checked: Checked, console: Console | None = None) -> None:
    """Print whether a stage is right, and what that does not tell."""
    console = standard(console)
    problem = checked.problem
    data = problem.dataset if problem.is_mnist else f"{problem.dataset} (not MNIST)"
    training = f"batch {problem.batch_size}, {trained(problem)}"
    stage = f"{checked.name}, {numbers.precision(checked.precision)}"
    say(console, f"{stage}: {problem.network} on {data}, {training}", "bold")
    console.print()
    if checked.checks:
        columns = [
            Column("check", [check.what for check in checked.checks]),
            Column("error", [numbers.error(check.error) for check in checked.checks], right=True),
            Column("limit", [numbers.error(check.limit) for check in checked.checks], right=True),
            Column(
                "passed",
                [("yes" if check.judged else "not judged") if check.passed else "no" for check in checked.checks],
                styles=PASSED,
            ),
        ]
        print_table(console, columns)
        console.print()
    for line in _wrong(checked):
        say(console, line, "bold red", first="! ")
    for line in checked.output.splitlines():
        console.print(Text(line, "dim"), soft_wrap=True)
    if counts := checked.counts:
        kernels = (
            "" if counts.kernels_per_step is None else f"{numbers.per_step(counts.kernels_per_step)} kernels a step, "
        )
        reads = numbers.count(counts.host_reads, "read")
        say(console, f"Counted in an epoch of {numbers.count(counts.steps, 'step')}: {kernels}{reads} by the host.")
    for award in checked.graded.awards if checked.graded else ():
        say(console, f"{award.points} of {award.most}: {award.checks}")
    if checked.graded:
        say(console, f"{checked.graded.title}: {checked.graded.points} of {checked.graded.most} points.", "bold")
    say(console, _verdict(checked))


def _wrong(checked: Checked) -> list[str]:
    """The one cause, else a line for each advice, with its checks; without a failed check, the reason."""
    if checked.lead:
        return [checked.lead]
    for_checks = grouped((advice, what) for what, advice in checked.advice.items())
    lines = [f"{numbers.brief(checks, 2)}: {advice}" for advice, checks in for_checks.items()]
    return lines or [checked.reason] * bool(checked.reason)


def _verdict(checked: Checked) -> str:
    took = f"in {numbers.duration(checked.seconds)}"
    if not checked.checks:
        return f"{checked.status.capitalize()}, {took}."
    failed = sum(not check.passed for check in checked.checks)
    if checked.status == "failed":
        return f"Wrong: {failed} of {numbers.count(len(checked.checks), 'check')} failed, {took}."
    unjudged = sum(not check.judged for check in checked.checks)
    passed = f"{numbers.count(len(checked.checks) - unjudged, 'check')} passed"
    more = f"; {unjudged} cannot be judged here" if unjudged else ""
    run, does = f"--stages {checked.name}", "does both"
    if checked.file:
        run = f"--stages {checked.below or 'numpy'} --stage-file {shlex.quote(checked.file)}"
        does = f"does both, beside {checked.below or 'NumPy'}; it checks again first"
    return (
        f"Right: {passed}, {took}{more}. It is not timed, nor are whole runs and work outside of the timer checked: "
        f"`{PROGRAM} run {run}` {does}."
    )
