"""The numbers of a stage's *Found*, filled in from the recorded runs: the sentence is the author's, no number is typed.

    Found: on an H200: {784-10} us instead of {cudnn-softmax 784-10} for 784-10, {x 784-10} times as fast.

`{NETWORK}` is the stage's own microseconds a step, `{STAGE NETWORK}` another stage's, `{to STAGE NETWORK}` the
difference to it, such as `4 % less`, and `{x NETWORK}` how many times as fast as the rung that it climbs from the stage
is. A rung of the CPU's ladder takes them from recorded runs on a CPU, any other stage from runs on the GPU that the
sentence names first.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from ladder.records.program import ROOT
from ladder.records.run import Results, StageResult, all_results, load_once
from ladder.records.source_walk import registered
from reports.facts import numbers
from reports.facts.baselines import ratio
from reports.facts.predictions import expanded
from reports.facts.provenance import gpu_name, machine_name
from reports.facts.times import median_us

RECORDED = ROOT / "results" / "reference"
GPU = re.compile(r"\b[A-Z]+\d+\b")  # such as H200, in a sentence and in the name of a machine
PLACE = re.compile(r"\{(?P<to>to )?(?:(?P<of>[a-z][\w-]*) )?(?P<network>\d[\dx-]*)\}")
UNKNOWN = "(not recorded)"
FOUND = re.compile(r"^Found:(.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def found_of(stage: StageResult, recorded: Path = RECORDED, told_now: Mapping[str, str] = MappingProxyType({})) -> str:
    """A stage's *Found* with its numbers; `(not recorded)` where no run has one; empty without a *Found*.

    An older record's words may not fit newer numbers: `told_now` has the present ones by name.
    """
    text = stage.doc.found if stage.doc is not None else ""
    text = told_now.get(stage.name, text) if PLACE.search(text) else text
    runs = recorded_networks(recorded, text, on_gpu=stage.group != "cpu") if PLACE.search(text) else {}
    return PLACE.sub(lambda place: _number(stage, runs, place["of"] or "", place["network"], bool(place["to"])), text)


def _number(stage: StageResult, runs: Mapping[str, Results], of: str, network: str, differs: bool) -> str:
    stages = {stage.name: stage for stage in run.stages} if (run := runs.get(expanded(network))) is not None else {}
    if of == "x":
        own = stages.get(stage.name)
        factor = ratio(stages.get(stage.below or ""), own) if own is not None else None
        return numbers.ratio(factor.times).removesuffix("x") if factor is not None else UNKNOWN
    us = median_us(stages.get(of or stage.name))
    if differs:
        own_us = median_us(stages.get(stage.name))
        return _difference(own_us / us - 1) if own_us is not None and us is not None else UNKNOWN
    return numbers.microseconds(us) if us is not None else UNKNOWN


@cache
def told_now() -> Mapping[str, str]:
    """The *Found* of each stage of this checkout that has one, by name, without its numbers."""
    files = (ROOT / "stages").rglob("*.py")
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    docs = {
        name: ast.get_docstring(ast.parse(texts[place.partition(":")[0]])) or ""
        for name, place in registered(texts).items()
    }
    return {name: " ".join(found[1].split()) for name, doc in docs.items() if (found := FOUND.search(doc))}


def _difference(share: float) -> str:
    percent = round(abs(share) * 100)
    return f"{percent} % {'more' if share > 0 else 'less'}" if percent else "as much"


def recorded_networks(recorded: Path, text: str, *, on_gpu: bool) -> Mapping[str, Results]:
    """The recorded run of each network on the GPU that `text` names first, or else on the machine that has most.

    A sentence of *Found* tells of one machine: two would not agree with it. Raises ResultsError for an unusable file.
    """
    runs = [run for run in map(load_once, all_results(recorded, "*/*")) if bool(gpu_name(run)) == on_gpu]
    machines = [machine for machine, _ in Counter(map(machine_name, runs)).most_common()]
    named = [machine for gpu in GPU.findall(text) for machine in machines if gpu in GPU.findall(machine)]
    return {run.problem.network: run for run in reversed(runs) if machine_name(run) == [*named, *machines][0]}
