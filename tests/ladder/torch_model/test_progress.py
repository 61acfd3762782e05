"""What a run says that it does, and how long it expects to take, by a clock of the test."""

from __future__ import annotations

import pytest

from ladder.torch_model.progress import COMPILING_S, Pace, Progress
from stages.torch.registry import RUNGS, left_out

CALM = [RUNGS[name] for name in ("eager", "no-item", "resident")]
COMPILED = [RUNGS["compile"]]
GRAPH = [RUNGS["step-graph"]]


class Watcher:
    """Keeps what a view is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, float | None, str]] = []

    def note(self, text: str) -> None: ...

    def row(self, rung: object, eager: object, processes: int) -> None: ...

    def doing(self, phase: str, part: str = "", left_s: float | None = None, until: str = "") -> None:
        self.told.append((phase, part, left_s, until))


def test_the_estimate_is_of_what_the_first_process_has_shown() -> None:
    now, view = 0.0, Watcher()
    progress = Progress(view, "my_model.py", 2, times=True, clock=lambda: now)
    progress.round(1, [CALM, GRAPH], places=1)
    progress.started(CALM)
    now = 10.0
    progress.read()
    progress.judging(1, 8)
    now = 14.0  # two seconds a training
    progress.judging(3, 8)
    assert view.told == [
        ("reading my_model.py", "", None, ""),
        ("judging eager", "run 1 of 8", None, "the first row"),
        ("judging eager", "run 3 of 8", 14.0, "the first row"),
    ]
    now = 30.0
    progress.judged("eager")
    now = 31.0
    progress.timed("eager")
    # The first round: two calm rungs (3 s each), a process (10 + 2) and its time. The second: two processes, one of
    # which is judged (20 + 2), and four times.
    assert view.told[-1] == ("round 1 of 2: preparing 4 rungs", "no-item, 1 of 4 done", 6.0 + 12 + 1 + 22 + 4, "")
    for rung in ("no-item", "resident"):
        progress.judged(rung)
        progress.timed(rung)
    progress.started(GRAPH)
    assert "step-graph, 3 of 4 done" in view.told[-1]
    progress.judged("step-graph")
    now = 100.0
    progress.timing("step-graph")
    assert view.told[-1] == ("round 1 of 2: timing 4 rungs", "step-graph, 4 of 4", 1.0 + 22 + 4, "")
    progress.timed("step-graph")
    gone = left_out(RUNGS["step-graph"], RUNGS["resident"])
    progress.round(2, [CALM, GRAPH, [gone]], places=1)
    progress.started(CALM)
    assert view.told[-1] == ("round 2 of 2: preparing 5 rungs", "eager, 0 of 5 done", 10.0 + 12 + 12 + 5, "")
    progress.timing(gone.name)
    assert view.told[-1][:2] == ("round 2 of 2: leaving one change out", "rung 1 of 1")
    progress.writing()
    assert view.told[-1][:2] == ("writing the report", "")


@pytest.mark.parametrize(("places", "seconds"), [(1, 4.0 + 2 * (13 + COMPILING_S)), (8, 13 + COMPILING_S)])
def test_compilers_work_side_by_side_where_there_are_cores(places: int, seconds: float) -> None:
    pace = Pace(start_s=10.0, judge_s=3.0, time_s=1.0)
    families = [CALM[:2], COMPILED, COMPILED]
    assert pace.round_s(families, places, is_first=True) == seconds + 2
    twice = Pace(start_s=10.0, judge_s=3.0, time_s=1.0, compiles=2)  # a step with dropout is also compiled without
    more = twice.round_s(families, places, is_first=True) - pace.round_s(families, places, is_first=True)
    assert more == COMPILING_S * (2 if places == 1 else 1)


def test_a_check_has_no_rounds() -> None:
    view = Watcher()
    progress = Progress(view, "my_model.py", 2, times=False)
    progress.round(1, [CALM], places=1)
    progress.started(CALM)
    progress.judging(8, 8)
    progress.judged("eager")
    assert view.told[-2][::3] == ("judging eager", "")
    assert view.told[-2][1] == "run 8 of 8, in float64"
    assert view.told[-1] == ("judging 3 rungs", "no-item, 1 of 3 done", None, "")


def test_what_is_waited_for_is_named_compiled_rungs_first() -> None:
    view = Watcher()
    progress = Progress(view, "my_model.py", 2, times=True, has_row=True)
    progress.round(1, families := [CALM, GRAPH, COMPILED], places=4)
    for family in families:
        progress.started(family)
    progress.judging(8, 8)
    progress.referenced()
    progress.judged("eager")
    assert [told[1] for told in view.told[-2:]] == [
        "compile, eager and 1 more, 0 of 5 done", "compile, no-item and 1 more, 1 of 5 done"
    ]  # fmt: skip
