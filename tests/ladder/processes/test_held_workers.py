"""Workers prepare side by side and are measured one at a time; one that fails or hangs meanwhile costs only itself."""

from __future__ import annotations

import time
from pathlib import Path
from threading import current_thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ladder.processes.held_workers import HeldWorker, HeldWorkers
from ladder.run import session
from ladder.run.bench import Bench
from ladder.run.jury import Jury
from tests.ladder.harness import NUMPY, Watcher, prepare

MARKING = [f"tests.planted:{name}" for name in ("MARKS", "MARKS_TOO", "MARKS_AS_WELL", "CHOOSES")]
Span = tuple[str, float, float]


@pytest.fixture(autouse=True)
def _four_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with room for four stages; NumPy prepares alone."""
    monkeypatch.setattr(session, "side_by_side", lambda *_: 4)
    monkeypatch.setattr(Bench, "may_hold", lambda self, stage: stage.name != "numpy")


def spans(folder: Path, stage: str, round_: int | str) -> list[Span]:
    """What a stage's process did in a round, with begin and end."""
    lines = (line.split() for line in (folder / "logs" / f"{stage}.{round_}.log").read_text().splitlines())
    return [(what, float(begin), float(end)) for what, begin, end in lines]


def overlap(one: Span, other: Span) -> bool:
    return one[1] < other[2] and other[1] < one[2]


def test_stages_prepare_side_by_side_and_do_all_else_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEET", f"{tmp_path}")  # none goes on before all four prepare
    results = prepare(tmp_path, NUMPY, *MARKING, rounds=2).run(Watcher())
    assert [stage.status for stage in results.stages] == ["passed"] * 5
    names = [stage.name for stage in results.stages[1:]]
    for round_ in (1, 2):
        seen = {name: spans(tmp_path, name, round_) for name in names}
        first = [seen[name][0] for name in names]
        assert all(overlap(one, other) for one in first for other in first)
        for name in names:
            for span in seen[name][1:]:
                assert not any(overlap(span, other) for other in first)
                assert not any(overlap(span, other) for whose in names if whose != name for other in seen[whose])


def test_the_first_stages_prepare_while_the_oracle_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, train = tmp_path / "logs", Jury.train
    seen: list[Path] = []

    def wait_for_all(self: Jury, *arguments: Any) -> None:
        deadline = time.monotonic() + 60
        while len(seen) < len(MARKING) and time.monotonic() < deadline:
            seen[:] = [log for log in logs.glob("*.1.log") if log.read_text().startswith("prepared")]
            time.sleep(0.01)
        train(self, *arguments)

    monkeypatch.setattr(Jury, "train", wait_for_all)
    results = prepare(tmp_path, NUMPY, *MARKING).run(Watcher())
    assert len(seen) == len(MARKING)
    assert [stage.status for stage in results.stages] == ["passed"] * 5


def test_the_first_row_waits_for_no_other_stage_where_more_prepare_than_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "_preparing_at_once", 3)
    results = prepare(tmp_path, *MARKING, rounds=2).run(Watcher())
    assert [(stage.status, len(stage.processes)) for stage in results.stages] == [("passed", 2)] * 4
    first, *others = (spans(tmp_path, stage.name, 1) for stage in results.stages)
    assert all(span[1] > first[-1][2] for other in others for span in other)


def test_what_starting_a_worker_raises_ends_the_run() -> None:
    def refused() -> HeldWorker:
        raise OSError("no more processes")

    held = HeldWorkers(4, 60.0)
    held.begin([refused])
    with pytest.raises(OSError, match="no more processes"):
        len(held)
    held.close()


def test_only_so_many_prepare_at_once() -> None:
    made: list[SimpleNamespace] = []

    def make() -> HeldWorker:
        made.append(SimpleNamespace(name=f"{len(made)}", seeds=SimpleNamespace(waits_on_gpu=False), is_prepared=False))
        return cast(HeldWorker, made[-1])

    held = HeldWorkers(8, 60.0, preparing_at_once=2)
    held.begin([make] * 4)
    for prepared in range(4):
        while len(made) < min(prepared + 2, 4):
            time.sleep(0.01)
        assert len(made) == min(prepared + 2, 4)
        made[prepared].is_prepared = True
    assert len(held) == 4


def test_nothing_is_measured_while_others_prepare() -> None:
    held = HeldWorkers(4, 60.0)
    ready = iter([False, False, True])
    worker = type("Worker", (), {"name": "a", "lasted_s": 0.0, "is_prepared": property(lambda self: next(ready))})
    held.add(cast(HeldWorker, worker()))
    assert (held.take("one that prepares by itself"), *ready) == (None,)


def test_all_end_before_the_thread_that_started_them_and_none_is_started_later() -> None:
    held, ended = HeldWorkers(4, 60.0), []

    def make() -> HeldWorker:
        own = current_thread()
        return cast(HeldWorker, SimpleNamespace(name="a", is_prepared=True, close=lambda: ended.append(own.is_alive())))

    held.begin([make])
    assert len(held) == 1
    held.close()
    held._make([make])
    assert (len(held), ended) == (0, [True])


def test_waiting_does_not_count_as_preparing(tmp_path: Path) -> None:
    *_, chooses = prepare(tmp_path, *MARKING).run(Watcher()).stages
    (process,), ((_, begin, _), (chose, _, end), *_) = chooses.processes, spans(tmp_path, "chooses", 1)
    assert chose == "chose"
    assert process.prepare_s < end - begin  # it waited for the turns of three others in between
    assert process.took_s["prepare"] < end - begin


def test_few_stages_are_measured_as_they_prepare(tmp_path: Path) -> None:
    names = [stage.name for stage in prepare(tmp_path, *MARKING[:3]).run(Watcher()).stages]
    prepared = [spans(tmp_path, name, 1)[0] for name in names]
    assert not any(overlap(one, other) for one in prepared for other in prepared if one is not other)


@pytest.mark.parametrize(
    ("fault", "reason", "rounds"), [("KILLED", "killed by SIGKILL", 2), ("HANGS", "no answer within 8 s", 1)]
)
def test_a_worker_that_ends_or_hangs_while_it_prepares_costs_only_itself_and_is_not_prepared_again(
    tmp_path: Path, fault: str, reason: str, rounds: int
) -> None:
    sources = [*MARKING[:3], f"tests.planted:{fault}"]
    *stages, faulty = prepare(tmp_path, *sources, rounds=rounds, timeout_s=8.0).run(Watcher()).stages
    assert [(stage.status, len(stage.processes)) for stage in stages] == [("passed", rounds)] * 3
    assert (faulty.status, faulty.processes) == ("crashed", [])
    assert (faulty.reason or "").startswith(reason)
    assert not (tmp_path / "logs" / f"{faulty.name}.2.log").exists()


def test_each_worker_hears_how_many_others_wait_on_the_gpu() -> None:
    held = HeldWorkers(4, 60.0)
    for name in "abcd":  # c waits without a context
        seeds = SimpleNamespace(waits_on_gpu=name != "c")
        held.add(cast(HeldWorker, SimpleNamespace(name=name, seeds=seeds, is_prepared=True, others=0)))
    assert [cast(HeldWorker, held.take(name)).others for name in "abcd"] == [2, 1, 1, 0]
