"""The recorded runs and studies of a checkout, and the addresses of their pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ladder.records.run import Results, load
from ladder.records.study import INDEX
from reports.facts.study import StudyResults, load_results

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path("results") / "reference"


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
    """The records of a checkout; ResultsError if one cannot be read."""
    found = Records(root, {}, {}, {})
    for path in sorted((root / REFERENCE).glob("*/*/results.json")):
        address = found.page_of(path)
        found.runs[address], found.folders[address] = load(path), path.parent
    for path in sorted((root / REFERENCE).glob(f"*/studies/*/{INDEX}")):
        found.studies[found.page_of(path)] = load_results(path.parent)
    return found
