"""No rung is flagged: a few runs of each on a GPU, judged as any run is, each of a seed and parameters of its own.

What is computed is judged beside other tests. Times are judged alone: work on the same GPU disturbs them, unseen.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from ladder.machine.environment import missing
from ladder.processes import seed_server
from ladder.run.stage_run import TIME_CHECKS
from stages.registry import Entry
from tests.cheats.honest_grid import draw_again_from
from tests.gpu.test_rungs import RUNGS, on_this_machine
from tests.ladder.harness import Watcher, prepare, small_problem
from tests.ladder.in_process import judge_in_this_process

pytestmark = pytest.mark.gpu

RUNS = 5
HIDDEN = pytest.mark.parametrize("hidden", [(), (16,)], ids=["logistic", "one hidden layer"])


@HIDDEN
@pytest.mark.parametrize("entry", RUNGS, ids=lambda entry: entry.stage.name)
def test_no_honest_rung_is_flagged(
    entry: Entry, hidden: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_this_process(monkeypatch)
    source = on_this_machine(entry).source
    flagged = {}
    for number in range(RUNS):
        seed, salt = secrets.randbits(16), secrets.randbits(31)
        monkeypatch.setitem(vars(seed_server), "secrets", secrets)  # to undo
        draw_again_from(salt)  # all other seeds as well: the same seed and salt repeat the run
        folder = tmp_path / str(number)
        folder.mkdir()
        problem = small_problem(hidden=hidden, batch_size=16, seed=seed)
        (stage,) = prepare(folder, source, problem=problem, salt=salt).run(Watcher()).stages
        if stage.status == "skipped":
            pytest.skip(str(stage.reason))
        assert len(stage.checks) > 5
        wrong = [one for one in stage.checks if not one.passed and one.what not in TIME_CHECKS]
        if wrong or stage.status not in ("passed", "failed"):
            failed = [f"{one.what}: error {one.error}, limit {one.limit:.3g} {one.note}".strip() for one in wrong]
            flagged[f"seed {seed}, salt {salt}"] = failed or stage.reason
    assert flagged == {}


@pytest.mark.alone
@HIDDEN
def test_no_honest_rung_is_too_fast(hidden: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_this_process(monkeypatch)
    sources = [entry.source for entry in RUNGS if missing(entry.stage.needs) is None]
    problem = small_problem(hidden=hidden, batch_size=16, seed=secrets.randbits(16))
    stages = prepare(tmp_path, *sources, problem=problem, salt=secrets.randbits(31), remeasure=2).run(Watcher()).stages
    assert len(stages) > 5
    assert {stage.name: stage.reason for stage in stages if stage.status not in ("passed", "skipped")} == {}
