"""The screen of `advise`: what each way to train should take, what to do, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.records.expectation import NearRun, Outlook, Outlooks
from reports.facts import numbers
from reports.facts.advice import REFERENCES, advice_facts, changes, deciding, notes, training_range, training_s, verdict
from reports.screens.blocks import Block, Code, ColumnOf, Group, Screen, Sentences, Table, number, table_of

MOST_MODELS = 3
WAYS = (
    "python run_ladder.py torch --example {} > my_model.py  # a file to fill in",
    "python run_ladder.py torch my_model.py --write train_fast.py  # on the GPU",
)


def advise_screen(outlooks: Outlooks) -> Screen:
    """The verdict, what to do, the outlook of the stages that decide, what was recorded, and how sure it is."""
    said = verdict(outlooks)  # nothing where too few stages are known
    model, near = outlooks.own_model, ", ".join(map(_near, outlooks.nearest[:1]))
    ways = [Code("", [way.format(model.name) for way in WAYS], "sh")] if model else []
    write = "`torch` writes such a loop for any PyTorch model, after it has checked and timed each change:"
    blocks: list[Block] = [
        Group([Sentences(said[:1], "strong"), Sentences(changes(outlooks), is_list=True)]),
        Group([Sentences([write] * bool(model)), *ways]),
        _table(deciding(outlooks), outlooks),
        Sentences(said[1:]),
        *_recorded(outlooks),
        Sentences([" ".join([*notes(outlooks), f"Nearest recorded run: {near}."])]),
    ]
    epochs = f"{numbers.count(outlooks.epochs, 'epoch')} of {outlooks.images:,} rows"
    title = f"{outlooks.network}, batch {outlooks.batch_size}, {epochs}, on {outlooks.gpu}"
    warnings = [Sentences(list(_warnings(outlooks)), "doubtful")]
    return Screen(title, "", blocks, advice_facts(outlooks), "stages", warnings)


def _recorded(outlooks: Outlooks) -> Iterator[Block]:
    """What such changes gained recorded models; nothing without any."""
    if outlooks.own_model is None:
        return
    where = f"on an {outlooks.own_model.gpu} with a slower host"
    told = Sentences([f"Recorded examples of `torch`, {where}, in us per step (docs/your-model.md has all):"])
    table = table_of(outlooks.own_models[:MOST_MODELS], [
        ColumnOf("model", lambda one: one.name),
        ColumnOf("trained by", lambda one: f"{one.optimizer}{', dropout' * one.has_dropout}"),
        number("usual\nloop", lambda one: numbers.microseconds(one.loop_us)),
        number("data on\ndevice", lambda one: numbers.microseconds(one.resident_us)),
        number("fused\noptimizer", lambda one: numbers.microseconds(one.fused_us)),
        number("CUDA\ngraph", lambda one: numbers.microseconds(one.graph_us)),
        number("first\nstep", lambda one: numbers.duration(one.prepare_s)),
        number("training over\nusual loop's", lambda one: f"{numbers.ratio(one.times)}, {one.epochs} epochs"),
    ])  # fmt: skip
    yield Group([told, table])


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
