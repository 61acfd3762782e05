"""The tables of a run's details, columns, parts of a step, changes, limitsand machine."""

from __future__ import annotations

import pytest

from ladder.records.run import Results
from reports.screens.details import details
from tests.reports import sample
from tests.reports.reporting import rows_of, table_below


def rows(run: Results, title: str) -> list[dict[str, str]]:
    return rows_of(table_below(details(run), title))


def test_the_parts_of_every_profiled_step_add_up() -> None:
    found = [list(row.values()) for row in rows(sample.results(), "Where a step's time goes")]
    assert found[0] == ["naive", "38.0", "1.0", "6.0", "20.0", "20.0", "85.0", "85.5", "+10%"]
    assert len(found) == 6
    for line in found:
        assert sum(map(float, line[1:6])) == pytest.approx(float(line[6]))
