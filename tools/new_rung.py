"""Lay out a rung: `python -m tools.new_rung my-gemm --from cublas --part gemm`, or `make rung`.

The rung has a file, and a line in the registry below its parent. It trains as its parent does until its part differs.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from common.errors import UsageError
from common.vocabulary import STAGE_NAME
from stages.engine.recipe import Recipe
from stages.registry import Entry, find, load_all

ROOT = Path(__file__).resolve().parent.parent
PARTS = [field.name for field in fields(Recipe)]
TEXT = '''"""{title}: what changes, in one line.

Why: what makes `{below}` slow.

Change: {part}. What this rung does instead.

Expect: how long a step of 784-10 takes, in us, and why.
"""

from __future__ import annotations

{imports}


class {own}({chosen}):
    """What it does."""


STAGE = {module}.STAGE.climb(
    "{name}", "{title}", group="{group}", words="what changes, in few words", {part}={own}
)
'''


def main(argv: list[str] | None = None) -> int:
    """Write the rung's file and its line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.new_rung", description="Lay out a rung.")
    parser.add_argument("name", help="its id, such as my-gemm")
    parser.add_argument("--from", dest="below", required=True, help="the rung that it climbs from, such as cublas")
    parser.add_argument("--part", required=True, choices=PARTS, help="the part that it changes")
    given = parser.parse_args(argv)
    try:
        file = laid_out(given.name, find(given.below), given.part)
    except UsageError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{file.relative_to(ROOT)}: write what changes, and why; then python -m tools.generated")
    return 0


def laid_out(name: str, below: Entry, part: str) -> Path:
    """The new file; UsageError for a name that is taken or none, and for a parent that is no rung."""
    module, _, attribute = below.source.partition(":")
    package, stem = module.rsplit(".", 1)
    if not STAGE_NAME.fullmatch(name) or name in load_all():
        raise UsageError(f"{name}: a rung needs an id of its own, of small letters, digits and hyphens")
    if below.stage.recipe is None or attribute != "STAGE":
        raise UsageError(f"--from {below.stage.name}: is no rung; name one of `run_ladder.py list`")
    short = name.removeprefix(f"{package.rpartition('.')[2]}-")  # of cpu-my-gemm, in stages/cpu
    file = ROOT / package.replace(".", "/") / f"{short.replace('-', '_')}.py"
    chosen = below.stage.recipe.parts()[part]
    own = "".join(word.capitalize() for word in name.removesuffix(f"-{part}").split("-")) + part.capitalize()
    imports = sorted({f"from {package} import {stem}", f"from {chosen.__module__} import {chosen.__name__}"})
    group = "beyond" if below.stage.group == "ladder" else below.stage.group
    title = short.replace("-", " ").capitalize()
    words = {"title": title, "below": below.stage.name, "part": part, "imports": "\n".join(imports), "own": own}
    file.write_text(TEXT.format(**words, chosen=chosen.__name__, module=stem, name=name, group=group), encoding="utf-8")
    registry = ROOT / "stages/registry.py"
    after = f'    "{last_of_family(below)}",\n'
    line = f'    "{package}.{file.stem}:STAGE",\n'
    registry.write_text(registry.read_text(encoding="utf-8").replace(after, after + line), encoding="utf-8")
    return file


def last_of_family(below: Entry) -> str:
    """The source of the last rung that stands on this one, in its folder: what is laid out comes after it."""
    entries, folder = load_all(), below.source.rpartition(".")[0]

    def stands_on(entry: Entry) -> bool:
        name: str | None = entry.stage.name
        while name is not None and name != below.stage.name:
            name = entries[name].stage.below
        return name is not None

    family = [each.source for each in entries.values() if stands_on(each)]
    return [source for source in family if source.rpartition(".")[0] == folder][-1]


if __name__ == "__main__":
    sys.exit(main())
