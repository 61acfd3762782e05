"""The documents that show the recorded runs: what stands between a block's two markers is written anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ladder.records.program import atomic_write
from ladder.records.run import StageCode
from ladder.records.study import Study
from reports.markdown.climb import chapters
from reports.markdown.own_models import own_model_block, own_models_block
from reports.markdown.readme import (
    RecordedRuns,
    cpu_block,
    gpus_block,
    ladder_block,
    leads_block,
    leads_table,
    networks_block,
    pictures,
    pictures_block,
    published_block,
    recorded_code_block,
    repeats_block,
)
from reports.report_error import ReportError

BLOCKS: dict[str, Callable[[RecordedRuns, Path], str]] = {  # by the names in their markers
    "picture": lambda records, page: pictures_block(pictures(records.runs(page), records.reference)),
    "ladder": lambda records, page: ladder_block(records.runs(page)),
    "networks": lambda records, page: networks_block(records.runs(page)),
    "gpus": lambda records, page: gpus_block(records.runs(page)),
    "repeats": lambda records, _: repeats_block(records.reference),
    "cpu": lambda records, page: cpu_block(records.runs(page, on_cpu=True)),
    "leads": lambda records, page: leads_block(records.runs(page), records.studies),
    "study-leads": lambda records, _: leads_table(records.studies),
    "published": lambda records, _: published_block(records.plans, records.studies),
    "recorded": lambda records, _: recorded_code_block(records.reference, records.code_today),
    "own-model": lambda records, page: own_model_block(records.reference, page),
    "own-models": lambda records, page: own_models_block(records.reference, page),
}
README, ITS_BLOCK = "README.md", "ladder"


def markers(block: str) -> tuple[str, str]:
    """What a block stands between."""
    return f"<!-- {block}:begin -->", f"<!-- {block}:end -->"


def documents(
    root: Path, reference: Path, plans: Sequence[Study] = (), code_today: Mapping[str, StageCode] | None = None
) -> Iterator[tuple[Path, str]]:
    """README, the pages of `docs/` and the files of the climb, each with the text that it should have.

    Raises ReportError for markers that are missing, and for a chapter that the recorded runs do not support;
    ResultsError or OSError for a record that cannot be read.
    """
    records = RecordedRuns(reference, plans, code_today)
    for page in (root / README, *sorted((root / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for name, block in BLOCKS.items():
            if markers(name)[0] in text or (page.name == README and page.parent == root and name == ITS_BLOCK):
                text = between(text, page, markers(name), block(records, page))
        yield page, text
    drawn = pictures(records.runs(root / README), reference).values()
    yield from ((root / file, canvas.svg()) for _, file, canvas in drawn)
    yield from chapters(root / "docs" / "climb", reference)


def outdated(documents: Iterable[tuple[Path, str]]) -> dict[Path, str]:
    """Those of these documents whose file has another text, or is missing."""
    return {page: text for page, text in documents if not page.exists() or page.read_text(encoding="utf-8") != text}


def update_documents(
    root: Path, reference: Path, plans: Sequence[Study] = (), code_today: Mapping[str, StageCode] | None = None
) -> bool:
    """Write the recorded runs into README.md and docs/; returns whether a document changed. Raises as `documents`."""
    changed = outdated(documents(root, reference, plans, code_today))
    for page, text in changed.items():
        page.parent.mkdir(exist_ok=True)
        atomic_write(page, text)
    return bool(changed)


def between(text: str, page: Path, ends: tuple[str, str], block: str) -> str:
    """The page's text with a block between two markers; ReportError without them."""
    first, last = ends
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ReportError(f"{page}: has no {first} followed by {last}; put both where the table belongs")
    inside = f"\n\n{block}\n\n" if block else "\n"
    return f"{before}{first}{inside}{last}{after}"
