from __future__ import annotations

import csv
import html
import io
import json
import re

import pytest

from reports.figures.canvas import Canvas
from reports.screens.blocks import Code, Column, Figure, Folded, Heading, Screen, Sentences, Table
from reports.screens.torch import run_screen
from reports.writers.markdown import markdown
from reports.writers.page import page
from reports.writers.terminal import write_terminal
from reports.writers.write import write
from tests.reports.terminal.screens import screen as shown
from tests.reports.terminal.screens import too_wide
from tests.reports.torch_sample import a_torch_run

TABLE = Table(
    [
        Column("name", ["a|b", "c"]),
        Column("size", ["1", "2"], 1, is_number=True, wider=Column("size\n(range)", ["1 (1-1)", "2 (1-3)"], 9)),
        Column("note", ["", "-"], 2),
        Column("state", ["good", "<i>"], 3, tones={"good": "good"}),
    ],
    {1: "The others"},
)
SCREEN = Screen(
    "A *title*", "a machine",
    [Heading("First"), Sentences(["One `name`.", "<script>alert(1)</script>"]), TABLE,
     Figure("ladder.svg", "A dot", lambda layout: Canvas(layout.width, 10, "dot", "a dot")),
     Folded("The `code`", [Code("The `code`", ["+added", "-removed", " <b>"], "diff")])],
    {"rungs": [{"name": "a", "pair": {"x": {"y": 1}}}, {"name": "b"}]}, "rungs",
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_terminal_keeps_its_width_and_the_columns_of_the_lowest_ranks(width: int) -> None:
    run = run_screen(a_torch_run())
    text = shown(lambda console: write_terminal(run, console), width)
    assert not too_wide(text, width)
    assert "compiled-graph" in text
    assert ("step-graph's change" in text.partition("What to write")[0]) == (width == 200)


def test_a_terminal_shows_no_backtick_of_a_name_and_no_folded_code() -> None:
    text = shown(lambda console: write_terminal(SCREEN, console), 80)
    assert "One name." in text
    assert "+added" not in text
    assert text.index("a|b") < text.index("The others") < text.index("(1-3)")


def test_markdown_escapes_cells_and_leaves_empty_columns_out() -> None:
    text = markdown(SCREEN)
    assert "| name | size (range) | state |" in text
    assert "| a\\|b | 1 (1-1) | good |" in text
    assert "&lt;script>" in text
    assert "(figures/ladder.svg)" in text
    assert "```diff\n+added" in text


def test_a_page_escapes_what_it_is_given_and_asks_for_nothing() -> None:
    text = page(SCREEN, "torch.json")
    assert "<script>alert" not in text
    assert "&lt;i&gt;" in text
    assert '<td class="good">good</td>' in text
    assert "<code>name</code>" in text
    assert '<span class="added">+added</span>' in text
    assert text.count("<svg") == 2
    assert not re.search(r"(?:src|href)=", text)
    assert "default-src 'none'" in html.unescape(text)


def test_a_page_links_nothing_and_has_every_row() -> None:
    run = a_torch_run()
    text = page(run_screen(run), "torch.json")
    assert text.count('<th scope="row">') == len(run.rungs) + 5
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_plain_data_are_the_facts_and_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    write(SCREEN, "json")
    assert json.loads(capsys.readouterr().out) == SCREEN.facts
    write(SCREEN, "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows == [{"name": "a", "pair_x_y": "1"}, {"name": "b", "pair_x_y": ""}]


def test_the_facts_of_a_run_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    write(run_screen(a_torch_run()), "json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"]["rung"] == "compiled-graph"
    row = next(row for row in facts["rungs"] if row["name"] == "compiled-graph")
    assert row["versus_eager"]["times"] == pytest.approx(26)
    assert row["step_us"]["median"] == pytest.approx(100.5)
