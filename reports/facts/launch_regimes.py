"""How a rung's kernels reach the GPU, and what the rung changes, in a few words."""

from __future__ import annotations

import re
from typing import Literal

from ladder.records.run import ProblemRecord, StageResult
from ladder.records.run import Regime as Declared
from ladder.records.statistics import CPU_SPREAD, GPU_SPREAD, HOST_SPREAD

Regime = Literal[Declared, "unknown"]

HEADINGS: dict[Regime, str] = {
    "host": "The host launches every kernel",
    "graph": "One CUDA graph launches an epoch's kernels",
    "one kernel": "A kernel trains a whole epoch",
    "CPU": "On the CPU",
    "unknown": "Not profiled",
}

LAUNCHED_BY_THE_EPOCH = {"torch-graph", "torch-graph-amp", "torch-stacked", "jax-scan", "jax-scan-bf16", "jax-vmap"}
"""References of which older records and studies have no profile."""
WITHOUT_HIDDEN = {  # what to say where a network has no hidden layer
    re.compile("others may multiply ahead"): "others multiply ahead",
    re.compile(r"(,| and)( apply)? ReLU(, or its gradient,)?"): "",
    re.compile("the backward pass of the layers below it$"): "its bias's, since no layer is below it",
}
WITH_HIDDEN = {re.compile("; others may multiply ahead"): ""}
BUSY = 0.9  # share of a step: the host then moves little of its time


def regime(stage: StageResult) -> Regime:
    """The regime of a stage: as its launch declares it, else from its profile; `unknown` without either."""
    if stage.device == "cpu":
        return "CPU"
    profile = stage.profile
    if stage.regime is not None or profile is None or not profile.kernels_per_step:
        return stage.regime or "unknown"
    if profile.kernels_per_step < 1:
        return "one kernel"
    return "host" if profile.launches_per_step >= 1 else "graph"


def assumed_spread(stage: StageResult) -> float:
    """How far a stage's processes scatter if they are too few to tell: as recorded ones whose pace the same thing sets.

    A stage that its host launches is paced by the GPU if a profile saw that busy nearly all the time.
    """
    known, profile = regime(stage), stage.profile
    if known == "CPU":
        return CPU_SPREAD
    if known == "unknown":
        return GPU_SPREAD if stage.name in LAUNCHED_BY_THE_EPOCH else HOST_SPREAD
    is_busy = profile is not None and profile.split.work_us > BUSY * profile.split.total_us
    return HOST_SPREAD if known == "host" and not is_busy else GPU_SPREAD


def change_in_words(stage: StageResult, problem: ProblemRecord) -> str:
    """What the rung changes, short enough to stand beside it in a figure; the title of a stage without such words."""
    return in_network(stage.words or stage.title, problem)


def change_in_full(stage: StageResult, problem: ProblemRecord) -> str:
    """What the rung changes, in a line; shorter where its file does not say it."""
    summary = stage.doc.summary if stage.doc is not None else ""
    return in_network(summary, problem) or change_in_words(stage, problem)


def in_network(words: str, problem: ProblemRecord) -> str:
    """Words on a rung or a kernel, of this problem's network, which may have no hidden layer."""
    for pattern, instead in (WITH_HIDDEN if problem.hidden else WITHOUT_HIDDEN).items():
        words = pattern.sub(instead, words)
    return words
