"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.records.expectation import NearRun, Outlook, Outlooks
from reports.facts import numbers
from reports.facts.advice import REFERENCES, advice_facts, deciding, notes, training_range, training_s, verdict
from reports.screens.blocks import Block, ColumnOf, Group, Screen, Sentences, Table, number, table_of

OTHER_MODELS = (
    "All of this is for fully connected layers with ReLU, softmax and plain SGD. "
    "`python run_ladder.py torch my_model.py` measures any other PyTorch model."
)


def advise_screen(outlooks: Outlooks) -> Screen:
    """The outlook of the stages that decide, the verdict, and how sure it is."""
    said = verdict(outlooks)  # nothing where too few stages are known
    near = list(map(_near, outlooks.nearest))
    blocks: list[Block] = [
        _table(deciding(outlooks), outlooks),
        Group([Sentences(said[:1], "strong"), Sentences(said[1:])]),
        Group([Sentences([*notes(outlooks), "Nearest recorded runs:"]), Sentences(near, is_list=True)]),
    ]
    if not outlooks.ignored:
        blocks.append(Sentences([OTHER_MODELS]))
    title = f"{outlooks.network}, batch {outlooks.batch_size}, on {outlooks.gpu}{_counted(outlooks)}"
    warnings = [Sentences(list(_warnings(outlooks)), "doubtful")]
    return Screen(title, "", blocks, advice_facts(outlooks), "stages", warnings)


def _counted(outlooks: Outlooks) -> str:
    """The end of a title where options change what no time of the table counts."""
    own = ", but for torch-eager" if outlooks.own_eager else ""
    return f", times of plain SGD{own}" if outlooks.ignored else ""


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
        ColumnOf("stage", lambda one: one.name),
        ColumnOf("precision", lambda one: numbers.precision(one.precision)),
        number("us/step", _step),
        number("nine in ten", _ends, 1),
        number("measured\nhere", lambda one: numbers.microseconds(one.measured_us)),
        number("prepare", lambda one: numbers.duration(one.prepare_s), 2),
        number("your\ntraining", lambda one: numbers.duration(training_s(one, outlooks))),
        number("range of\ntraining", lambda one: training_range(one, outlooks)),
        ColumnOf("", lambda one: REFERENCES.get(one.name, one.words), 3, tone="quiet"),
    ])  # fmt: skip


def _step(outlook: Outlook) -> str:
    return f"{'' if outlook.is_recorded or _is_own(outlook) else '~'}{numbers.microseconds(outlook.us)}"


def _is_own(outlook: Outlook) -> bool:
    """Whether its user measured it, so that a range would be none."""
    return outlook.low_us == outlook.high_us


def _ends(outlook: Outlook) -> str:
    if _is_own(outlook):
        return "measured"
    return "-".join(numbers.aligned(end, outlook.us) for end in (outlook.low_us, outlook.high_us))


def _near(near: NearRun) -> str:
    return f"{near.network}, batch {near.batch_size}{'' if near.doublings else ' (this one)'}: {near.path}"
