from __future__ import annotations

from pathlib import Path

import pytest

from reports.facts.numbers import shortest
from reports.screens.blocks import Column, Table
from reports.writers.console import fitting, print_table, say, say_titled, wrapped
from tests.reports.terminal.screens import screen


@pytest.mark.parametrize("width", [10, 20, 40])
def test_only_blanks_break_a_line(width: int) -> None:
    words = ["MNIST", "is", "not", "in", "/root/.cache/optimisation-ladder/mnist", "or", "https://a-b.example/c_d"]
    lines = wrapped(" ".join(words), width)
    assert " ".join(lines).split() == words
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


def test_a_command_is_broken_only_if_it_is_wider_than_a_line() -> None:
    text = "on a machine with a GPU: `make ladder`"
    assert wrapped(text, 32) == ["on a machine with a GPU:", "`make ladder`"]
    assert wrapped(text, 8)[-2:] == ["`make", "ladder`"]


def test_later_lines_hang_below_the_text() -> None:
    assert screen(lambda console: say(console, "one two three", first="Next  "), 14).splitlines() == [
        "Next  one two",
        "      three",
    ]
    assert screen(lambda console: say(console, "", first="ok  "), 14) == "ok\n"
    assert screen(lambda console: say_titled(console, "Why", "one two three"), 12) == "Why: one two\nthree\n"


COLUMNS = [
    Column("name", ["aaaa", "bbbb"]),
    Column("late", ["1", "2"], 9),
    Column("*", ["*", ""], 0, wider=Column("word", ["disturbed", ""], 2)),
    Column("empty", ["-", ""], 1),
    Column("first", ["100", "20"], 1, is_number=True),
]


@pytest.mark.parametrize(
    ("width", "headers", "gap"),
    [
        (6, ["name", "*"], 1),
        (12, ["name", "*", "first"], 1),
        (14, ["name", "*", "first"], 2),
        (17, ["name", "late", "*", "first"], 1),
        (20, ["name", "word", "first"], 1),
        (25, ["name", "late", "word", "first"], 1),
        (28, ["name", "late", "word", "first"], 2),
    ],
)
def test_a_table_has_the_columns_that_fit_by_rank(width: int, headers: list[str], gap: int) -> None:
    shown, found = fitting(COLUMNS, width)
    assert ([column.header for column in shown], found) == (headers, gap)


def test_what_every_reader_needs_does_not_give_way_to_narrower_columns() -> None:
    columns = [Column("name", ["a"]), Column("needed", ["a long cell"], 4), Column("b", ["c"], 5)]
    assert [column.header for column in fitting(columns, 12)[0]] == ["name"]


def test_rows_are_single_lines_below_their_headings() -> None:
    columns = [Column("name", ["a", "b"]), Column("x of\nfrom", ["1.00x", "-"], is_number=True)]
    text = screen(lambda console: print_table(console, Table(columns, {1: "References"})), 80)
    assert text.splitlines() == [
        "       x of",
        "name   from",
        "───────────",
        "a     1.00x",
        "",
        "References",
        "b         -",
    ]
    assert screen(lambda console: print_table(console, Table([])), 80) == ""


def test_a_path_is_shown_as_the_shorter_of_its_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shortest(tmp_path / "runs") == "runs"
    assert shortest(Path("/")) == "/"
