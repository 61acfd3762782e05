from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from ladder.records.run import Results, Status
from reports.terminal.tables import print_doctor, print_results, print_stage_list
from tests.golden import console_text
from tests.reports import sample


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_nothing_is_cut_off_at_any_width(width: int) -> None:
    run = sample.results()
    text = console_text(run, width)
    assert "…" not in text
    words = " ".join(text.split())
    for stage in run.stages:
        if stage.status != "passed":
            assert " ".join((stage.reason or "").split()) in words
    for number in ("(39.6-42.0)", "1,295", "0.66x", "97.62%", "0.31 s", "0.002", "710 MiB", "bf16", "float32"):
        assert number in text


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("run", [sample.results(), sample.long_names()])
def test_the_table_fits(run: Results, width: int) -> None:
    assert max(map(len, console_text(run, width).splitlines())) <= width


def test_words_of_the_stages_are_not_broken_at_80_columns() -> None:
    words = console_text(sample.long_names(), 80).split()
    for stage in sample.long_names().stages:
        assert {stage.name, stage.below or "from"} <= set(words)


def test_missing_counts_are_dashes() -> None:
    lines = console_text(sample.unprofiled_results(), 140).splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("jax-scan"))
    assert lines[first + 1].split() == ["GPU", "(24.8-26.3)", "-", "float32", "1.9", "GiB", "97.62%"]


def test_floors_have_a_column_where_there_is_room_for_it() -> None:
    wide, narrow = (console_text(sample.results(), width) for width in (115, 80))
    assert "1.07x" in wide
    assert "x cheat limit: the time as a multiple of the least that any honest program" in " ".join(wide.split())
    assert "floor" not in narrow


def test_output_to_a_file_has_no_control_characters() -> None:
    text = console_text(sample.synthetic_results(), 80)
    assert all(character.isprintable() or character == "\n" for character in text)


def test_other_data_than_mnist_is_named_before_and_after_the_table() -> None:
    text = console_text(sample.synthetic_results(), 100)
    before, after = text.split("ms/epoch: the median")
    assert "NOT MNIST" in before
    assert "NOT MNIST" in after


def test_brackets_in_details_are_text_and_not_markup() -> None:
    run = sample.replace_stage(sample.results(), "numpy", detail="[bold]BLAS[/] | :warning:")
    assert "[bold]BLAS[/] | :warning:" in console_text(run, 160)


def test_a_run_of_which_nothing_passed_is_a_table_of_dashes() -> None:
    text = console_text(sample.nothing_passed(), 80)
    assert "naive and async skipped: no CUDA device" in text
    assert "references" not in text


@pytest.mark.parametrize("torch_status", ["skipped", "passed"])
def test_skipped_rows_leave_the_table_where_they_are_the_most(torch_status: Status) -> None:
    run = sample.synthetic_results()
    torch = next(stage for stage in sample.results().stages if stage.name == "torch-eager-cpu")
    run = msgspec.structs.replace(run, stages=[torch, *run.stages])  # two of four rows are skipped, no more than half
    run = sample.replace_stage(run, "torch-eager-cpu", status=torch_status, reason="no CUDA device")
    text = console_text(run, 100)
    names = {line.split()[0] for line in text.splitlines() if line.endswith(("passed", "skipped"))}
    assert names == ({"numpy"} if torch_status == "skipped" else {"numpy", "torch-eager-cpu", "naive", "async"})
    assert ("Not in this table: 3 skipped stages" in text) == (torch_status == "skipped")
    assert "naive and async skipped: no CUDA device" in text or "torch-eager-cpu, naive and async skipped" in text


def test_no_folder_no_files() -> None:
    file = io.StringIO()
    print_results(sample.results(), console=Console(file=file, width=100, highlight=False))
    assert "report.md" not in file.getvalue()


def test_the_list_of_stages_and_the_doctor_show_every_word() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, highlight=False)
    why = "no: no CUDA device was found, and the driver of this machine says nothing at all"
    print_stage_list([("persistent-grid", "launch: PersistentEpoch", "CUDA, sm_90 or newer", why)], console)
    print_doctor([("driver", "none", "install [cuda] the driver")], console)
    words = file.getvalue().split()
    for word in f"persistent-grid {why} driver none install [cuda] the driver".split():
        assert word in words
