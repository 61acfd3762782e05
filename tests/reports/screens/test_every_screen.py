"""What holds of every screen in every writer; tests/golden has the exact text of some."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from ladder.records.run import StageDoc, all_results, load_once
from ladder.run.entries import listed
from reports.facts.many_runs import compare_machines
from reports.facts.torch_comparison import compare_torch_runs
from reports.facts.two_runs import compare
from reports.figures.run_figures import drawings
from reports.report_error import ReportError
from reports.screens import torch as of_torch
from reports.screens.advise import advise_screen
from reports.screens.blocks import Code, Screen, Table, in_document
from reports.screens.check import check_screen
from reports.screens.compare import comparison_screen, machines_screen
from reports.screens.details import limits_screen
from reports.screens.doctor import doctor_screen
from reports.screens.plan import plan_screen
from reports.screens.run import report_screen, run_screen
from reports.screens.rung import rung_screen
from reports.screens.stage_list import stage_list_screen
from reports.screens.study import study_report_screen, study_screen
from reports.writers.markdown import markdown
from reports.writers.page import page
from reports.writers.terminal import write_terminal
from reports.writers.write import write
from tests.golden import PLAN
from tests.golden.outlooks import GRID, GRID_BF16, outlooks, small
from tests.reports import checked_sample, recorded, sample
from tests.reports.study_sample import study_results
from tests.reports.terminal.screens import screen as shown
from tests.reports.terminal.screens import too_wide
from tests.reports.terminal.test_small_screens import FINDINGS
from tests.reports.torch_sample import a_torch_run

RECORDED = Path(__file__).parents[3] / "results" / "reference"
HOSTILE = "[red]`<script>alert(1)</script>[/]|*x*"
TORCH = a_torch_run()
GUESS = outlooks(*small(), GRID, GRID_BF16, guess="A guess.")
SCREENS = {
    "advise": advise_screen(GUESS),
    "advise, measured": advise_screen(outlooks(*(replace(one, measured_us=123.0) for one in small()))),
    "check, right": check_screen(checked_sample.right()),
    "check, wrong": check_screen(checked_sample.wrong()),
    "check, crashed": check_screen(checked_sample.crashed()),
    "limits": limits_screen(sample.limits()),
    "run": run_screen(sample.results()),
    "run of a fleet": run_screen(sample.fleet()),
    "run without a GPU": run_screen(sample.synthetic_results()),
    "run without a time": run_screen(sample.nothing_passed()),
    "rung": rung_screen(sample.results(), "cublas"),
    "rung without a profile": rung_screen(sample.results(), "torch-amp"),
    "rung on the CPU": rung_screen(sample.results(), "numpy"),
    "two runs": comparison_screen(compare(recorded.before(), recorded.after(), ("runs/before", "runs/after"))),
    "machines": machines_screen(compare_machines(recorded.machines())),
    "stages": stage_list_screen(listed(()), "no GPU here: `make ladder`"),
    "study": study_screen(study_results([64, 128, 256])),
    "torch": of_torch.run_screen(TORCH),
    "torch, judged": of_torch.check_screen(TORCH),
    "rung of torch": of_torch.rung_screen(TORCH, "eager"),
    "two runs of torch": comparison_screen(compare_torch_runs(TORCH, TORCH, ("runs/a", "runs/b"))),
    "doctor": doctor_screen(FINDINGS),
    "plan": plan_screen(PLAN),
}
DOCUMENTS = {
    "report": report_screen(sample.results(), drawings(sample.results())),
    "study's report": study_report_screen(study_results([64, 128, 256])),
}
every_screen = pytest.mark.parametrize("screen", SCREENS.values(), ids=list(SCREENS))
every_document = pytest.mark.parametrize("screen", [*SCREENS.values(), *DOCUMENTS.values()], ids=[*SCREENS, *DOCUMENTS])


def on_terminal(screen: Screen, width: int) -> str:
    return shown(lambda console: write_terminal(screen, console), width)


def tables(screen: Screen) -> list[Table]:
    return [block for block in in_document(screen.blocks) if isinstance(block, Table)]


def visible(text: str) -> str:
    """The words of a page or a document, without marks."""
    return " ".join(re.sub(r"[`|\\]", "", html.unescape(re.sub(r"<[^>]*>", " ", text))).split())


@every_screen
@pytest.mark.parametrize("width", [60, 80, 140])
def test_it_fits_the_terminal(screen: Screen, width: int) -> None:
    raw = [line for block in in_document(screen.blocks) if isinstance(block, Code) for line in block.lines]
    assert [line for line in too_wide(on_terminal(screen, width), width) if line not in raw] == []


@every_screen
def test_every_row_has_a_cell_in_every_column_and_a_line_of_the_terminal(screen: Screen) -> None:
    lines = on_terminal(screen, 240).splitlines()
    for table in tables(screen):
        forms = [form for column in table.columns for form in (column, column.widest)]
        assert {len(form.cells) for form in forms} == {len(table.columns[0].cells)}
        for name in table.columns[0].cells:
            assert any(line.startswith(name) for line in lines)


@every_document
def test_a_document_and_a_page_say_every_cell(screen: Screen) -> None:
    document, site = visible(markdown(screen)), visible(page(screen, "results.json"))
    for table in tables(screen):
        for cell in (cell for column in table.columns if not column.is_empty for cell in column.widest.cells):
            assert visible(html.escape(cell)) in document
            assert visible(html.escape(cell)) in site


@every_document
def test_its_facts_are_json_and_its_rows_csv(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    write(screen, "json")
    facts = json.loads(capsys.readouterr().out)
    rows = facts[screen.rows] if isinstance(screen.rows, str) else screen.rows
    if screen.no_rows and not rows:
        with pytest.raises(ReportError, match=re.escape(screen.no_rows)):
            write(screen, "csv")
        return
    write(screen, "csv")
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == len(rows)


def hostile_screens() -> Iterator[Screen]:
    """Screens in which every free text is an attack; names of rungs have letters, or no record loads."""
    doc, gpu = StageDoc(*[HOSTILE] * 5), {"gpu": {"name": HOSTILE, "driver": HOSTILE}}
    run = sample.replace_stage(sample.results(), "async", title=HOSTILE, doc=doc, detail=HOSTILE, changed=HOSTILE)
    run = replace(sample.replace_stage(run, "sparse-metrics", reason=HOSTILE), environment=gpu)
    rungs = [replace(one, words=HOSTILE, changed=HOSTILE, doc=doc, notes=[HOSTILE]) for one in TORCH.rungs]
    model = replace(TORCH.model, file=f"{HOSTILE}.py", optimizer=HOSTILE, schedule=HOSTILE, notes=[HOSTILE])
    torch = replace(TORCH, environment=gpu, model=model, rungs=rungs, words=dict.fromkeys(TORCH.words, HOSTILE))
    checked = replace(checked_sample.wrong(), name=HOSTILE, output=HOSTILE, advice={HOSTILE: HOSTILE})
    yield from (check_screen(checked), limits_screen(replace(sample.limits(), skipped={HOSTILE: HOSTILE})))
    yield from (advise_screen(replace(GUESS, guess=HOSTILE)), report_screen(run, drawings(run)))
    yield from (rung_screen(run, "async"), comparison_screen(compare(sample.results(), run, ("a", HOSTILE))))
    yield from (of_torch.run_screen(torch), of_torch.rung_screen(torch, "eager"))


@pytest.mark.parametrize("screen", list(hostile_screens()), ids=lambda screen: screen.title[:20])
def test_hostile_text_is_text_in_every_writer(screen: Screen) -> None:
    assert "<script>alert(1)</script>" in on_terminal(screen, 400)
    assert "<script" not in page(screen, "results.json").replace('<script>"use strict"', "")
    assert "<script" not in MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(screen))


def test_recorded_limits_fit_a_narrow_terminal() -> None:
    for run in map(load_once, all_results(RECORDED, "*/*")):
        screens = [limits_screen(run.limits)] if run.limits else []
        for text in (on_terminal(screen, 80) for screen in screens):
            assert too_wide(text, 80) == []
            assert "spread" in text
