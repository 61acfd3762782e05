"""The doctor's findings: a line each, and below it the command that mends what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from reports.facts import numbers
from reports.writers.console import say, standard


def print_doctor(findings: Sequence[tuple[str, str, str, bool]], console: Console | None = None) -> None:
    """Print findings as (item, what was found, advice or empty, whether nothing is wrong without the item)."""
    console = standard(console)
    width = max((len(what) for what, *_ in findings), default=0)
    for what, state, advice, optional in findings:
        mark, style = ("ok ", "") if not advice else ("-  ", "dim") if optional else ("!  ", "yellow")
        say(console, state, style, first=f"{mark}{what:{width}}  ")
        if advice:
            say(console, advice, "dim" if optional else "bold", first="     ")
    console.print()
    wanting = [what for what, _, advice, optional in findings if advice and not optional]
    spare = [what for what, _, advice, optional in findings if advice and optional]
    if wanting:
        say(console, f"To look at: {numbers.listing(wanting)}.")
    if spare:
        say(console, f"Optional: {numbers.listing(spare)}.")
    if not wanting and not spare:
        say(console, "Everything is here.")
