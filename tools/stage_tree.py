"""Write stages/README.md, the tree of all stages: `python -m tools.stage_tree`; `--check` only compares.

Each stage's description is the first line of its file, after the colon. Each folder's is its `__init__.py`'s.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from common.vocabulary import ABLATIONS
from stages.engine.stage import Doc, Stage
from stages.registry import Entry, load_all

PAGE = Path(__file__).resolve().parent.parent / "stages" / "README.md"
MAX_DESCRIPTION = 90  # characters

HEAD = """\
# Stages

<!-- Written by `python -m tools.stage_tree` from the first lines of the files. Do not edit. -->

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


def main(argv: list[str] | None = None) -> int:
    """Write the page, or with `--check` compare it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.stage_tree", description="Write stages/README.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is out of date")
    options = parser.parse_args(argv)
    text = page(load_all().values())
    if options.check:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name}: out of date; run python -m tools.stage_tree", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8", newline="\n")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
