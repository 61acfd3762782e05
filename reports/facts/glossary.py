"""The terms of reports in plain words, as `docs/glossary.md` explains them."""

from __future__ import annotations

import re
from functools import cache

from ladder.records.program import ROOT

TERM = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.MULTILINE)


@cache
def terms() -> dict[str, str]:
    """The meaning of each term, in the document's order; OSError without it."""
    return dict(TERM.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")))
