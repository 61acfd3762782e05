"""What a run says that it does, and how long it expects to take, by a clock of the test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ladder.torch_model.progress import BUSY, CACHED_S, COMPILING_S, Pace, Progress
from stages.torch.registry import RUNGS, left_out

CALM = [RUNGS[name] for name in ("eager", "no-item", "resident")]
COMPILED = [RUNGS["compile"]]
GRAPH = [RUNGS["step-graph"]]


class Watcher:
    """Keeps what a view is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Sequence[float], str]] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def row(self, rung: object, eager: object, processes: int) -> None: ...

    def doing(self, phase: str, part: str = "", left_s: Sequence[float] = (), until: str = "") -> None:
        self.told.append((phase, part, left_s, until))


def test_the_estimate_is_of_what_the_first_process_has_shown() -> None:
    now, view = 0.0, Watcher()
    progress = Progress(view, "my_model.py", times=True, clock=lambda: now)
    progress.planned([[(1, CALM), (2, CALM)], [(1, GRAPH), (2, GRAPH)]], places=1)
    progress.started(1, CALM)
    now = 9.0
    progress.read()
    now = 10.0
    progress.tried(step_s := 0.010123)
    assert view.notes == ["eager takes about 10,000 us per step (a first guess); it is judged first"]
    progress.judging(1, 8)
    progress.started(1, GRAPH[:0])  # another process says nothing while all wait for the judge
    now = 16.0  # two seconds a training, and four in float64
    progress.judging(3, 8)
    progress.referenced()
    assert view.told == [
        ("reading my_model.py", "", (), ""),
        ("preparing and timing rungs", "eager, 0 of 8 done", [], ""),
        ("judging eager", "run 1 of 8", pytest.approx([step_s * 1760, step_s * 1760 * BUSY]), "the first row"),
        ("judging eager", "run 3 of 8", [16.0], "the first row"),
        ("preparing and timing rungs", "eager, 0 of 8 done", [4.0], "the first row"),
    ]
    now = 30.0
    progress.judged()
    now = 31.0
    progress.done(1, "eager")
    # Two calm rungs are still judged (2 s each); three processes start (9 s), and two judge. Seven rungs are timed.
    assert view.told[-1] == ("preparing and timing rungs", "no-item, 1 of 8 done", [4.0 + 27 + 4 + 7], "")
    progress.done(1, "no-item")
    progress.done(1, "resident", is_timed=False)
    progress.started(1, GRAPH)
    assert view.told[-1][:2] == ("preparing and timing rungs", "step-graph, 3 of 8 done")
    progress.done(1, "step-graph")
    gone = left_out(RUNGS["step-graph"], RUNGS["resident"])
    now = 40.0
    progress.planned([[(2, CALM)], [(2, GRAPH)], [(2, [gone])]], places=1)
    progress.started(2, CALM)
    # One of the three processes has started: two graphs are judged, and five rungs timed.
    assert view.told[-1] == ("preparing and timing rungs", "eager, 4 of 9 done", [18.0 + 4 + 5], "")
    progress.writing()
    assert view.told[-1][:2] == ("writing the report", "")


@pytest.mark.parametrize(("places", "seconds"), [(1, 16.0 + 2 * (13 + COMPILING_S)), (8, 13 + COMPILING_S)])
def test_compilers_work_side_by_side_where_there_are_cores(places: int, seconds: float) -> None:
    pace = Pace(start_s=10.0, judge_s=3.0, time_s=1.0)
    chains = [[(1, rungs)] for rungs in (CALM[:2], COMPILED, COMPILED)]
    assert pace.left_s(chains, places) == seconds + 4
    twice = Pace(start_s=10.0, judge_s=3.0, time_s=1.0, compiles=2)  # a step with dropout is also compiled without
    assert twice.left_s(chains, places) - pace.left_s(chains, places) == COMPILING_S * (2 if places == 1 else 1)


def test_processes_of_a_chain_come_one_after_the_other() -> None:
    pace = Pace(start_s=10.0, judge_s=3.0, time_s=1.0)
    assert pace.left_s([[(1, COMPILED), (2, COMPILED)]], 8) == 2 * (10 + 3 + 1) + COMPILING_S + CACHED_S
    assert pace.left_s([], 8) == 0


def test_a_resumed_run_has_an_estimate_after_its_own_first_row() -> None:
    now, view = 0.0, Watcher()
    progress = Progress(view, "my_model.py", times=True, has_row=True, clock=lambda: now)
    progress.planned([[(2, CALM)]], places=1)
    now = 10.0
    progress.started(2, CALM)
    progress.read()
    assert view.told[-1][1:] == ("eager, 0 of 3 done", [], "")
    progress.judged()
    now = 12.0
    progress.done(2, "eager")
    assert view.told[-1][1:3] == ("no-item, 1 of 3 done", [4.0])


def test_a_check_has_no_times() -> None:
    view = Watcher()
    progress = Progress(view, "my_model.py", times=False)
    progress.planned([[(1, CALM)]], places=1)
    progress.started(1, CALM)
    progress.judging(2, 8)
    progress.done(1, "eager", is_timed=False)
    assert view.told[-2][::3] == ("judging eager", "eager is judged")
    assert view.told[-2][1] == "run 2 of 8, in float64"
    assert view.told[-1] == ("judging rungs", "no-item, 1 of 3 done", [], "")


def test_what_is_waited_for_is_named_compiled_rungs_first() -> None:
    view = Watcher()
    progress = Progress(view, "my_model.py", times=True, has_row=True)
    progress.planned([[(1, rungs)] for rungs in (CALM, GRAPH, COMPILED)], places=4)
    for rungs in (CALM, GRAPH, COMPILED):
        progress.started(1, rungs)
    progress.judging(8, 8)
    progress.referenced()
    progress.done(1, "eager")
    assert [told[1] for told in view.told[-2:]] == [
        "compile, eager and 1 more, 0 of 5 done", "compile, no-item and 1 more, 1 of 5 done"
    ]  # fmt: skip
