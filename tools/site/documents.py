"""The documents that MkDocs renders: copies of the repository's own, pages of the site alone, and what was recorded."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ladder.records.exactness import AS_EXACT
from ladder.records.run import Results, all_results, load
from ladder.records.study import INDEX
from reports.facts import numbers
from reports.facts.baselines import overall_winner
from reports.facts.numbers import line
from reports.facts.provenance import machine_name
from reports.facts.run_table import MARKS
from reports.facts.study_points import StudyResults, load_results
from reports.facts.times import step_us
from reports.figures.chart import PAGE, PHONE
from reports.figures.ladder import drawn
from reports.markdown import climb
from reports.writers.html import both
from reports.writers.markdown import cell
from tools.site.advised import advised

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path("results") / "reference"
STUDIES = f"*/studies/*/{INDEX}"


@dataclass(frozen=True)
class Records:
    """Everything recorded in a checkout, by the address of its page in the site."""

    root: Path
    runs: dict[str, Results]
    folders: dict[str, Path]  # of the runs
    studies: dict[str, StudyResults]

    def page_of(self, record: Path) -> str:
        """The address of the page of a recorded run's or study's file."""
        gpu, name, *rest = record.relative_to(self.root / REFERENCE).parts
        return f"studies/{gpu}-{rest[0]}.html" if name == "studies" else f"runs/{gpu}-{name}.html"


def read(root: Path) -> Records:
    """The records of a checkout, each study of the GPU that was recorded last, or of the chapters'; or ResultsError."""
    records = Records(root, {}, {}, {})
    for path in all_results(root / REFERENCE, "*/*"):
        address = records.page_of(path)
        records.runs[address], records.folders[address] = load(path), path.parent
    studies = [(records.page_of(path), load_results(path.parent)) for path in (root / REFERENCE).glob(STUDIES)]
    newest = {study.study.name: page for page, study in sorted(studies, key=lambda one: one[1].study.created)}
    shown = {*newest.values(), *(f"studies/{of}-{name}.html" for name, of in climb.STUDIES.items())}
    records.studies.update((page, study) for page, study in sorted(studies) if page in shown)
    return records


FIRST = "runs/h100-80gb-hbm3-logistic.html"  # the run whose picture the front page shows
LINK = re.compile(r"(\]\(|src=\"|srcset=\")(?P<address>[^)\"#\s]+)(?P<place>#[^)\"\s]*)?(?: \"(?P<rung>[^\"]+)\")?")
PICTURE = re.compile(r"<!-- picture:begin -->.*<!-- picture:end -->", re.DOTALL)
ENTRANCES = """## What would it buy on your network?

{advised}
<div>
<p class="entrances">
<a href="docs/climb/index.html">Climb it in fifteen chapters</a>
<a href="{run}#lesson">Guess each rung</a>
</p>"""


def navigation() -> Iterator[tuple[str, str]]:
    """The title and the file of each page that every other one links to."""
    yield "The ladder", "README.md"
    yield "Climb", "docs/climb/README.md"
    yield "Runs", "runs.md"
    yield "Stages", "stages/README.md"
    yield "Commands", "docs/commands.md"
    yield "Method", "docs/method.md"
    yield "Notebook", "docs/notebook/README.md"
    yield "Glossary", "docs/glossary.md"


def write_documents(records: Records, pages: Path) -> None:
    """Copy README and every document, figure and file of code that one of them links to; add the site's own."""
    root = records.root
    waiting, seen = [root / "README.md"], set[Path]()
    while waiting:
        source = waiting.pop()
        seen.add(source)
        target = pages / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copyfile(source, target)
            continue
        text = LINK.sub(partial(_to_page, source, records), source.read_text(encoding="utf-8"))
        text = text.replace("<details>", '<details markdown="1">')  # or MkDocs shows what is inside as it is written
        target.write_text(text, encoding="utf-8")
        targets = {(source.parent / link["address"]).resolve() for link in LINK.finditer(text)}
        waiting += [path for path in targets - seen if path.is_file() and path.is_relative_to(root)]
    front = pages / "README.md"
    front.write_text(PICTURE.sub(lambda _: _entrance(records), front.read_text(encoding="utf-8")), encoding="utf-8")
    (pages / "runs.md").write_text("\n".join(index(records)) + "\n", encoding="utf-8")


def _to_page(source: Path, records: Records, link: re.Match[str]) -> str:
    """A link as it is, but one to a record or its report leads to the page of its run or study, to the rung there.

    That is the rung of the heading, or of the link's title, where a heading is that of several.
    """
    target = (source.parent / link["address"]).resolve()
    if target.suffix != ".json" and target.name != "report.md":
        return link[0]
    if not target.is_file() or not target.is_relative_to(records.root / REFERENCE):
        return link[0]
    address = records.page_of(target)
    if address not in records.runs and address not in records.studies:
        return link[0]
    page = os.path.relpath(records.root / address, source.parent)
    place = f"#{link['rung']}-" if link["rung"] else link["place"] or ""
    return f"{link[1]}{page}{_rung_place(records, address, place)}"


def _rung_place(records: Records, address: str, place: str) -> str:
    """The place of a rung on its run's page, by the place of its heading in the run's report; empty for any other."""
    stages = records.runs[address].stages if address in records.runs else []
    name = max((stage.name for stage in stages if place.startswith(f"#{stage.name}-")), key=len, default="")
    return name and f"#{name}"


def _entrance(records: Records) -> str:
    """What `advise` says, the ways in, and the picture, whose rungs lead to their places on the page of the run."""
    wide, narrow = (drawn(records.runs[FIRST], replace(layout, page=FIRST)) for layout in (PAGE, PHONE))
    pictures = "\n".join(both(wide, narrow, "wide large"))
    entrances = ENTRANCES.format(run=FIRST, advised="\n".join(advised()))
    return f'{entrances}\n{pictures}\n<p class="note">{MARKS}</p>\n</div>'


def index(records: Records) -> Iterator[str]:
    """The page of all runs and studies, as Markdown."""
    yield "# Recorded runs and studies\n"
    yield "Each run opens as a ladder to climb by clicking: guess a rung, then see code, timelines and checks.\n"
    yield "## Runs\n"
    yield f"| Machine | Network | Batch | Fastest rung | us/step | Lead over the fastest reference {AS_EXACT} |"
    yield "| --- | --- | ---: | --- | ---: | --- |"
    for address, results in records.runs.items():
        problem, winner = results.problem, overall_winner(results)
        timed = step_us(winner.stage) if winner is not None else None
        cells = [cell(machine_name(results)), f"[{problem.network}]({address})", str(problem.batch_size)]
        if winner is not None and timed is not None:
            cells += [f"`{winner.stage.name}`", numbers.microseconds(timed.median)]
            cells += [f"{winner.ratio.text}, `{winner.reference.name}`{', GPU time' * winner.on_gpu_time}"]
        yield f"| {' | '.join(cells)} |"
    yield "\n## Studies\n"
    for address, study in records.studies.items():
        machines = line(", ".join(sorted({machine_name(run) for run in study.runs.values()})))
        yield f"- [{line(study.study.title)}]({address}) ({numbers.count(len(study.measured), 'point')}, {machines})"
