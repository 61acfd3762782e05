from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from ladder.records.torch_run import TorchResults
from reports.facts.torch_rows import Programs, torch_verdict
from reports.report_error import ReportError
from reports.screens.blocks import Block, Column, Figure, Screen, Sentences, Table
from reports.screens.torch import BUSY, run_screen, rung_screen, verdict_sentences
from tests.reports.torch_sample import a_process, a_rung, a_torch_run, without_rungs

RUN = a_torch_run()
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


def test_the_verdict_of_a_run_without_times_claims_nothing() -> None:
    for run in (a_torch_run(rungs=[]), without_rungs(RUN, *(rung.name for rung in RUN.rungs if rung.is_timed))):
        assert not any(character.isdigit() for character in said(run))
        assert not blocks(run_screen(run), Figure)


@pytest.mark.parametrize("calm", [0, 1])
def test_a_busy_machine_is_named_before_the_times(calm: int) -> None:
    busy = a_process(100.0)
    busy = replace(busy, measured=replace(busy.measured, disturbed=["other processes kept cores busy"]))
    rungs = [a_rung(name, None, 1.0, processes=[busy, busy]) for name in ("eager", "no-item")]
    rungs[0] = replace(rungs[0], processes=[busy, *[a_process(100.0)] * calm])
    said = [block.texts for block in blocks(run_screen(a_torch_run(rungs=rungs)), Sentences) if block.tone == "alarm"]
    assert said == ([] if calm else [[BUSY]])


def test_an_unknown_rung_names_the_nearest() -> None:
    with pytest.raises(ReportError, match="try step-graph"):
        rung_screen(RUN, "step-grph")
