from __future__ import annotations

import re

from reports.markdown.tables import REPORT_COLUMNS, stage_table
from tests.reports import sample

CELL_BORDER = re.compile(r"(?<!\\)\|")


def cells(table: str, title: str) -> dict[str, str]:
    """A row's cells by the names of their columns."""
    header, _, *lines = ([cell.strip() for cell in CELL_BORDER.split(line)[1:-1]] for line in table.splitlines())
    return next(dict(zip(header, line, strict=True)) for line in lines if line[0] == title)


def test_bars_and_newlines_stay_inside_their_cell() -> None:
    run = sample.replace_stage(sample.results(), "naive", title="a | b", changed="x|y")
    run = sample.replace_stage(run, "cuda-graph", reason="one\ntwo | three")
    table = stage_table(run, REPORT_COLUMNS)
    assert "a \\| b" in table
    assert "one two \\| three" in table
    assert {len(CELL_BORDER.findall(line)) for line in table.splitlines()} == {len(REPORT_COLUMNS) + 1}


def test_launches_memory_and_precision_have_columns() -> None:
    row = cells(stage_table(sample.results(), REPORT_COLUMNS), "`cublas`")
    assert (row["Precision"], row["Launches/step"], row["GPU memory"]) == ("float32", "0.002", "710 MiB")
    assert cells(stage_table(sample.results(), REPORT_COLUMNS), "`torch-amp`")["Prepare"] == "125 s"


def test_missing_counts_are_dashes() -> None:
    row = cells(stage_table(sample.results(), REPORT_COLUMNS), "`numpy`")
    assert row["Launches/step"] == "-"
    assert row["GPU memory"] == "-"


def test_ratios_have_their_spread_and_say_if_they_are_within_the_noise() -> None:
    run = sample.replace_stage(sample.results(), "async", precision="tf32")
    row = cells(stage_table(run, REPORT_COLUMNS), "`async`")
    assert row["Precision"] == "tf32"
    assert row["x of the fastest reference"] == "1.25x, within noise"
    assert row["x of from"] == "2.00x (1.98-2.10)"
    assert cells(stage_table(run, REPORT_COLUMNS), "`naive`")["x of from"] == "-"


def test_an_accuracy_after_fewer_epochs_says_so() -> None:
    table = stage_table(sample.results(), REPORT_COLUMNS)
    assert cells(table, "`numpy`")["Test accuracy"] == "97.62% (3 epochs)"
    assert cells(table, "`cublas`")["Test accuracy"] == "97.62%"
