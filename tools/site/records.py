"""The recorded runs and studies of a checkout, and the addresses of their pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ladder.records.run import Results, all_results, load
from ladder.records.study import INDEX
from reports.explorer.page import compared_problem
from reports.facts.provenance import machine_name
from reports.facts.study_points import StudyResults, load_results
from reports.facts.times import step_us
from reports.markdown import climb

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

    def beside(self, results: Results) -> Results | None:
        """The recording to show beside a run: another run of its problem, or a study's point; None without one.

        One of the same machine comes first, then the one that timed most of the run's stages, then the newest. A study
        of seeds is about losses: its runs are too short for their times to stand beside others.
        """
        studies = [study for study in self.studies.values() if "seed" not in study.study.varied]
        points = [run for study in studies for run in study.runs.values()]
        alike = [
            other
            for other in (*self.runs.values(), *points)
            if compared_problem(other) == compared_problem(results)
            and other.created != results.created
            and _timed(other) & _timed(results)
        ]
        own = machine_name(results)
        order = [(machine_name(run) == own, len(_timed(run) & _timed(results)), run.created) for run in alike]
        return alike[order.index(max(order))] if alike else None


def _timed(results: Results) -> set[str]:
    return {stage.name for stage in results.stages if step_us(stage) is not None}


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
