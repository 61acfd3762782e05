"""What the author of a stage found, in the words of its file today: a record may be older than the insight."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache

from ladder.records.program import ROOT
from ladder.records.run import StageResult
from ladder.records.source_walk import Project

FOUND = re.compile(r"^Found:(.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"\{[\w -]+\}")  # such as {784-10}: older files had numbers filled in


def found_of(stage: StageResult) -> str:
    """A stage's *Found* by its file here; else the recorded one, without sentences that have a place for a number."""
    recorded = stage.doc.found if stage.doc is not None else ""
    told = (sentence for sentence in re.split(r"(?<=\.) ", recorded) if not PLACE.search(sentence))
    return found_today().get(stage.name) or " ".join(told)


@cache
def found_today() -> Mapping[str, str]:
    """The *Found* of each stage of this checkout that has one, by name."""
    files = (ROOT / "stages").rglob("*.py")
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    docs = {
        name: ast.get_docstring(ast.parse(texts[place.partition(":")[0]])) or ""
        for name, place in Project(texts).stages.items()
    }
    return {name: " ".join(found[1].split()) for name, doc in docs.items() if (found := FOUND.search(doc))}
