"""No rung is flagged: a few runs of each on a GPU, judged as any run is, each of a seed and parameters of its own."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from stages.registry import Entry
from tests.cheats.test_honest import judge_in_this_process
from tests.gpu.test_rungs import RUNGS, on_this_machine
from tests.ladder.harness import Watcher, prepare, small_problem

pytestmark = pytest.mark.gpu

RUNS = 5
REMEASURE = 2  # as in any run: other tests' work on the same GPU disturbs


@pytest.mark.parametrize("hidden", [(), (16,)], ids=["logistic", "one hidden layer"])
@pytest.mark.parametrize("entry", RUNGS, ids=lambda entry: entry.stage.name)
def test_no_honest_rung_is_flagged(
    entry: Entry, hidden: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_this_process(monkeypatch)
    source = on_this_machine(entry).source
    flagged = {}
    for number in range(RUNS):
        seed, salt = secrets.randbits(16), secrets.randbits(31)
        folder = tmp_path / str(number)
        folder.mkdir()
        problem = small_problem(hidden=hidden, batch_size=16, seed=seed)
        (stage,) = prepare(folder, source, problem=problem, salt=salt, remeasure=REMEASURE).run(Watcher()).stages
        if stage.status == "skipped":
            pytest.skip(str(stage.reason))
        assert len(stage.checks) > 5
        if stage.status != "passed":
            flagged[seed, salt] = stage.reason
    assert flagged == {}
