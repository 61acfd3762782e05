"""The columns of stages and of rungs: one list each feeds the terminal, the report, the page, JSON and CSV."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from ladder.records.run import CANNOT_DECIDE, Check, Results
from reports.facts import numbers
from reports.facts.stage_facts import StageFacts, all_stage_facts
from reports.screens import stages, torch
from reports.screens.blocks import Screen, Table
from reports.screens.details import all_columns
from reports.screens.run import report_screen, run_screen
from reports.screens.stages import StageColumn, row_facts, stage_columns
from reports.writers.markdown import markdown
from reports.writers.page import in_html
from reports.writers.terminal import write_terminal
from reports.writers.write import write
from tests.reports import sample
from tests.reports.terminal.screens import screen
from tests.reports.torch_sample import a_torch_run

RUN = sample.results()
PASSED = [row for row in all_stage_facts(RUN) if row.stage.status != "skipped"]


def moved(row: StageFacts) -> float | None:
    """The rate at which a stage's kernels move bytes, in GB/s: those of its design by its time of a step."""
    bounds, us = row.stage.bounds, row.step_us
    return bounds.design.bytes / us / 1e3 if bounds and bounds.design and bounds.design.bytes and us else None


def test_a_new_column_is_one_entry_of_one_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {row.name: text for row in PASSED if (text := numbers.microseconds(moved(row))) != numbers.MISSING}
    assert len({*known.values()}) == len(known) > 1
    entry = StageColumn(
        "GB/s", lambda row: numbers.microseconds(moved(row)), page="GB/s", report=True, data={"moved_gb_s": moved}
    )
    monkeypatch.setattr(stages, "stage_columns", lambda results: [*stage_columns(results), entry])
    shown = run_screen(RUN)
    text, report = screen(lambda console: write_terminal(shown, console), 250), markdown(report_screen(RUN))
    page = in_html([all_columns(RUN)])
    assert text.count("GB/s") == 1
    assert page.count("GB/s") == 1
    for name, rate in known.items():
        assert re.search(rf"(?m)^{name} .* {re.escape(rate)}$", text)
        assert re.search(rf"(?m)^\| `{name}` .* \| {re.escape(rate)} \|$", report)
        assert re.search(rf"(?s)<code>{name}</code>(?:(?!<tr>).)*>{re.escape(rate)}</td>\n</tr>", page)
    rows = {row["name"]: row for row in plain(shown, capsys)}
    for name, rate in known.items():
        assert numbers.microseconds(float(rows[name]["moved_gb_s"])) == rate


def plain(shown: Screen, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The rows of a screen as CSV; JSON has the same keys and numbers."""
    write(shown, "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    write(shown, "json")
    facts = json.loads(capsys.readouterr().out)[shown.rows]
    for row, fact in zip(rows, facts, strict=True):
        assert {key: row[key] for key, value in flat(fact).items() if value is not None} == {
            key: str(value) for key, value in flat(fact).items() if value is not None
        }
    return rows


def flat(fact: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Plain data without nesting."""
    pairs = [flat(of, f"{before}{key}_") if isinstance(of, dict) else {before + key: of} for key, of in fact.items()]
    return {key: value for pair in pairs for key, value in pair.items()}


def tables(shown: Screen) -> list[Table]:
    """The tables of a screen, those of its groups included."""
    blocks = [block for one in shown.blocks for block in getattr(one, "blocks", [one])]
    return [block for block in blocks if isinstance(block, Table)]


@pytest.mark.parametrize("shown", [run_screen(RUN), torch.run_screen(a_torch_run())], ids=["stages", "rungs"])
def test_every_writer_shows_the_same_facts(shown: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    """Each cell of each column, and each number of the rows that programs read."""
    table = tables(shown)[0]
    text, report = screen(lambda console: write_terminal(shown, console), 400), markdown(shown)
    page = in_html(shown.blocks)
    for column in (column.widest for column in table.columns if not column.is_empty):
        for place in (text, report, page):
            words = {word for cell in column.cells for word in re.split(r"[ \n]", cell) if word.strip("-")}
            assert words <= set(re.split(r"[ \n|<>]", html.unescape(place).replace("\\|", "|").replace("*", ""))), (
                column.header
            )
    assert len(plain(shown, capsys)) >= len(table.columns[0].cells)  # skipped stages have a row there, too


def test_a_row_tells_other_programs_what_a_mark_tells_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    """The daggers behind a time, `passed*` of the report, and `passed?` of the terminal."""
    run = sample.with_processes(RUN, "async", [40.0, 60.0])
    undecided = Check("loss curve", 1e-5, 1e-3, passed=True, judged=False, note=f"float32 {CANNOT_DECIDE}")
    not_judged = Check("other weights", None, 1e-3, passed=True, judged=False, note="one run")
    for name, marks, checks in (
        ("async", ["other work", ""], [undecided]),
        ("cublas", ["other work"], [not_judged]),
        ("jax-scan", ["other work"], []),
    ):
        stage = next(stage for stage in run.stages if stage.name == name)
        pairs = zip(stage.processes, (marks * len(stage.processes))[: len(stage.processes)], strict=True)
        disturbed = [replace(process, disturbed=[mark] * bool(mark)) for process, mark in pairs]
        run = sample.replace_stage(run, name, processes=disturbed, checks=[*stage.checks, *checks])
    rows = {row["name"]: row for row in plain(run_screen(run), capsys)}
    keys = ("disturbed", "processes_disturbed", "lacks_a_check", "undecided")
    told = {name: tuple(rows[name][key] for key in keys) for name in ("naive", "async", "cublas", "jax-scan")}
    six = str(len(next(stage for stage in run.stages if stage.name == "cublas").processes))
    assert told == {
        "naive": ("", "0", "False", "False"),
        "async": ("some", "1", "True", "True"),
        "cublas": ("all", six, "True", "False"),
        "jax-scan": ("all", "1", "False", "False"),
    }
    assert [rows["sparse-metrics"][key] for key in keys] == ["", "", "False", "False"]  # failed: without a time
    report = markdown(report_screen(run))
    text = screen(lambda console: write_terminal(run_screen(run), console), 250)
    for name, (disturbed, _, lacks, is_undecided) in told.items():
        (row,) = re.findall(rf"(?m)^\| `{name}` .*$", report)
        (line,) = re.findall(rf"(?m)^{name} .*$", text)
        assert ("†" in row, "‡" in row) == (disturbed == "some", disturbed == "all")
        assert ("passed*" in row, "passed?" in line) == (lacks == "True", is_undecided == "True")


def test_every_number_of_a_row_is_in_the_record() -> None:
    stored = {stage.name: stage for stage in RUN.stages}
    for fact in row_facts(RUN, all_stage_facts(RUN)):
        stage = stored[fact["name"]]
        assert (fact["from"], fact["status"], fact["precision"]) == (stage.below, stage.status, stage.precision)
        if stage.status != "passed" or stage.timing is None or stage.metrics is None:
            assert {fact[key] for key in ("step_us", "epoch_s", "prepare_s", "times_from", "times_reference")} == {None}
            continue
        assert fact["epoch_s"] == stage.timing.epoch_s
        assert fact["step_us"] == pytest.approx(stage.timing.epoch_s.median / stage.timing.steps_per_epoch * 1e6)
        assert fact["test_accuracy"] == stage.metrics.test_accuracy
        assert (fact["prepare_s"], fact["gpu_memory_mib"]) == (stage.timing.prepare_s, stage.timing.gpu_memory_mib)
        for whom, times in (("from", "times_from"), ("reference", "times_reference")):
            if fact[times] is not None:
                assert fact[times] == pytest.approx(_epoch(stored[fact[whom]].name) / stage.timing.epoch_s.median)


def _epoch(name: str, run: Results = RUN) -> float:
    timing = next(stage.timing for stage in run.stages if stage.name == name)
    assert timing is not None
    return timing.epoch_s.median


def test_a_console_without_symbols_gets_letters_for_them() -> None:
    shown = run_screen(RUN)
    for encoding, mark in (("utf-8", "≈"), ("ascii", "~")):
        text = " ".join(screen(lambda console: write_terminal(shown, console), 80, encoding=encoding).split())
        assert f" {mark}1.25x" in text
        assert f"{mark}: within the noise" in text
