"""The columns of every table of stages: an entry is a column of the terminal, the page, the report and other programs.

Tables keep the order of the entries, and leave out a column that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.energy import joules, reached_in_words, to_accuracy
from reports.facts.launch_regimes import change_in_words
from reports.facts.ratios import Ratio
from reports.facts.run_table import LACKING, disturbed_in_words, title_of
from reports.facts.stage_facts import StageFacts
from reports.screens.blocks import Column, ColumnOf, Table, Tone, plain_rows

FROM, BEST = "over\nparent", "over\nbest"  # headers
ABOUT = "≈"  # before a ratio that is within the noise
STAR = "*"  # beside a time, or after its first remark: more remarks than have room
UNDECIDED = "passed?"
STATUS: dict[str, Tone] = {"passed": "good", "failed": "bad", "crashed": "bad", "skipped": "quiet"}
Text = Callable[[StageFacts], str]


@dataclass(frozen=True)
class StageColumn(ColumnOf[StageFacts]):
    """Something that tables tell of each stage, in every form that it has."""

    header: str = ""  # on the terminal; empty: not there
    text: Text = str
    is_number: bool = True
    page: str = ""  # the header on the page and in the report; empty: not there
    full: Text | None = None  # there, where more has room
    report: Text | bool = False  # in the report; True: as on the page

    def on_page(self, rows: Sequence[StageFacts], text: Text | bool = True) -> Column:
        """The column of a page, or of a report."""
        form = text if callable(text) else self.full or self.text
        return Column(self.page, list(map(form, rows)), is_number=self.is_number)


def measured(key: str, form: Callable[[Any], str], header: str = "", rank: int = 0, **others: Any) -> StageColumn:
    """A column of a property of `StageFacts`, which is its JSON key as well."""
    return StageColumn(header, lambda row: form(getattr(row, key)), rank, data={key: attrgetter(key)}, **others)


def stage_columns(results: Results) -> list[StageColumn]:
    """Every column that tables of this run may have."""
    target = results.settings.target_accuracy
    # fmt: off
    remarked = StageColumn("", lambda row: ", ".join(remarks(row).values()), 15, is_number=False, tone="doubtful")
    brief = StageColumn("", _first_remark, 2, is_number=False, tone="doubtful", wider=remarked)
    in_words = StageColumn("checked", lambda row: _checked(row, in_words=True), 7, is_number=False, tone="doubtful",
                           tones=STATUS)
    return [
        measured("name", str, "rung", page="Stage", report=lambda row: f"`{row.name}`", is_number=False),
        StageColumn(data={"is_reference": attrgetter("is_reference")}),
        StageColumn("", lambda row: title_of(row.stage), page="Title", is_number=False,
                    data={"title": lambda row: title_of(row.stage)}),
        StageColumn("", lambda row: numbers.precision(row.stage.precision), page="Precision", is_number=False,
                    report=True, data={"precision": attrgetter("stage.precision")}),
        StageColumn("parent", _parent, 4, is_number=False, tone="quiet", page="Parent",
                    report=lambda row: f"`{_parent(row)}`" if _parent(row) else "",
                    data={"from": attrgetter("stage.below")}),
        measured("step_us", numbers.microseconds, "us/step", 0, tone="strong", page="us/step",
                 full=attrgetter("step"), report=True),
        StageColumn("", lambda row: STAR if remarks(row) else "", is_number=False, tone="doubtful", wider=brief,
                    data={"throttled": attrgetter("throttled"), "disturbed": attrgetter("disturbed_word"),
                          "processes_disturbed": attrgetter("processes_disturbed")}),
        measured("network_us", _of_several, "us per\nnetwork", 0, page="us per network-step",
                 report=lambda row: numbers.microseconds(row.network_us)),
        measured("learned_best", str, "learned best", 2, page="Learned best", report=True, is_number=False),
        StageColumn("", lambda row: numbers.cycles(row.step_cycles), page="Cycles/step"),
        StageColumn(FROM, lambda row: _ratio(row.versus_parent, ABOUT), 1, page="Speedup over parent",
                    full=lambda row: _whole(row.versus_parent), report=True,
                    data={"times_from": lambda row: row.versus_parent and row.versus_parent.times,
                          "times_from_is_noise": lambda row: row.versus_parent and row.versus_parent.is_noise}),
        StageColumn("", lambda row: numbers.ratio(row.versus_naive), page="Speedup over naive"),
        # The page and the report compare rungs alone: a reference's own best may be another one than a rung's.
        StageColumn(BEST, lambda row: _ratio(row.lead.ratio if row.lead else None, ABOUT if _best(row) else ""), 5,
                    page="Speedup over the fastest reference",
                    full=lambda row: "" if row.is_reference or row.lead is None else row.lead.text, report=True,
                    data={"times_reference": lambda row: row.lead and row.lead.ratio.times}),
        StageColumn("checked", _checked, 3, is_number=False, tone="doubtful", tones=STATUS, wider=in_words,
                    page="Checked", full=attrgetter("verdict"),
                    report=lambda row: f"{row.stage.status}{LACKING}" if row.lacks_a_check else row.verdict,
                    data={"status": attrgetter("stage.status"), "verdict": attrgetter("verdict"),
                          "checks_not_made": attrgetter("stage.not_made"),
                          "lacks_a_check": attrgetter("lacks_a_check"), "undecided": attrgetter("is_undecided")}),
        StageColumn("what it changes", lambda row: change_in_words(row.stage, row.results.problem), 6,
                    is_number=False, tone="quiet"),
        StageColumn("best reference", _best, 8, is_number=False, tone="quiet",
                    data={"reference": lambda row: row.lead and row.lead.reference.name}),
        StageColumn("J/epoch", lambda row: joules(row.stage.energy.joules) if row.stage.energy else "", 2,
                    data={"energy": attrgetter("stage.energy")}),
        StageColumn(f"to {numbers.share(target)}" if target else "", lambda row: reached_in_words(row.stage, target), 2,
                    data={"to_accuracy": lambda row: to_accuracy(row.stage, target)}),
        measured("test_accuracy", numbers.percent, "accuracy", 9, page="Test accuracy", full=attrgetter("accuracy")),
        measured("epoch_s", numbers.spread_milliseconds, "ms/epoch\n(min-max)", 10, page="ms/epoch (min-max)",
                 full=attrgetter("times")),
        measured("launches_per_step", numbers.per_step, "launches\nper step", 11, page="Launches/step"),
        measured("times_floor", numbers.ratio, "x of\nits floor", 12, page="x floor"),
        measured("times_cheat_limit", numbers.ratio, page="x cheat limit"),
        measured("gpu_memory_mib", numbers.memory, "memory", 13, page="GPU memory"),
        measured("prepare_s", numbers.seconds, "prepare", 14, page="Prepare"),
    ]
    # fmt: on


def stage_table(results: Results, rows: Sequence[StageFacts], note: Callable[[Sequence[str]], str]) -> Table:
    """The table of a screen."""
    columns = [column for column in stage_columns(results) if column.header or column.wider]
    return Table([column.over(rows) for column in columns], headings(rows), note)


def report_table(results: Results, rows: Sequence[StageFacts]) -> Table:
    """The table of a report."""
    return Table([column.on_page(rows, column.report) for column in stage_columns(results) if column.report],
                 headings(rows))  # fmt: skip


def page_table(results: Results, rows: Sequence[StageFacts]) -> Table:
    """The table of a page."""
    return Table([column.on_page(rows) for column in stage_columns(results) if column.page])


def row_facts(results: Results, rows: Sequence[StageFacts]) -> list[dict[str, Any]]:
    """The rows as plain data; the times of a stage without one are null."""
    return plain_rows(rows, stage_columns(results))


def headings(rows: Sequence[StageFacts]) -> dict[int, str]:
    """The heading of each block but the ladder's, by the number of its first row."""
    firsts = [next(members) for _, members in groupby(enumerate(rows), key=lambda pair: pair[1].block)]
    return {number: row.block for number, row in firsts if row.block}


def remarks(row: StageFacts) -> dict[str, str]:
    """Why a time is to be read with care, in a word and in full: `disturbed`, `1 of 2 disturbed`."""
    if row.step_us is None:
        return {}
    told = {"throttled": "throttled"} if row.throttled else {}
    if disturbed := disturbed_in_words(row.stage):
        told["disturbed"] = disturbed
    if row.shortened:
        told["shortened"] = f"shortened to {row.shortened}"
    if row.stage.expected and row.stage.expected.remark:
        told["may lose"] = row.stage.expected.remark
    return told


def _first_remark(row: StageFacts) -> str:
    told = remarks(row)
    return f"{next(iter(told), '')}{STAR * (len(told) > 1)}"


def _checked(row: StageFacts, *, in_words: bool = False) -> str:
    """The status; marked if rounding decides a check that the stage passed, or some checks were not made."""
    stage = row.stage
    lacking = len(row.not_made)
    told = row.verdict.removeprefix(stage.status) if in_words else f" -{lacking}"
    return f"{UNDECIDED if row.is_undecided else stage.status}{told if lacking else ''}"


def _parent(row: StageFacts) -> str:
    return row.stage.below or ""


def _of_several(us: float | None) -> str:
    """A network's share of a step; empty where one trains, so that no column shows it."""
    return numbers.microseconds(us) if us is not None else ""


def _ratio(ratio: Ratio | None, about: str = "") -> str:
    """A ratio, marked if it is within the noise."""
    return f"{about if ratio.is_noise else ''}{numbers.ratio(ratio.times)}" if ratio else numbers.MISSING


def _whole(ratio: Ratio | None) -> str:
    return ratio.text if ratio else numbers.MISSING


def _best(row: StageFacts) -> str:
    """The reference that a row's lead is taken over, unless it is the row itself."""
    return row.lead.reference.name if row.lead and row.lead.reference.name != row.name else ""
