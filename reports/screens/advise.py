"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ladder.records.expectation import NearRun, Outlook, Outlooks
from reports.facts import numbers
from reports.facts.advice import REFERENCES, advice_facts, deciding, notes, training_s, verdict
from reports.screens.blocks import Block, Column, Group, Screen, Sentences, Table

OTHER_MODELS = (
    "All of this holds for fully connected layers with ReLU, softmax and plain SGD. "
    "For any other model, `python run_ladder.py torch my_model.py` finds the fastest loop by measuring."
)


def advise_screen(outlooks: Outlooks) -> Screen:
    """The outlook of the stages that decide, the verdict, and how sure it is."""
    said = verdict(outlooks)  # nothing where too few stages are known
    near = [_near(run, outlooks) for run in outlooks.nearest]
    blocks: list[Block] = [
        _table(deciding(outlooks), outlooks),
        Group([Sentences(said[:1], "strong"), Sentences(said[1:])]),
        Group([Sentences([*notes(outlooks), "Nearest recorded runs:"]), Sentences(near, is_list=True)]),
        Sentences([OTHER_MODELS]),
    ]
    title = f"{outlooks.network}, batch {outlooks.batch_size}, on {outlooks.gpu}"
    warnings = [Sentences(list(_warnings(outlooks)), "doubtful")]
    return Screen(title, "", blocks, advice_facts(outlooks), "stages", warnings)


def _warnings(outlooks: Outlooks) -> Iterator[str]:
    if outlooks.no_gpu:
        assumed = f"an {outlooks.recorded_gpu}, whose runs the model was fitted to, is assumed"
        yield f"This machine has no GPU: {assumed}; --gpu names another."
    if outlooks.guess:
        yield outlooks.guess


def _table(stages: list[Outlook], outlooks: Outlooks) -> Table:
    def number(header: str, rank: int, text: Callable[[Outlook], str]) -> Column:
        return Column(header, [text(outlook) for outlook in stages], rank, is_number=True)

    return Table([
        Column("stage", [outlook.name for outlook in stages]),
        Column("precision", [numbers.precision(outlook.precision) for outlook in stages]),
        number("us/step", 0, lambda one: f"{'' if one.is_recorded else '~'}{numbers.microseconds(one.us)}"),
        number("nine in ten", 1, _ends),
        number("measured\nhere", 0, lambda one: numbers.microseconds(one.measured_us)),
        number("prepare", 2, lambda one: numbers.duration(one.prepare_s)),
        number("your\ntraining", 2, lambda one: numbers.duration(training_s(one, outlooks))),
        Column("", [REFERENCES.get(outlook.name, outlook.words) for outlook in stages], 3, tone="quiet"),
    ])  # fmt: skip


def _ends(outlook: Outlook) -> str:
    return "-".join(numbers.aligned(end, outlook.us) for end in (outlook.low_us, outlook.high_us))


def _near(near: NearRun, outlooks: Outlooks) -> str:
    first, *_, last = outlooks.network.split("-")
    network = "-".join(map(str, (first, *near.hidden, last)))
    return f"{network}, batch {near.batch_size}{'' if near.doublings else ' (this one)'}: {near.path}"
