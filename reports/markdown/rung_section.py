"""A report's short screen of a rung: predicted, measured, what moved, what bounds it now. Its page has the rest."""

from __future__ import annotations

from collections.abc import Iterator

from reports.facts import numbers
from reports.facts.numbers import line
from reports.markdown.tables import cell, table
from reports.views.rung_view import RungView


def rung_section(rung: RungView) -> Iterator[str]:
    """One rung, without its parent if that was not timed."""
    stage = rung.stage
    yield f"### `{stage.name}`: {line(rung.title)}"
    if stage.below:
        yield f"From `{stage.below}`: {line(rung.change_in_full)}."
    if rung.reason:
        yield f"**{stage.status.capitalize()}**: {line(rung.reason)}"
        return
    factor = rung.versus_parent
    if rung.us and (rung.predicted or factor):
        measured = f"{rung.us} us" + (f", {factor.saying(f' of `{stage.below}`')}" if factor is not None else "")
        cells = (cell(rung.predicted) or numbers.MISSING, cell(measured), cell(rung.verdict) or numbers.MISSING)
        yield table(("Predicted", "Measured", "Verdict"), [cells])
    if rung.moved:
        yield f"**Moved:** {line(rung.moved)}"
    if rung.overlap:
        yield line(rung.overlap)
    if rung.advice is not None:
        yield f"**Bound now:** {line(str(rung.advice))}"
