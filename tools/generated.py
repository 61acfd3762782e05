"""Write what repeats the code: `python -m tools.generated`.

That is the tree of all stages in stages/README.md, the table of kernels in stages/kernels/README.md, and the JSON
schemas of the files that runs leave, in docs/: msgspec derives them from `ladder.records.run.Results` and
`ladder.records.torch_run.TorchResults`, whose comments say what a field means.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from inspect import cleandoc
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import msgspec

from common.files import atomic_write
from common.vocabulary import ABLATIONS
from ladder.records import run, torch_run
from ladder.records.source_walk import Project
from ladder.records.used_code import UsedCode
from ladder.run.code_watch import Disk, place_of
from reports.markdown.all_documents import between
from stages.engine.stage import Doc, Stage
from stages.registry import Entry, load_all
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, kernels_in

PAGE = Path(__file__).resolve().parent.parent / "stages" / "README.md"
MAX_DESCRIPTION = 90  # characters

HEAD = """\
# Stages

<!-- Written by `python -m tools.generated` from the first lines of the files. Do not edit. -->

A *rung* is its parent with exactly one choice changed. Its file holds only that choice; the training step that all
rungs share is [engine/step.py](engine/step.py). Each file begins with four paragraphs: *Why* the parent is slow, the
*Change*, a prediction (*Expect*), and the measurement (*Found*). The kernels have a [page of their
own](kernels/README.md).

*GPU*: `sm_80` is an A100 or newer, `sm_90` an H100 or newer, `any` an sm_75 or newer. `python run_ladder.py list` tells
what runs on this machine.
"""

ABLATION = "It varies a choice that the ladder takes for granted: `--stages {group}` runs it, `all` leaves it out."
REFERENCES = """\
All but `torch-dataloader` compute loss and accuracy as sparsely as the best rungs. Do you know a faster idiomatic
version? Open an issue: a slow reference is a bug."""


def main() -> int:
    """Write all of it; returns the exit code."""
    for path, text in generated().items():
        atomic_write(path, text)
    return 0


def generated() -> dict[Path, str]:
    """Each file as it should be today; ReportError for one without its markers."""
    schemas = {path: as_text(schema(*SCHEMAS[path])) for path in SCHEMAS}
    return {PAGE: page(load_all().values()), README: with_table(README.read_text(encoding="utf-8")), **schemas}


def page(entries: Iterable[Entry]) -> str:
    """The whole page, with a table for each folder; references come last."""
    ordered = sorted(entries, key=lambda entry: _folder(entry) == "references")
    parents = {entry.stage.name: entry.stage.below for entry in ordered if entry.stage.recipe}
    sections = [HEAD, "```text\n" + "\n".join(tree(parents)) + "\n```\n"]
    for folder, members in groupby(ordered, key=_folder):
        table = list(members)
        sections.append(f"## {folder}\n\n{_about(folder, table[0])}\n\n" + "\n".join(_table(folder, table)) + "\n")
    return "\n".join(sections)


def tree(parents: dict[str, str | None]) -> list[str]:
    """Lines of a text tree from each name's parent; names without a fork between them share a line."""
    return [line for root, parent in parents.items() if parent is None for line in _branch(root, parents)]


def description(module: str) -> str:
    """What a stage's module changes: the first line of its docstring after the colon, without the full stop.

    Raises ValueError if the line has another form or is too long.
    """
    line = (importlib.import_module(module).__doc__ or "").partition("\n")[0]
    text = Doc.of_any(line).summary
    if not text or not line.endswith(".") or len(text) >= MAX_DESCRIPTION:
        raise ValueError(
            f"{module}: must begin with 'Name: what changes.', at most {MAX_DESCRIPTION} characters: {line}"
        )
    return text


def _branch(name: str, parents: dict[str, str | None]) -> Iterator[str]:
    chain, children = [name], _children(name, parents)
    while len(children) == 1:
        chain += children
        children = _children(chain[-1], parents)
    yield " ─ ".join(chain)
    for child in children:
        first, *rest = _branch(child, parents)
        is_last = child == children[-1]
        yield ("└─ " if is_last else "├─ ") + first
        yield from (("   " if is_last else "│  ") + line for line in rest)


def _children(name: str, parents: dict[str, str | None]) -> list[str]:
    return [child for child, parent in parents.items() if parent == name]


def _about(folder: str, first: Entry) -> str:
    """The folder's docstring, with a note on ablations and references."""
    text = (importlib.import_module(f"stages.{folder}").__doc__ or "").strip()
    group = first.stage.group
    note = ABLATION.format(group=group) if group in ABLATIONS else REFERENCES if group == "reference" else ""
    return f"{text}\n\n{note}".strip()


def _table(folder: str, members: list[Entry]) -> Iterator[str]:
    """Table lines: one row a module, which may hold several references."""
    is_rung = members[0].stage.recipe is not None
    yield "| stage | from | what changes | GPU |" if is_rung else "| stage | what it is |"
    yield "| --- | --- | --- | --- |" if is_rung else "| --- | --- |"
    for module, stages in groupby(members, key=_module):
        here = [entry.stage for entry in stages]
        file = f"{folder}/{module.rpartition('.')[2]}.py"
        cells = [", ".join(f"[`{stage.name}`]({file})" for stage in here), description(module)]
        if is_rung:
            cells.insert(1, f"`{here[0].below}`" if here[0].below else "")
            cells.append(gpu(here[0]))
        yield f"| {' | '.join(cells)} |"


def gpu(stage: Stage) -> str:
    """The GPU that a rung needs: `none`, `any`, or the least architecture, such as `sm_90`."""
    if "cuda" not in stage.needs:
        return "none"
    return max((need for need in stage.needs if need.startswith("sm_")), default="any")


def _module(entry: Entry) -> str:
    return entry.source.partition(":")[0]


def _folder(entry: Entry) -> str:
    return _module(entry).split(".")[1]


README = KERNELS_FOLDER / "README.md"
KERNEL = re.compile(r"__global__ void (?:__launch_bounds__ \( [^)]* \) )?(\w+) \(")
ENDS = "<!-- kernels:begin (python -m tools.generated) -->", "<!-- kernels:end -->"


def with_table(text: str) -> str:
    """The README with today's table between its markers; ReportError without markers."""
    return between(text, README, ENDS, "\n".join(_lines()))


def _lines() -> Iterator[str]:
    yield "| file | kernel | what it does | first used by |\n| --- | --- | --- | --- |"
    above = None
    for kernel in kernels_in(KERNELS_FOLDER):
        file = f"`{kernel.source.relative_to(KERNELS_FOLDER).as_posix()}`" if kernel.source != above else ""
        yield f"| {file} | `{kernel.name}` | {summary(kernel)} | `{first_user(kernel.name)}` |"
        above = kernel.source


def summary(kernel: Kernel) -> str:
    """The first sentence of a kernel's comment, without its name and its full stop."""
    text = " ".join(kernel.comment).removeprefix(f"{kernel.name}: ")
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]


@cache
def first_users() -> dict[str, str]:
    """The first stage on a GPU, in ladder order, that uses each kernel."""
    project, users = Project(Disk()), dict[str, str]()
    for name, entry in load_all().items():
        for form in chain(*UsedCode(place_of(entry.source), project).kernels.values()):
            for kernel in KERNEL.findall(form) if "cuda" in entry.stage.needs else ():
                users.setdefault(kernel, name)
    return users


def first_user(kernel: str) -> str:
    """The first stage that uses a kernel; ValueError if none does."""
    if kernel not in first_users():
        raise ValueError(f"{kernel}: no stage names it; launch it or delete it")
    return first_users()[kernel]


DOCS = Path(__file__).parents[1] / "docs"
SCHEMAS: dict[Path, tuple[type[msgspec.Struct], int]] = {
    DOCS / "results.schema.json": (run.Results, run.SCHEMA_VERSION),
    DOCS / "torch.schema.json": (torch_run.TorchResults, torch_run.SCHEMA_VERSION),
}


def _of_any_version(part: Any) -> Any:
    """A part of a schema as every msgspec makes it: 0.23 cleans docstrings, and adds the names that a dict may have."""
    if isinstance(part, list):
        return [_of_any_version(item) for item in part]
    if not isinstance(part, dict):
        return part
    cleaned = {name: _of_any_version(value) for name, value in part.items() if name != "propertyNames"}
    if isinstance(cleaned.get("description"), str):
        cleaned["description"] = cleandoc(cleaned["description"])
    return cleaned


def schema(record: type[msgspec.Struct], version: int) -> dict[str, Any]:
    """The schema of a record, draft 2020-12, with its version."""
    described = _of_any_version(msgspec.json.schema(record))
    described["$defs"][record.__name__]["properties"]["schema_version"] = {"const": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"schema version {version}; written by python -m tools.generated",
        **described,
    }


def as_text(described: dict[str, Any]) -> str:
    """A schema as its file has it."""
    return json.dumps(described, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
