"""Sentences that several screens share."""

from __future__ import annotations

from collections.abc import Mapping

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.run_table import dataset_name, validated


def problem_in_words(results: Results) -> str:
    """The problem: `784-10 (softmax regression) on MNIST, batch 128, learning rate 0.1, 20 epochs, seed 0`."""
    problem = results.problem
    layers = numbers.count(len(problem.hidden), "hidden layer").replace("1 ", "one ")
    kind = f"{layers} of {', '.join(map(str, problem.hidden))}" if problem.hidden else "softmax regression"
    steps = "" if problem.max_steps is None else f" of at most {numbers.count(problem.max_steps, 'step')}"
    return (
        f"{problem.network} ({kind}) on {dataset_name(results)}, batch {problem.batch_size}, "
        f"learning rate {problem.learning_rate:g}, {numbers.count(problem.epochs, 'epoch')}{steps}, "
        f"seed {problem.seed}{f', {validated(results)} in the times' if problem.validate_every else ''}"
    )


def disturbed_in_words(stage: StageResult) -> str:
    """Whether other work moved a stage's time: `disturbed`, `1 of 2 disturbed`; empty if most processes had none."""
    disturbed = sum(bool(process.disturbed) for process in stage.processes)
    if disturbed * 2 < len(stage.processes) or not disturbed:  # fewer do not move the median
        return ""
    share = "" if disturbed == len(stage.processes) else f"{disturbed} of {len(stage.processes)} "
    return f"{share}disturbed"


def skipped_in_words(reasons: Mapping[str, str], of: int | None = None) -> str:
    """One sentence on skipped stages, by name: `28 stages skipped: no CUDA device.`, the commonest reason first.

    `of` is the number of all stages of the run, where it is known: `28 of this run's 39 stages skipped`.
    """
    every = f" of this run's {of}" if of else ""
    named: dict[str, list[str]] = {}
    for name, why in reasons.items():
        named.setdefault(why, []).append(name)
    (why, names), *others = sorted(named.items(), key=lambda pair: -len(pair[1]))
    if not others:
        return f"{f'{len(names)}{every} stages' if len(names) > 1 else names[0]} skipped: {why}."
    most = f"{len(names)} of them for one reason" if len(names) > 1 else f"{names[0]} for this reason"
    return f"{len(reasons)}{every} stages skipped; {most}: {why}."
