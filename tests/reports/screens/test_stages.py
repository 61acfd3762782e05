"""The columns of stages: one list feeds the terminal, the report, the page, JSON and CSV."""

from __future__ import annotations

import pytest

from ladder.records.run import Results
from reports.facts.stage_facts import all_stage_facts
from reports.screens import stages
from reports.screens.details import all_columns
from reports.screens.run import run_screen
from reports.screens.stages import StageColumn, row_facts, stage_columns
from reports.writers.terminal import write_terminal
from reports.writers.write import write
from tests.reports import sample
from tests.reports.reporting import report, rows_of
from tests.reports.terminal.screens import screen

RUN = sample.results()


def test_a_new_column_is_one_entry_of_one_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = StageColumn("tries", lambda row: f"{len(row.name)} t", page="Tries", report=True, data={"tries": id})
    monkeypatch.setattr(stages, "stage_columns", lambda results: [*stage_columns(results), entry])
    shown = run_screen(RUN)
    text = screen(lambda console: write_terminal(shown, console), 80)
    assert any(line.endswith(" tries") for line in text.splitlines())
    assert "| `naive` |  | 85.5 | - | 0.63x, within noise | passed | 5 t |" in report(RUN)
    assert list(rows_of(all_columns(RUN))[0].items())[-1] == ("Tries", "5 t")
    write(shown, "csv")
    assert capsys.readouterr().out.partition("\n")[0].split(",").count("tries") == 1
    assert all("tries" in row for row in shown.facts["stages"])


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
        text = screen(lambda console: write_terminal(shown, console), 80, encoding=encoding)
        assert f" {mark}1.25x" in text
        assert f"{mark}: within the noise" in text
