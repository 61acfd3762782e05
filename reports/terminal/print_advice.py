"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from itertools import zip_longest

from rich.console import Console

from ladder.records.expectation import NearRun, Outlook, Outlooks
from reports.facts import numbers
from reports.facts.advice import REFERENCES, deciding, notes, training_s, verdict
from reports.terminal.console_layout import Column, named, print_table, say, standard


def print_advice(outlooks: Outlooks, console: Console | None = None) -> None:
    """Print the outlook of the stages that decide, the verdict, and how sure it is."""
    console = standard(console)
    batch = f"batch {outlooks.batch_size}"
    say(console, f"{outlooks.network}, {batch}, on {outlooks.gpu}", "bold")
    if outlooks.no_gpu:
        assumed = f"an {outlooks.recorded_gpu}, whose runs the model was fitted to, is assumed"
        say(console, f"This machine has no GPU: {assumed}; --gpu names another.", "yellow")
    if outlooks.guess:
        say(console, outlooks.guess, "yellow")
    console.print()
    _print_stages(deciding(outlooks), outlooks, console)
    console.print()
    for text, style in zip_longest(verdict(outlooks), ["bold"], fillvalue=""):
        say(console, named(text), style)
    console.print()
    for text in (*notes(outlooks), "Nearest recorded runs:"):
        say(console, named(text))
    for near in outlooks.nearest:
        say(console, _near(near, outlooks), first="- ")


def _print_stages(stages: list[Outlook], outlooks: Outlooks, console: Console) -> None:
    measured = [numbers.microseconds(outlook.measured_us) for outlook in stages]
    expected = [f"{'' if outlook.is_recorded else '~'}{numbers.microseconds(outlook.us)}" for outlook in stages]
    print_table(
        console,
        [
            Column("stage", [outlook.name for outlook in stages]),
            Column("precision", [numbers.precision(outlook.precision) for outlook in stages]),
            Column("us/step", expected, right=True),
            Column("nine in ten", [_ends(outlook) for outlook in stages], 1, right=True),
            Column(
                "measured\nhere",
                measured if any(outlook.measured_us for outlook in stages) else ["-"] * len(stages),
                right=True,
            ),
            Column("prepare", [numbers.duration(outlook.prepare_s) for outlook in stages], 2, right=True),
            Column(
                "your\ntraining", [numbers.duration(training_s(outlook, outlooks)) for outlook in stages], 2, right=True
            ),
            Column("", [REFERENCES.get(outlook.name, outlook.words) for outlook in stages], 3, style="dim"),
        ],
    )


def _ends(outlook: Outlook) -> str:
    return "-".join(numbers.aligned(end, outlook.us) for end in (outlook.low_us, outlook.high_us))


def _near(near: NearRun, outlooks: Outlooks) -> str:
    first, *_, last = outlooks.network.split("-")
    network = "-".join(map(str, (first, *near.hidden, last)))
    return f"{network}, batch {near.batch_size}{'' if near.doublings else ' (this one)'}: {near.path}"
