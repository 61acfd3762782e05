"""A run as the terminal, the report and the page show it first: its verdict, its notices, a row for every stage."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ladder.records.run import Results, StageResult, Status
from reports.facts.grouped import grouped
from reports.facts.provenance import gpu_name, provenance
from reports.facts.run_table import MARKS, Row, heading, named, reason, rows, table_order
from reports.facts.verdict import verdict_sentences
from reports.facts.warnings import notices


@dataclass(frozen=True)
class Untimed:
    """Stages that did not pass, for one reason."""

    status: Status
    reason: str
    stages: list[StageResult]

    @property
    def names(self) -> list[str]:
        """The stages' names."""
        return [stage.name for stage in self.stages]


@dataclass(frozen=True)
class RunView:
    """A run, looked at once."""

    results: Results
    title: str
    heading: str  # the problem in one line
    provenance: str
    sentences: list[str]  # the verdict, at most three
    loud: list[str]  # notices that nobody may miss
    quiet: list[str]  # all others
    notices: list[str]  # both
    rows: list[Row]  # of every stage, in the order of the table
    untimed: list[Untimed]  # in the order of the table

    @property
    def marks(self) -> str:
        """The legend of the marks behind times; empty without any."""
        return MARKS if any(row.disturbed for row in self.rows) else ""

    def not_passed(self, *statuses: Status) -> list[Untimed]:
        """The stages with one of these statuses, by reason."""
        return [row for row in self.untimed if row.status in statuses]

    def figures(self, drawn: Collection[str]) -> list[str]:
        """The figures after the first one, which is the ladder's."""
        return [name for name in drawn if name != "ladder.svg"]


def run_view(results: Results) -> RunView:
    """A run's first look."""
    not_passed = (stage for stage in table_order(results) if stage.status != "passed")
    untimed = grouped(((stage.status, reason(stage)), stage) for stage in not_passed)
    told = notices(results)
    return RunView(
        results=results,
        title=f"{named(results.problem)}, batch {results.problem.batch_size}, on {gpu_name(results) or 'a CPU'}",
        heading=heading(results),
        provenance=provenance(results),
        sentences=verdict_sentences(results),
        loud=[notice.text for notice in told if notice.loud],
        quiet=[notice.text for notice in told if not notice.loud],
        notices=[notice.text for notice in told],
        rows=rows(results),
        untimed=[Untimed(status, why, stages) for (status, why), stages in untimed.items()],
    )
