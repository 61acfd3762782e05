"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ladder.records.expectation import Outlook, Outlooks, OwnModelRun
from ladder.records.program import PROGRAM
from reports.facts import numbers
from reports.facts.advice import (
    advice_facts,
    changes,
    deciding,
    expected_us,
    is_below,
    notes,
    reasons,
    training_range,
    training_s,
    verdict,
)
from reports.screens.blocks import Block, Code, ColumnOf, Group, Screen, Sentences, Table, number, table_of

WAYS = (
    "{} torch --example {} > my_model.py  # put yours there",
    "{} torch my_model.py --write train_fast.py  # checks, writes it",
)
YOURS = "your loop"


def advise_screen(outlooks: Outlooks) -> Screen:
    """The verdict, what to do, the outlook of the stages that decide, and how sure it is."""
    told, listed = Sentences(verdict(outlooks), "strong"), Sentences(changes(outlooks), is_list=True)
    blocks: list[Block] = [
        Group([told, listed, *_ways(outlooks.own_model)]),
        _table(_rows(outlooks), outlooks),
        Sentences([" ".join([*reasons(outlooks), *notes(outlooks)])]),
    ]
    epochs = f"{numbers.count(outlooks.epochs, 'epoch')} of {outlooks.images:,} rows"
    title = f"{outlooks.network}, batch {outlooks.batch_size}, {epochs}, on {outlooks.gpu}"
    warnings = [Sentences(list(_warnings(outlooks)), "doubtful")]
    return Screen(title, "", blocks, advice_facts(outlooks), "stages", warnings)


def _ways(model: OwnModelRun | None) -> Iterator[Block]:
    """How to have the changes made."""
    if model:
        yield Code("", [way.format(PROGRAM, model.name) for way in WAYS], "sh")


def _warnings(outlooks: Outlooks) -> Iterator[str]:
    if outlooks.no_gpu:
        yield f"This machine has no GPU, so an {outlooks.recorded_gpu} is assumed; --gpu names another."
    if outlooks.guess and not all(one.is_recorded for one in deciding(outlooks)):
        yield outlooks.guess


def _rows(outlooks: Outlooks) -> list[Outlook]:
    """The stages that decide; below the user's own loop, eager mode's estimate, unless the loop refutes it."""
    stages = deciding(outlooks)
    own = [replace(one, name=YOURS, us=expected_us(one)) for one in stages if outlooks.own_eager and one.measured_us]
    expected = [one for one in stages if not (own and is_below(one))]
    return own + [replace(one, measured_us=None) if own else one for one in expected]


def _table(stages: list[Outlook], outlooks: Outlooks) -> Table:
    return table_of(stages, [
        ColumnOf("way to train", lambda one: one.name),
        ColumnOf("precision", lambda one: numbers.MISSING if one.name == YOURS else numbers.precision(one.precision)),
        number("us/step", _step),
        number("range", _ends, 1),
        number("measured", lambda one: numbers.microseconds(None if outlooks.own_eager else one.measured_us)),
        number("start-up", lambda one: numbers.duration_range(*one.prepare_ends_s), 2),
        number("in all", lambda one: numbers.duration(training_s(one, outlooks))),
        number("range", lambda one: training_range(one, outlooks)),
    ])  # fmt: skip


def _step(outlook: Outlook) -> str:
    is_known = outlook.is_recorded or outlook.name == YOURS
    return numbers.microseconds(outlook.us) if is_known else f"~{numbers.rough(outlook.us)}"


def _ends(outlook: Outlook) -> str:
    if outlook.name == YOURS:
        return numbers.MISSING
    ends = outlook.low_us, outlook.high_us
    return "-".join(numbers.aligned(end, outlook.us) if outlook.is_recorded else numbers.rough(end) for end in ends)
