"""Keeps the code of a run's stages beside its results, as it is when the run begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ladder.records.sources import collected, keep
from ladder.run.sources import ROOT
from stages.registry import Entry

FOLDER = "stages"
SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h")


def keep_sources(chosen: Sequence[Entry], entries: Mapping[str, Entry], folder: Path) -> None:
    """Write the sources of the chosen stages, and of the rungs that they climb from, into the run's folder."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in (ROOT / FOLDER).rglob("*")
        if path.suffix in SUFFIXES
    }
    places = {}
    for entry in chosen:
        one: Entry | None = entry
        while one is not None and one.stage.name not in places:
            places[one.stage.name] = _place(one, texts)
            one = entries.get(one.stage.below or "")
    keep(collected(texts, {name: place for name, place in places.items() if place.partition(":")[0] in texts}), folder)


def _place(entry: Entry, texts: dict[str, str]) -> str:
    """The stage's `path:attribute`; the texts get a user's file, under its name alone, and the files that it names."""
    module, _, attribute = entry.source.rpartition(":")
    if "/" not in module:
        path = f"{module.replace('.', '/')}.py"
        if path not in texts and (ROOT / path).is_file():  # a stage from elsewhere in the project, such as its tests
            texts[path] = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        return f"{path}:{attribute}"
    own = Path(module)
    text = own.read_text(encoding="utf-8", errors="replace")
    for beside in own.parent.iterdir():
        if beside.suffix in SUFFIXES and beside.is_file() and (beside == own or beside.stem in text):
            texts[beside.name] = beside.read_text(encoding="utf-8", errors="replace")
    texts[own.name] = text
    return f"{own.name}:{attribute}"
