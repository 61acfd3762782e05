"""The screen of `run --dry-run`: the stages that a run would measure, and its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.screens.blocks import Block, Screen, Sentences, Titled

Plan = tuple[str, int, int, Sequence[str], Mapping[str, str], int, float, float, tuple[Path, float, int] | None]


def plan_screen(plan: Plan) -> Screen:
    """A plan as `ladder.run.session` makes it."""
    network, networks, batch_size, stages, reasons, rounds, *_ = plan
    asked = numbers.count(len(stages) + len(reasons), "stage")
    whole = f"{len(stages)} of {asked}, each in at most {numbers.count(rounds, 'round')}"
    trained = f"{network}, {networks} networks" if networks > 1 else network
    title = f"{trained}, batch {batch_size}: {whole}. Nothing was measured."
    facts = {"network": network, "batch_size": batch_size, "stages": stages, "reasons": reasons, "rounds": rounds}
    return Screen(title, "", [], facts, [], list(_told(plan)))


def _told(plan: Plan) -> Iterator[Block]:
    _, _, _, stages, reasons, _, timed_s, each_s, earlier = plan
    yield Titled("Would run", f"{numbers.listing(stages)}.")
    for why, names in grouped((why, name) for name, why in reasons.items()).items():
        yield Titled("Not", f"{numbers.brief(names)}: {why.rstrip('.')}.")
    timed = f"{numbers.duration(timed_s)} of timed runs at most, {numbers.duration(each_s)} a stage"
    yield Titled("Time", f"{timed}; preparing and checking them comes on top (docs/how-long.md).")
    if earlier is not None:
        folder, seconds, passed = earlier
        took = numbers.duration(seconds)
        yield Sentences([f"{folder}, the newest such run, took {took} for {passed} that passed."])
