"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.records.expectation import Outlook, Outlooks, OwnModelRun
from reports.facts import numbers
from reports.facts.advice import (
    REFERENCES,
    advice_facts,
    changes,
    deciding,
    examples,
    notes,
    reasons,
    training_range,
    training_s,
    verdict,
)
from reports.screens.blocks import Block, Code, ColumnOf, Group, Screen, Sentences, Table, number, table_of

WRITE = "`run_ladder.py torch` checks and times such changes on your model, and writes the fastest loop:"
WAYS = (
    "python run_ladder.py torch --example {} > my_model.py  # {}: fill it in",
    "python run_ladder.py torch my_model.py --write train_fast.py  # minutes on a GPU",
)


def advise_screen(outlooks: Outlooks) -> Screen:
    """The verdict, what to do, the outlook of the stages that decide, and how sure it is."""
    model, gained = outlooks.own_model, list(filter(None, [examples(outlooks)]))
    blocks: list[Block] = [
        Group([Sentences(verdict(outlooks), "strong"), Sentences(changes(outlooks), is_list=True), Sentences(gained)]),
        *([_ways(model)] if model else []),
        _table(deciding(outlooks), outlooks),
        Sentences([" ".join(reasons(outlooks))]),
        Sentences([" ".join(notes(outlooks))]),
    ]
    epochs = f"{numbers.count(outlooks.epochs, 'epoch')} of {outlooks.images:,} rows"
    title = f"{outlooks.network}, batch {outlooks.batch_size}, {epochs}, on {outlooks.gpu}"
    warnings = [Sentences(list(_warnings(outlooks)), "doubtful")]
    return Screen(title, "", blocks, advice_facts(outlooks), "stages", warnings)


def _ways(model: OwnModelRun) -> Group:
    """How to have the changes made."""
    told = Sentences([WRITE])
    return Group([told, Code("", [way.format(model.name, model.optimizer) for way in WAYS], "sh")])


def _warnings(outlooks: Outlooks) -> Iterator[str]:
    if outlooks.no_gpu:
        assumed = f"an {outlooks.recorded_gpu}, whose runs the model was fitted to, is assumed"
        yield f"This machine has no GPU: {assumed}; --gpu names another."
    first, *hidden, last = outlooks.network.split("-")
    if len(hidden) > 1 and (hidden[0], hidden[-1]) == (first, last):
        given, inner = ",".join(hidden), ",".join(hidden[1:-1])
        yield (
            f"--hidden {given}: it names hidden layers alone, and --inputs {first} and --classes {last} are added; "
            f"for {'-'.join(hidden)} {f'write --hidden {inner}' if inner else 'leave --hidden out'}."
        )
    if outlooks.guess and not all(one.is_recorded for one in deciding(outlooks)):
        yield outlooks.guess


def _table(stages: list[Outlook], outlooks: Outlooks) -> Table:
    return table_of(stages, [
        ColumnOf("way to train", lambda one: one.name),
        ColumnOf("precision", lambda one: numbers.precision(one.precision)),
        number("us/step", _step),
        number("90% range", _ends, 1),
        number("measured", lambda one: numbers.microseconds(one.measured_us)),
        number("preparing", lambda one: numbers.duration_range(*one.prepare_ends_s), 2),
        number("in all", lambda one: numbers.duration(training_s(one, outlooks))),
        number("90% range", lambda one: training_range(one, outlooks)),
        ColumnOf("", lambda one: REFERENCES.get(one.name, one.words), 3, tone="quiet"),
    ])  # fmt: skip


def _step(outlook: Outlook) -> str:
    return numbers.microseconds(outlook.us) if outlook.is_recorded else f"~{numbers.rough(outlook.us)}"


def _ends(outlook: Outlook) -> str:
    ends = outlook.low_us, outlook.high_us
    return "-".join(numbers.aligned(end, outlook.us) if outlook.is_recorded else numbers.rough(end) for end in ends)
