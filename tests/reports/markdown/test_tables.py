from __future__ import annotations

import re

import pytest

from reports.markdown.tables import README_COLUMNS, REPORT_COLUMNS, stage_table
from tests.reports import sample

CELL_BORDER = re.compile(r"(?<!\\)\|")


def cells(table: str, title: str) -> dict[str, str]:
    """A row's cells by the names of their columns."""
    header, _, *lines = ([cell.strip() for cell in CELL_BORDER.split(line)[1:-1]] for line in table.splitlines())
    return next(dict(zip(header, line, strict=True)) for line in lines if line[0] == title)


@pytest.mark.parametrize("columns", [REPORT_COLUMNS, README_COLUMNS])
def test_bars_and_newlines_stay_inside_their_cell(columns: tuple[str, ...]) -> None:
    run = sample.replace_stage(sample.results(), "naive", title="a | b", changed="x|y")
    run = sample.replace_stage(run, "cuda-graph", reason="one\ntwo | three")
    table = stage_table(run, columns)
    assert "a \\| b" in table
    assert ("one two \\| three" in table) == ("Checked" in columns)
    assert {len(CELL_BORDER.findall(line)) for line in table.splitlines()} == {len(columns) + 1}


def test_launches_memory_and_precision_have_columns() -> None:
    row = cells(stage_table(sample.results(), REPORT_COLUMNS), "cuBLAS GEMM")
    assert (row["Precision"], row["Launches/step"], row["GPU memory"]) == ("float32", "0.002", "710 MiB")
    assert cells(stage_table(sample.results(), REPORT_COLUMNS), "PyTorch AMP (GPU)")["Prepare"] == "125 s"


@pytest.mark.parametrize("columns", [REPORT_COLUMNS, README_COLUMNS])
def test_what_was_not_counted_is_a_dash(columns: tuple[str, ...]) -> None:
    row = cells(stage_table(sample.results(), columns), "NumPy (CPU, 2 BLAS threads)")
    assert row["Launches/step"] == "-"
    assert row.get("GPU memory", "-") == "-"


def test_a_class_without_pytorch_shows_a_dash() -> None:
    run = sample.replace_stage(sample.results(), "async", precision="tf32")
    row = cells(stage_table(run, README_COLUMNS), "Asynchronous metrics")
    assert (row["Precision"], row["vs PyTorch"], row["vs below"]) == ("tf32", "-", "2.00x")


def test_the_accuracy_of_the_readme_is_a_checked_one() -> None:
    table = stage_table(sample.results(), README_COLUMNS)
    assert cells(table, "cuBLAS GEMM")["Checked accuracy"] == "97.62%"
    assert cells(table, "Sparse metrics")["Checked accuracy"] == "**failed**"


@pytest.mark.parametrize(("columns", "name"), [(REPORT_COLUMNS, "Test accuracy"), (README_COLUMNS, "Checked accuracy")])
def test_an_accuracy_after_fewer_epochs_says_so(columns: tuple[str, ...], name: str) -> None:
    table = stage_table(sample.results(), columns)
    assert cells(table, "NumPy (CPU, 2 BLAS threads)")[name] == "97.62% (3 epochs)"
    assert cells(table, "cuBLAS GEMM")[name] == "97.62%"
