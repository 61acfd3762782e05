"""The documents that show the recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ladder.records.study import Study
from reports.markdown.climb import update_climb
from reports.markdown.leads import update_leads
from reports.markdown.method_limits import update_limits
from reports.markdown.readme import update_readme
from reports.markdown.readme_published import update_published


def update_documents(root: Path, reference: Path, plans: Sequence[Study]) -> bool:
    """Write the recorded runs into README.md and docs/; returns whether a document changed.

    Raises ClimbError, ReadmeError, ResultsError or OSError.
    """
    readme = root / "README.md"
    changed = update_readme(readme, reference)
    changed |= update_published(root / "docs" / "studies.md", reference, plans)
    changed |= update_leads(readme, root / "docs" / "studies.md", reference)
    changed |= update_climb(root / "docs" / "climb", reference)
    return update_limits(root / "docs" / "method.md", readme, reference) or changed
