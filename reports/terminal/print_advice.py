"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from itertools import zip_longest

from rich.console import Console

from ladder.records.outlook import NearRun, Outlook, Outlooks
from reports.facts import numbers
from reports.facts.advice import REFERENCES, deciding, notes, training_s, verdict
from reports.terminal.console_layout import Column, print_table, say, standard


def print_advice(outlooks: Outlooks, console: Console | None = None) -> None:
    """Print the outlook of the stages that decide, the verdict, and how sure it is."""
    console = standard(console)
    batch = f"batch {outlooks.batch_size}"
    say(console, f"{outlooks.network}, {batch}, on {outlooks.gpu}", "bold")
    if outlooks.no_gpu:
        say(console, f"This machine has no GPU: an {outlooks.recorded_gpu} is assumed; --gpu names another.", "yellow")
    if outlooks.guess:
        say(console, outlooks.guess, "yellow")
    console.print()
    _print_stages(deciding(outlooks), outlooks, console)
    console.print()
    for text, style in zip_longest(verdict(outlooks), ["bold"], fillvalue=""):
        say(console, text, style)
    console.print()
    for text in (*notes(outlooks), "Nearest recorded runs:"):
        say(console, text)
    for near in outlooks.nearest:
        say(console, f"  {_near(near, outlooks)}")


def _print_stages(stages: list[Outlook], outlooks: Outlooks, console: Console) -> None:
    measured = [numbers.microseconds(one.measured_us) for one in stages]
    print_table(
        console,
        [
            Column("stage", [one.name for one in stages]),
            Column("precision", [numbers.precision(one.precision) for one in stages]),
            Column("us/step", [_expected(one) for one in stages], right=True),
            Column("nine in ten", [_ends(one) for one in stages], 1, right=True),
            Column(
                "measured\nhere",
                measured if any(one.measured_us for one in stages) else ["-"] * len(stages),
                right=True,
            ),
            Column("prepare", [numbers.duration(one.prepare_s) for one in stages], 2, right=True),
            Column("your\ntraining", [numbers.duration(training_s(one, outlooks)) for one in stages], 2, right=True),
            Column("", [REFERENCES.get(one.name, one.words) for one in stages], 3, style="dim"),
        ],
    )


def _expected(one: Outlook) -> str:
    return f"{'' if one.is_recorded else '~'}{numbers.microseconds(one.us)}"


def _ends(one: Outlook) -> str:
    return "-".join(numbers.aligned(end, one.us) for end in (one.low_us, one.high_us))


def _near(near: NearRun, outlooks: Outlooks) -> str:
    first, *_, last = outlooks.network.split("-")
    network = "-".join(map(str, (first, *near.hidden, last)))
    return f"{network}, batch {near.batch_size}{'' if near.doublings else ' (this one)'}: {near.path}"
