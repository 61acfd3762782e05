"""A user's file is imported in processes of its own alone: whatever it does there, the harness keeps its state."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from common.cost import Exchanges
from common.errors import UsageError
from ladder.processes import stage_files
from ladder.run.entries import all_entries
from ladder.verify import gates
from run_ladder import main
from stages.registry import load_all
from tests.ladder.harness import Watcher, prepare, small_problem

STAGE = """
from stages import Stage
from stages.references.numpy_cpu import NumpyTrainer
STAGE = Stage("mine", "Mine", "reference", "float32", (), NumpyTrainer)
"""


def written(folder: Path, first: str, then: str = STAGE, file: str = "mine.py") -> Path:
    """A file that does something before it has its stage."""
    path = folder / file
    path.write_text(f"{first}\n{then}")
    return path


def state() -> tuple[object, ...]:
    """What a file could change in the process that imports it."""
    return (
        dict(os.environ),
        Path.cwd(),
        signal.getsignal(signal.SIGINT),
        {name: getattr(gates, name) for name in dir(gates) if name.isupper()},
        time.perf_counter,
        sys.stdout,
        "stage_file_mine" in sys.modules,
    )


ACCIDENTS = """
import os, signal, sys, time
from ladder.verify import gates
os.environ['OPENBLAS_NUM_THREADS'] = '1'
os.chdir('/')
signal.signal(signal.SIGINT, signal.SIG_IGN)
gates.LIMITS = gates.FIRST_UPDATE_LIMITS = {}
time.perf_counter = time.time
sys.stdout = None
"""


@pytest.mark.parametrize("accident", [ACCIDENTS, "pass"])
def test_a_file_changes_nothing_in_the_harness(tmp_path: Path, accident: str) -> None:
    before = state()
    entries, own = all_entries([written(tmp_path, accident)])
    assert own == ("mine",)
    assert entries["mine"].stage.title == "Mine"
    assert state() == before


def refusal(*paths: Path) -> str:
    with pytest.raises(UsageError) as caught:
        all_entries(paths)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize(
    ("accident", "said"),
    [
        ("import os; print('x', 'why\\033[2J', flush=True); os._exit(0)",
         r"its import ended Python with exit code 0 (x why\x1b[2J); correct it"),
        ("import ctypes; ctypes.string_at(0)", "its import was killed by SIGSEGV"),
        ("raise ValueError('red \\033[31m')", r"line 1: ValueError: red \x1b[31m; correct it"),
    ],
)  # fmt: skip
def test_a_file_that_ends_its_process_is_named(tmp_path: Path, accident: str, said: str) -> None:
    path = written(tmp_path, accident)
    line = refusal(path)
    assert line.startswith(f"--stage-file {path}: ")
    assert said in line


def test_a_file_that_hangs_is_named_after_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_files, "TIMEOUT_S", 2.0)
    fine, hangs = written(tmp_path, "", file="fine.py"), written(tmp_path, "import time; time.sleep(1000)")
    line = f"--stage-file {hangs}: its import did not end within 2 s; move slow work into the trainer"
    assert refusal(fine, hangs) == line
    assert "did not end within 2 s" in refusal(written(tmp_path, "while True: print('wall')"))


def test_a_wall_of_prints_does_not_reach_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "for _ in range(100_000): print('wall')")
    assert main(["list", "--stage-file", str(path)]) == 0
    out, err = capfd.readouterr()
    assert "wall" not in out + err
    assert "mine" in out


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (STAGE.replace('"Mine"', '"M\\033[2J"'), r"title 'M\x1b[2J': use printable text in one line"),
        (STAGE.replace('"Mine"', '"M" * 200'), "a title of 200 characters; use 120 or fewer"),
        (STAGE.replace("NumpyTrainer)", "NumpyTrainer, changed='a\\nb')"), "changed 'a\\nb'"),
        ('"""Why: red\\033[31m."""' + STAGE, "why 'red\\x1b[31m.'"),
        ('__doc__ = "Why: " + "long " * 300_000' + STAGE, "in more than 1,048,576 bytes; shorten its texts"),
    ],
)
def test_text_that_would_change_a_terminal_is_refused(tmp_path: Path, stage: str, said: str) -> None:
    assert said in refusal(written(tmp_path, "", stage))


def test_the_answer_of_a_file_is_checked_again_by_the_harness(tmp_path: Path) -> None:
    lie = "from ladder.processes import stage_reader\n"
    lie += "from stages.engine import user_stage\nuser_stage._wrong = lambda *_: ''"
    line = refusal(written(tmp_path, lie, STAGE.replace('"float32"', '"fp32"')))
    assert "precision 'fp32'; choose from float32" in line


def test_a_rung_keeps_what_its_recipe_says(tmp_path: Path) -> None:
    rung = 'from stages import rung\nSTAGE = rung("persistent-grid").climb("mine", "M", launch=L)'
    part = "from stages.persistent.persistent_grid import GridEpoch\nclass L(GridEpoch): pass"
    path = written(tmp_path, part, rung)
    mine, ours = all_entries([path])[0]["mine"].stage, load_all()["persistent-grid"].stage
    assert (mine.below, mine.changed, mine.needs) == ("persistent-grid", "launch: L", ours.needs)
    assert mine.traits == ours.traits
    problem = small_problem(hidden=(256,))
    assert mine.exchanges(problem, 16, 132, 200_000) == ours.exchanges(problem, 16, 132, 200_000) != Exchanges()
    assert mine.misfit(problem, 16) == ours.misfit(problem, 16)


def test_a_misfit_comes_from_the_file_and_one_that_fails_is_refused(tmp_path: Path) -> None:
    trainer = "from stages.references.numpy_cpu import NumpyTrainer as N\nclass NumpyTrainer(N):\n"
    trainer += "    @staticmethod\n    def misfit(problem, steps): {}\n"
    stage = STAGE.replace("from stages.references.numpy_cpu import NumpyTrainer", "")
    path = written(tmp_path, trainer.format("return f'{steps} steps\\033[2J'"), stage)
    assert all_entries([path])[0]["mine"].stage.misfit(small_problem(), 3) == r"3 steps\x1b[2J"
    wrong = written(tmp_path, trainer.format("return 1 / 0"), stage, "wrong.py")
    with pytest.raises(UsageError, match=r"cannot judge the problem: line 4: ZeroDivisionError: division by zero"):
        all_entries([wrong])[0]["mine"].stage.misfit(small_problem(), 3)


def test_a_run_measures_a_stage_whose_file_changes_its_process(tmp_path: Path) -> None:
    beside = "import os, signal; assert os.path.exists('mine.py'); os.chdir('/')"
    path = written(tmp_path, f"{beside}; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    (tmp_path / "run").mkdir()
    (stage,) = prepare(tmp_path / "run", all_entries([path])[0]["mine"]).run(Watcher()).stages
    assert (stage.status, stage.title) == ("passed", "Mine")


NOTES = """
import os
from hashlib import sha256
from pathlib import Path
from stages.references.numpy_cpu import NumpyTrainer as Plain
class NumpyTrainer(Plain):
    def close(self):
        crashed = Path(__file__).with_suffix(".crashed")
        if len(self._batches) > 3 and crashed.name == "mine.crashed" and not crashed.exists():
            crashed.touch()
            os._exit(1)
    def load_params(self, params):
        with Path(__file__).with_suffix(".seen").open("a") as seen:
            print(sha256(params.weights[0].tobytes()).hexdigest(), file=seen)
        super().load_params(params)
"""


def test_no_stage_of_the_user_s_can_tell_another_or_its_next_attempt_which_run_is_judged(tmp_path: Path) -> None:
    stage = STAGE.replace("from stages.references.numpy_cpu import NumpyTrainer", "")
    files = [written(tmp_path, NOTES, stage.replace("mine", name), f"{name}.py") for name in ("mine", "yours")]
    (tmp_path / "run").mkdir()
    entries = all_entries(files)[0]
    results = prepare(tmp_path / "run", entries["mine"], entries["yours"]).run(Watcher())
    assert [(one.status, one.reason) for one in results.stages] == [("passed", None)] * 2
    assert [len(one.retries) for one in results.stages] == [1, 0]
    shared = 1 + 1 + 3 + 2  # zeros, trained parameters, first updates, repeated ones
    mine, yours = (Counter(file.with_suffix(".seen").read_text().split()) for file in files)
    assert len(mine & yours) == shared
    assert sum(count > 1 for count in mine.values()) == shared  # in both attempts
