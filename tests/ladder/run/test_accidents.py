"""Stages that reach beyond their own process: the culprit is named, and its neighbours lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ladder.processes import supervised
from ladder.records.run import Results, StageResult, load
from ladder.run.bench import Finished
from ladder.run.entries import all_entries
from ladder.run.verdicts import Verdicts
from tests.ladder.harness import NUMPY, Watcher, prepare
from tests.streams import is_running


def accident(name: str) -> str:
    return f"tests.accidents:{name}"


def forked(folder: Path, *names: str, watcher: Watcher | None = None, **settings: Any) -> Results:
    """A run of these accidents in forked processes, and NumPy after them."""
    return prepare(folder, *map(accident, names), NUMPY, **settings).run(watcher or Watcher())


def started(folder: Path, *names: str, watcher: Watcher | None = None, **settings: Any) -> Results:
    """The same in started processes, as JAX's are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ladder.processes.fork_servers.import_group", lambda needs: None)
        return forked(folder, *names, watcher=watcher, **settings)


BOTH = pytest.mark.parametrize("run", [forked, started])


def is_well(stage: StageResult) -> bool:
    """Whether a stage passed, and has a time."""
    return stage.status == "passed" and bool(stage.processes)


def log_of(folder: Path, name: str) -> str:
    return (folder / "logs" / f"{name}.1.log").read_text()


@BOTH
def test_a_process_that_a_stage_leaves_behind_is_ended_and_the_stage_is_named(run: object, tmp_path: Path) -> None:
    watcher = Watcher()
    assert callable(run)
    leaves, raises, tidy, numpy = run(tmp_path, "LEAVES_A_PROCESS", "LEAVES_AND_RAISES", "TIDY", watcher=watcher).stages
    assert (is_well(leaves), raises.status, is_well(tidy), is_well(numpy)) == (True, "crashed", True, True)
    for stage in (leaves, raises):
        assert not is_running(int(log_of(tmp_path, stage.name).split()[0]))
        said = f"{stage.name}: left behind: process python"
        assert [note for note in watcher.notes if note.startswith(said)]
    assert leaves.processes[0].left_behind[0].startswith("process python")
    assert tidy.processes[0].left_behind == numpy.processes[0].left_behind == []


@BOTH
def test_a_process_of_a_stage_that_hangs_ends_with_it(run: object, tmp_path: Path) -> None:
    assert callable(run)
    hangs, numpy = run(tmp_path, "LEAVES_AND_HANGS", timeout_s=5.0).stages
    assert (hangs.status, is_well(numpy)) == ("crashed", True)
    assert "no answer within 5 s (--timeout)" in hangs.reason
    assert not is_running(int(log_of(tmp_path, hangs.name)))


@pytest.mark.parametrize(("run", "at_once"), [(forked, 1), (started, 2)])
def test_a_stage_that_overwrites_shared_data_is_named_and_the_next_has_them_whole(
    run: object, at_once: int, tmp_path: Path
) -> None:
    assert callable(run)
    culprit, numpy = run(tmp_path, "OVERWRITES_THE_DATA", at_once=at_once).stages
    assert culprit.status == "failed"
    assert "overwrote the images or labels that all stages share; copy them before writing" in culprit.reason
    assert at_once == 2 or is_well(numpy)


def test_the_log_of_a_stage_that_prints_much_keeps_its_beginning_and_end(tmp_path: Path) -> None:
    prints, _ = forked(tmp_path, "PRINTS_MUCH").stages
    assert is_well(prints)
    text = log_of(tmp_path, prints.name)
    assert len(text) < supervised.LOG_HEAD + supervised.LOG_TAIL + 100
    assert text.startswith("the beginning\nwall\n")
    assert "bytes are left out: a log keeps its beginning and its end" in text
    assert "the end\n" in text[-supervised.LOG_TAIL :]


@BOTH
def test_a_crash_while_closing_says_so(run: object, tmp_path: Path) -> None:
    assert callable(run)
    raises, exits, crashes, numpy = run(tmp_path, "CLOSE_RAISES", "CLOSE_EXITS", "CLOSE_CRASHES").stages
    assert [one.status for one in (raises, exits, crashes)] == ["crashed"] * 3
    assert is_well(numpy)
    assert raises.reason.startswith("RuntimeError: cannot let go (accidents.py, line ")
    assert ") while closing; " in raises.reason
    assert exits.reason.startswith("exit code 0 while closing; ")
    assert crashes.reason.startswith("killed by SIGSEGV while closing; ")


def test_a_stopped_process_is_disturbed(tmp_path: Path) -> None:
    stopped, numpy = forked(tmp_path, "IS_STOPPED").stages
    (process,) = stopped.processes
    assert 0.5 < process.stopped_s < 10
    assert [reason for reason in process.disturbed if reason.startswith("a signal stopped the process for ")]
    (process,) = numpy.processes
    assert process.stopped_s == 0
    for state, run_s in zip(process.host_states, [*process.warmups_s, *process.runs_s], strict=True):
        assert state.over_s >= run_s


def test_a_stage_that_hangs_costs_the_time_limit_once_and_says_how_long_it_may(tmp_path: Path) -> None:
    watcher = Watcher()
    (hangs,) = prepare(tmp_path, "tests.planted:HANGS", timeout_s=3.0).run(watcher).stages
    assert [attempt for _, _, attempt, _ in watcher.tries] == [1]
    assert hangs.status == "crashed"
    assert watcher.notes == ["hangs: no answer for 0.6 s; it is ended after 3 s (--timeout)"]


def test_a_retry_is_recorded_and_keeps_the_log_of_the_first_attempt(tmp_path: Path) -> None:
    watcher = Watcher()
    forked(tmp_path, "FAILS_ONCE", watcher=watcher)
    once, numpy = load(tmp_path).stages
    assert is_well(once)
    (line,) = once.retries
    assert line.startswith("round 1: RuntimeError: not after a fork (accidents.py, line ")
    assert numpy.retries == []
    assert "the first attempt" in (tmp_path / "logs" / "fails-once.1.first.log").read_text()
    assert "the first attempt" not in log_of(tmp_path, "fails-once")
    assert [note for note in watcher.notes if note.startswith("fails-once: repeated in a newly started process: Runt")]


STAGE = """
from stages import Stage
from stages.references.numpy_cpu import NumpyTrainer
STAGE = Stage("mine", "Mine", "reference", "float32", (), NumpyTrainer)
"""


def test_code_that_changes_while_it_is_measured_gets_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "run"
    out.mkdir()
    file.write_text(STAGE)
    record = Verdicts.record

    def edits(self: Verdicts, finished: Finished) -> None:
        if finished.order.job.round == 1:
            file.write_text(STAGE + "assert STAGE\n")
        record(self, finished)

    monkeypatch.setattr(Verdicts, "record", edits)
    mine, numpy = prepare(out, all_entries([file])[0]["mine"], NUMPY, rounds=3).run(Watcher()).stages
    assert (mine.status, mine.timing) == ("failed", None)
    assert mine.reason == "its code changed while it was measured: mine.py; start anew"
    assert (numpy.status, len(numpy.processes)) == ("passed", 3)


def test_a_stage_that_names_a_gpu_has_to_use_one(tmp_path: Path) -> None:
    claims, numpy = forked(tmp_path, "CLAIMS_A_GPU").stages
    assert (claims.status, is_well(numpy)) == ("crashed", True)
    assert "says that it trains on a GPU, and has used none" in (claims.reason or "")


def test_a_choice_by_timing_holds_for_all_processes_of_a_stage_and_of_no_other(tmp_path: Path) -> None:
    chooses, too, _ = forked(tmp_path, "CHOOSES", "CHOOSES_TOO", rounds=2).stages
    told = [{process.detail for process in stage.processes} for stage in (chooses, too)]
    assert [len(details) for details in told] == [1, 1]
    assert told[0] != told[1]
