from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from ladder.records.torch_run import TorchResults
from reports.facts.torch_rows import Programs, torch_verdict
from reports.report_error import ReportError
from reports.screens.blocks import Block, Code, Column, Figure, Folded, Screen, Sentences, Table
from reports.screens.torch import WHAT_NOW, check_screen, run_screen, rung_screen, verdict_sentences
from tests.reports.torch_sample import a_process, a_torch_run, with_rung, without_rungs

RUN = a_torch_run()
PROGRAMS = Programs("a\nb\n", "a\nx\ny\nz\n")
Kind = TypeVar("Kind", bound=Block)


def blocks(screen: Screen, kind: type[Kind]) -> list[Kind]:
    return [block for block in screen.blocks if isinstance(block, kind)]


def cells(table: Table, header: str) -> dict[str, str]:
    """A column's cells in its widest form, by rung."""
    forms: Iterable[Column] = [column.widest for column in table.columns]
    column = next(column for column in forms if column.header.replace("\n", " ") == header)
    return dict(zip(table.columns[0].cells, column.cells, strict=True))


def said(run: TorchResults, programs: Programs | None = None) -> str:
    return " ".join(verdict_sentences(run, torch_verdict(run), programs))


def test_the_table_has_a_row_for_each_rung_defeats_included() -> None:
    table = blocks(run_screen(RUN), Table)[0]
    assert len(table.columns[0].cells) == len(RUN.rungs)
    assert list(table.headings) == [12, 14]
    assert cells(table, "us per step (range)")["eager"] == "2,613 (1,886-4,989)"
    over_eager = cells(table, "speedup over eager")
    assert over_eager["workers"].startswith("0.50x")
    assert over_eager["no-item"].startswith("~")
    assert over_eager["compiled-graph"] == "26.0x (18.3-50.4)"
    check = cells(table, "check")
    assert (check["graph-tf32"], check["amp-bf16"], check["graph-bf16"]) == ("wrong", "refused", "less exact, in bf16")
    epochs = cells(table, "epochs to pay off")
    assert (epochs["compiled-graph"], epochs["workers"], epochs["no-item"]) == ("47", "never", "-")
    assert cells(table, "J/step")["step-graph"] == "0.0500"
    assert cells(table, "error ratio")["graph-bf16"] == "1,300x"


def test_each_reason_is_told() -> None:
    told = [text for block in blocks(run_screen(RUN), Sentences) for text in block.texts]
    for rung in RUN.rungs:
        assert not rung.reason or any(rung.reason in text for text in told), rung.name


def test_the_verdict_names_epochs_rung_and_both_factors() -> None:
    told = said(RUN)
    for fact in ("3,000 epochs", "`compiled-graph`", "18.6x", "7.16x", "`fused-optimizer`", "47 epochs"):
        assert fact in told
    assert "`graph-bf16`" in told
    assert "1,300x" in told


def test_the_verdict_counts_the_lines_to_write() -> None:
    assert "3 lines" in said(RUN, PROGRAMS)


def test_the_verdict_stays_in_eager_mode_where_nothing_pays_off() -> None:
    slow = [rung for rung in RUN.rungs if rung.name in ("eager", "compiled-graph")]
    told = said(a_torch_run(epochs=2, rungs=slow))
    assert told.startswith("Stay in eager mode for 2 epochs")
    assert ("47 epochs" in told, "script" in told) == (True, False)
    assert "x as fast" not in told


def test_the_verdict_advises_nothing_where_the_usual_loop_has_no_time() -> None:
    told = said(without_rungs(RUN, "eager"), PROGRAMS)
    assert told.startswith("Eager mode has no time, so this run compares nothing with the usual loop. For 3,000 epochs")
    assert "`compiled-graph` is the fastest of its rungs, 7.16x" in told
    assert "as fast as `fused-optimizer`, preparation included" in told
    assert "write" not in told
    assert "fused-optimizer" not in said(without_rungs(RUN, "eager", "fused-optimizer"))


def test_a_script_is_explained_where_no_rung_saves_time() -> None:
    run = a_torch_run(epochs=2, rungs=[rung for rung in RUN.rungs if rung.name in ("eager", "no-item")])
    told = [text for block in blocks(run_screen(run, PROGRAMS), Sentences) for text in block.texts]
    assert "Nothing: no rung saves time beyond the noise. `train_fast.py` holds the usual loop." in told
    noisy = with_rung(RUN, "no-item", processes=[a_process(2300.0), a_process(2610.0)])
    assert "A script holds `no-item` all the same" in said(a_torch_run(rungs=noisy.rungs[:2]), PROGRAMS)


def test_the_verdict_of_a_run_without_times_claims_nothing() -> None:
    for run in (a_torch_run(rungs=[]), without_rungs(RUN, *(rung.name for rung in RUN.rungs if rung.is_timed))):
        assert not any(character.isdigit() for character in said(run))
        assert not blocks(run_screen(run), Figure)


def test_the_recipe_shows_what_each_change_is_worth_and_the_difference() -> None:
    screen = run_screen(RUN, PROGRAMS)
    table = blocks(screen, Table)[1]
    costs = cells(table, "without it")
    assert costs == {
        "no-item": "not measured", "resident": "not measured", "fused-optimizer": "1.21x", "step-graph": "5.12x",
        "compiled-graph": "1.44x",
    }  # fmt: skip
    (code,) = blocks(screen, Folded)[0].blocks
    assert code == Code("The difference between `train_plain.py` and `train_fast.py`", PROGRAMS.diff, "diff")
    assert not blocks(run_screen(RUN), Code)


def test_lines_that_wait_and_notes_are_shown() -> None:
    told = [text for block in blocks(run_screen(RUN), Sentences) for text in block.texts]
    assert "`my_model.py:41`" in told
    assert blocks(run_screen(RUN), Sentences)[1] == blocks(check_screen(RUN), Sentences)[1]
    assert list(blocks(run_screen(RUN), Sentences)[1].texts) == RUN.model.notes
    assert any(text.startswith("`step-graph`") and RUN.rungs[7].notes[0].rstrip(".") in text for text in told)


def test_a_disturbed_time_says_so() -> None:
    calm = a_process(200.0)
    disturbed = replace(calm, measured=replace(calm.measured, disturbed=["the clock fell"]))
    run = with_rung(RUN, "step-graph", processes=[calm, disturbed])
    told = [text for block in blocks(run_screen(run), Sentences) for text in block.texts if "the clock fell" in text]
    assert len(told) == 1
    assert "`step-graph`" in told[0]


def test_a_wrong_rung_has_a_way_out() -> None:
    for run, is_wrong in ((RUN, True), (without_rungs(RUN, "graph-tf32"), False)):
        for screen in (run_screen(run), check_screen(run)):
            told = [text for block in blocks(screen, Sentences) for text in block.texts]
            assert (WHAT_NOW in told) == is_wrong


def test_the_check_shows_the_worst_check_and_no_time() -> None:
    table = blocks(check_screen(RUN), Table)[0]
    assert cells(table, "error")["graph-tf32"] == "5,300"
    assert cells(table, "limit")["graph-tf32"] == "4"
    assert cells(table, "worst check")["graph-tf32"] == "parameters after 32 steps (0.weight)"
    assert not any("us" in column.header for column in table.columns)


def test_a_rung_shows_its_paragraphs_times_and_checks() -> None:
    screen = rung_screen(RUN, "step-graph")
    told = " ".join(text for block in blocks(screen, Sentences) for text in block.texts)
    for fact in ("The host waits.", "201 (198-206)", "5.00x", "13.0x", "0.5 s", "170 steps", "0.0500 J"):
        assert fact in told
    assert "no time" in blocks(rung_screen(RUN, "amp-bf16"), Sentences)[0].texts[0]


def test_an_unknown_rung_names_the_nearest() -> None:
    with pytest.raises(ReportError, match="try step-graph"):
        rung_screen(RUN, "step-grph")
