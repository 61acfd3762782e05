"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.records.expectation import NearRun, Outlook, Outlooks, OwnModelRun
from reports.facts import numbers
from reports.facts.advice import REFERENCES, advice_facts, changes, deciding, notes, training_range, training_s, verdict
from reports.screens.blocks import Block, Code, ColumnOf, Group, Screen, Sentences, Table, number, table_of

MOST_MODELS = 3
WRITE = "`torch` checks and times each change on a PyTorch model, then writes the loop, as in {}/train_fast.py:"
WAYS = (
    "python run_ladder.py torch --example {} > my_model.py  # a file to fill in",
    "python run_ladder.py torch my_model.py --write train_fast.py  # on the GPU",
)


def advise_screen(outlooks: Outlooks) -> Screen:
    """The verdict, what to do, the outlook of the stages that decide, what was recorded, and how sure it is."""
    said = verdict(outlooks)  # nothing where too few stages are known
    model, near = outlooks.own_model, ", ".join(map(_near, outlooks.nearest[:1]))
    blocks: list[Block] = [
        Group([Sentences(said[:1], "strong"), Sentences(changes(outlooks), is_list=True)]),
        *([_ways(model)] if model else []),
        _table(deciding(outlooks), outlooks),
        Sentences([" ".join(said[1:])]),
        *([_recorded(outlooks.own_models[:MOST_MODELS], model.gpu)] if model else []),
        Sentences([" ".join([*notes(outlooks), f"Nearest recorded run: {near}."])]),
    ]
    epochs = f"{numbers.count(outlooks.epochs, 'epoch')} of {outlooks.images:,} rows"
    title = f"{outlooks.network}, batch {outlooks.batch_size}, {epochs}, on {outlooks.gpu}"
    warnings = [Sentences(list(_warnings(outlooks)), "doubtful")]
    return Screen(title, "", blocks, advice_facts(outlooks), "stages", warnings)


def _ways(model: OwnModelRun) -> Group:
    """How to have the changes made."""
    return Group([Sentences([WRITE.format(model.path)]), Code("", [way.format(model.name) for way in WAYS], "sh")])


def _recorded(models: list[OwnModelRun], gpu: str) -> Group:
    """What such changes gained recorded models."""
    told = Sentences([f"Examples recorded on an {gpu} with a slower host, in us per step (all: docs/your-model.md):"])
    table = table_of(models, [
        ColumnOf("model", lambda one: one.name),
        ColumnOf("trained by", lambda one: f"{one.optimizer}{', dropout' * one.has_dropout}"),
        number("usual\nloop", lambda one: numbers.microseconds(one.loop_us)),
        number("data on\ndevice", lambda one: numbers.microseconds(one.resident_us)),
        number("fused\noptimizer", lambda one: numbers.microseconds(one.fused_us)),
        number("CUDA\ngraph", lambda one: numbers.microseconds(one.graph_us)),
        number("first\nstep", lambda one: numbers.duration(one.prepare_s)),
        number("as fast, first\nstep included", lambda one: f"{numbers.ratio(one.times)}, {one.epochs} epochs"),
    ])  # fmt: skip
    return Group([told, table])


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
    epochs = numbers.count(outlooks.epochs, "epoch")
    return table_of(stages, [
        ColumnOf("stage", lambda one: one.name),
        ColumnOf("precision", lambda one: numbers.precision(one.precision)),
        number("us/step", _step),
        number("nine in ten", _ends, 1),
        number("measured\nhere", lambda one: numbers.microseconds(one.measured_us)),
        number("prepare", lambda one: numbers.duration_range(*one.prepare_ends_s), 2),
        number(f"prepare +\n{epochs}", lambda one: numbers.duration(training_s(one, outlooks))),
        number("range\nof both", lambda one: training_range(one, outlooks)),
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
