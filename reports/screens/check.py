"""The screen of `check`: every check of a stage in one line, the advice on those that failed, and the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ladder.records.checked import Checked, GradedClass, GradedFile
from ladder.records.program import PROGRAM
from ladder.records.run import Check
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.run_table import dataset_name, trained
from reports.screens.blocks import Block, Code, ColumnOf, Group, Screen, Sentences, Table, Tone, number, table_of

REACHES = "Submissions could reach the network: Linux does not allow `unshare --map-root-user --net` here."
PASSED: dict[str, Tone] = {"yes": "good", "no": "bad", "not judged": "doubtful"}
CHECK_COLUMNS: Sequence[ColumnOf[Any]] = (
    ColumnOf("check", lambda check: check.what),
    number("error", lambda check: numbers.error(check.error)),
    number("limit", lambda check: numbers.error(check.limit)),
)  # of checks of any kind


def check_screen(checked: Checked) -> Screen:
    """Whether a stage is right, and what that does not tell."""
    problem = checked.problem
    stage = f"{checked.name}, {numbers.precision(checked.precision)}"
    title = f"{stage}: {problem.network} on {dataset_name(problem)}, batch {problem.batch_size}, {trained(problem)}"
    return Screen(title, "", [*_table(checked), Group(list(_told(checked)))], checked, "checks")


def grade_screen(graded: GradedClass) -> Screen:
    """The points of a class, a row each."""
    columns: Sequence[ColumnOf[GradedFile]] = (
        ColumnOf("file", lambda one: one.file),
        number("points", lambda one: str(one.points)),
        number("of", lambda one: str(one.most)),
        ColumnOf("status", lambda one: one.status),
        number("seconds", lambda one: f"{one.seconds:.0f}", 2),
    )
    warning = [] if graded.without_network else [Sentences([REACHES], "doubtful")]
    why = Sentences([f"{one.file}: {one.reason}" for one in graded.files if one.reason], is_list=True)
    return Screen(graded.title, "", [table_of(graded.files, columns), why], graded, "files", warning)


def _table(checked: Checked) -> Iterator[Table]:
    if checked.checks:
        passed: ColumnOf[Check] = ColumnOf("passed", _passed, tones=PASSED)
        yield table_of(checked.checks, [*CHECK_COLUMNS, passed])


def _passed(check: Check) -> str:
    return ("yes" if check.judged else "not judged") if check.passed else "no"


def _told(checked: Checked) -> Iterator[Block]:
    yield Sentences(_wrong(checked), "bad", is_list=True)
    if checked.output:
        yield Code("Output", checked.output.splitlines(), "text")
    yield Sentences(list(_counted(checked)))
    if checked.graded:
        yield Sentences([f"{checked.graded.title}: {checked.graded.points} of {checked.graded.most} points."], "strong")
    yield Sentences([_verdict(checked)])


def _wrong(checked: Checked) -> list[str]:
    """The one cause, else a line for each advice, with its checks; without a failed check, the reason."""
    if checked.lead:
        return [checked.lead]
    for_checks = grouped((advice, what) for what, advice in checked.advice.items())
    lines = [f"{numbers.brief(checks, 2)}: {advice}" for advice, checks in for_checks.items()]
    return lines or [checked.reason] * bool(checked.reason)


def _counted(checked: Checked) -> Iterator[str]:
    if counts := checked.counts:
        per_step = counts.kernels_per_step
        kernels = "" if per_step is None else f"{numbers.per_step(per_step)} kernels per step, "
        reads = numbers.count(counts.host_reads, "read")
        yield f"Counted in an epoch of {numbers.count(counts.steps, 'step')}: {kernels}{reads} by the host."
    for award in checked.graded.awards if checked.graded else ():
        yield f"{award.points} of {award.most}: {award.checks}"


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
