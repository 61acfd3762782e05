"""The stages that a run would measure, and its time, for `--dry-run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from reports.facts import numbers
from reports.writers.console import say, say_titled, standard


def print_plan(
    plan: tuple[str, int, int, Sequence[str], Mapping[str, str], int, float, float, tuple[Path, float, int] | None],
    console: Console | None = None,
) -> None:
    """Print a plan as `ladder.run.dry_run` makes it."""
    console = standard(console)
    network, networks, batch_size, stages, reasons, rounds, timed_s, each_s, earlier = plan
    asked = numbers.count(len(stages) + len(reasons), "stage")
    whole = f"{len(stages)} of {asked}, each in at most {numbers.count(rounds, 'round')}"
    trained = f"{network}, {networks} networks" if networks > 1 else network
    say(console, f"{trained}, batch {batch_size}: {whole}. Nothing was measured.", "bold")
    say_titled(console, "Would run", f"{numbers.listing(stages)}.")
    for why in dict.fromkeys(reasons.values()):
        say_titled(
            console,
            "Not",
            f"{numbers.brief([name for name, its in reasons.items() if its == why])}: {why.rstrip('.')}.",
        )
    timed = f"{numbers.duration(timed_s)} of timed runs at most, {numbers.duration(each_s)} a stage"
    say_titled(console, "Time", f"{timed}; preparing and checking them comes on top (docs/how-long.md).")
    if earlier is not None:
        folder, seconds, passed = earlier
        say(console, f"{folder}, the newest such run, took {numbers.duration(seconds)} for {passed} that passed.")
