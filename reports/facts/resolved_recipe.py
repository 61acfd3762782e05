"""The resolved recipe of a rung: every part of its step, with the file that defines it and the rung that chose it."""

from __future__ import annotations

from dataclasses import dataclass

from ladder.records.run import Results, StageResult

ORDER = ("memory", "data", "gemm", "epilogue", "head", "update", "metrics", "launch")  # of a recipe's parts
BESIDE_A_KERNEL = ("data", "metrics", "launch")  # have effect where the launch is one kernel for all steps


@dataclass(frozen=True)
class ResolvedPart:
    """A part of a step: `launch`, `GraphEpoch`, `stages/classic/cuda_graph.py`, `cuda-graph`."""

    name: str
    chosen: str  # the class
    file: str  # that defines it; empty in results from before files recorded it
    rung: str  # that chose it; empty if the run does not have that rung


def resolved_recipe(stage: StageResult, results: Results) -> list[ResolvedPart]:
    """The parts that have effect, in order; of an older file those that a rung of the run changed; else none."""
    chosen_by, names = _choices(stage, results), BESIDE_A_KERNEL if stage.regime == "one kernel" else ORDER
    if stage.recipe:
        first = _first(stage, results)
        return [
            ResolvedPart(part.name, part.chosen, part.file, chosen_by.get(part.name, (part.chosen, first))[1])
            for part in stage.recipe
            if part.name in names and not part.replaced
        ]
    return [ResolvedPart(name, chosen_by[name][0], "", chosen_by[name][1]) for name in names if name in chosen_by]


def _way(stage: StageResult, results: Results) -> list[StageResult]:
    """The stage and the rungs that it climbs from, the nearest first, as far as the run has them."""
    way = [stage]
    while (below := results.stage(way[-1].below)) is not None and below not in way:
        way.append(below)
    return way


def _choices(stage: StageResult, results: Results) -> dict[str, tuple[str, str]]:
    """Class and rung by the name of the part, for every part that a rung on the way changed."""
    choices: dict[str, tuple[str, str]] = {}
    for rung in reversed(_way(stage, results)):
        name, _, chosen = (rung.changed or "").partition(": ")
        if chosen:
            choices[name] = (chosen, rung.name)
    return choices


def _first(stage: StageResult, results: Results) -> str:
    """The rung at the foot of the ladder; empty if the run does not reach down to it."""
    last = _way(stage, results)[-1]
    return "" if last.below else last.name
