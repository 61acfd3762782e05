"""The list of all stages, one line each, and once for all of them why some cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from ladder.records.expectation import Expected, Listed
from ladder.records.program import PROGRAM
from ladder.records.run import ABLATIONS, BLOCKS
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import HEADINGS
from reports.screens.blocks import ColumnOf, Group, Screen, Sentences, Table, Tone, number

OTHERS, ON_CPU = "More stages", "The same ladder on the CPU"
HERE: dict[str, Tone] = {"yes": "good", "no": "quiet"}


def stage_list_screen(stages: Iterable[Listed], way_to_gpu: str | None, network: str = "") -> Screen:
    """The stages by group, and once the reasons why some do not run here, with the way to a GPU.

    `network` heads the list if its times are expected.
    """
    blocks = ["", *BLOCKS.values()]
    listed = list(stages)
    ordered = sorted(listed, key=lambda stage: blocks.index(BLOCKS.get(stage.group, "")))
    grouped = groupby(enumerate(ordered), key=lambda pair: _heading(pair[1]))
    columns: list[ColumnOf[Listed]] = [
        ColumnOf("stage", lambda stage: stage.name),
        number("expected\nus/step", lambda stage: _of(stage, lambda one: numbers.microseconds(one.us))),
        number("its\nerror", lambda stage: _of(stage, lambda one: f"{one.error:.0%}"), 1),
        number("expected\nover parent", lambda stage: _of(stage, lambda one: numbers.ratio(one.times_from)), 1),
        ColumnOf("from", lambda stage: stage.below, 1 if network else 3, tone="quiet"),
        ColumnOf("what it changes", lambda stage: stage.words or stage.title, 2),
        ColumnOf("needs", lambda stage: stage.needs, 4, tone="quiet"),
        ColumnOf("runs\nhere", _runs_here, 1, tones=HERE),
    ]
    headings = {next(members)[0]: heading for heading, members in grouped}
    table = Table([column.over(ordered) for column in columns], headings)
    asked = dict.fromkeys(text for stage in ordered if (text := _runs_here(stage)).startswith("--"))
    only = [f"Marked {numbers.listing(asked)}: runs only with that option."] if asked else []
    told = Group([
        Sentences([*_losses(ordered), *_why_not(ordered), *only, *([f"{way_to_gpu}."] if way_to_gpu else [])]),
        Sentences([f"To explain a recorded one: `{PROGRAM} explain NAME`"], "quiet"),
    ])  # fmt: skip
    facts = [stage._asdict() for stage in listed]
    return Screen(network, "", [told], facts, facts, [table])


EXPECTED = (
    "Its error: the root mean square on networks left out of the model; `advise` shows the range of nine in ten.",
    "A stage without a number is left out below, or has too few recorded runs.",
)


def _of(stage: Listed, text: Callable[[Expected], str]) -> str:
    """Something that is expected of a stage."""
    return text(stage.expected) if stage.expected else numbers.MISSING


def _runs_here(stage: Listed) -> str:
    """Whether it runs here, or the option without which it does not."""
    if stage.only_with and not stage.missing:
        return f"--{stage.only_with}"
    return "no" if stage.missing or stage.misfit else "yes"


def _losses(stages: Sequence[Listed]) -> list[str]:
    """What the estimates are, each rung that should lose, and the stages that do not take the network."""
    gpus = [stage.expected.gpu for stage in stages if stage.expected]
    if not gpus:
        return []
    about = f"Expected on an {gpus[0]}, by a model of recorded runs; nothing was measured."
    named = [f"{stage.name}: {stage.expected.remark}." for stage in stages if stage.expected and stage.expected.remark]
    misfits = grouped((stage.misfit, stage.name) for stage in stages if stage.misfit)
    left_out = [f"Left out: {numbers.listing(names)}. {_sentence(why)}" for why, names in misfits.items()]
    return [about, *EXPECTED, *named, *left_out]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _heading(stage: Listed) -> str:
    """A rung's way to the GPU; the block of any other stage."""
    if stage.group == "cpu":
        return ON_CPU
    return BLOCKS.get(stage.group) or (HEADINGS[stage.regime] if stage.regime and stage.words else OTHERS)


def _why_not(stages: Sequence[Listed]) -> list[str]:
    """A line for each reason why stages do not run here: `no (28 of 38): no CUDA device`."""
    reasons = grouped((stage.missing, stage.name) for stage in stages if stage.missing)
    if not reasons and not any(stage.misfit for stage in stages):
        return [f"All {len(stages)} run here."]
    ablations = sum(stage.group in ABLATIONS for stage in stages)
    among = f"{len(stages)} stages, counting {ablations} ablations," if ablations else f"{len(stages)} stages"
    return [
        f"{numbers.listing(names)} cannot run here: {why}."
        if len(names) <= 3
        else f"{len(names)} of {among} cannot run here: {why}."
        for why, names in reasons.items()
    ]
