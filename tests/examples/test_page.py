"""The page on stages of one's own does what it says, word by word; and so do the examples."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from common.cuda import driver
from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from ladder.machine.environment import missing
from ladder.processes import worker_pool
from ladder.records.run import StageResult, load
from run_ladder import main
from stages.engine.stage import Build
from stages.engine.step import RecipeTrainer
from stages.registry import load_entry
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.cpu_cuda.shim import requires_compiler
from tests.ladder.in_process import worked_here
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.numpy_parts import RECIPE, HostDevice

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "your-own-stage.md").read_text()
(MY_STAGE,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
SMALL = [
    "--remeasure=0", "--batch-size=20", "--epochs=2", "--metrics-every=1", "--rounds=1", "--repeats=3", "--budget=1",
    "--profile=none",
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None) -> Path:
    """A folder with the page's file and the examples in it, and small data that is found without asking."""
    (tmp_path / "my_stage.py").write_text(MY_STAGE)
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_pool, "launch", worked_here)
    monkeypatch.setenv("LADDER_DATA_DIR", str(write_files(tmp_path / "data", quartet_arrays(300, 50, (6, 6), 4))))
    return tmp_path


@requires_compiler
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_runs(here: Path, command: str) -> None:
    python, script, *argv = shlex.split(command, comments=True)
    assert (python, script) == ("python", "run_ladder.py")
    if argv[0] == "check":
        assert main([*argv, "--batch-size=20", "--metrics-every=1"]) == 0
        return
    nothing_can_be_measured = bool(driver.no_device_reason()) and "naive..cublas" in argv
    assert main([*argv, *SMALL, "--out", "run"]) == (2 if nothing_can_be_measured else 0)
    if nothing_can_be_measured:
        return
    stages = {stage.name: stage for stage in load(here / "run").stages}
    own = [load_entry(f"{here / word}:STAGE").stage for word in argv if word.endswith(".py")]
    assert own
    for stage in own:
        lacking = missing(stage.needs)
        assert (stages[stage.name].status, stages[stage.name].reason) == ("skipped" if lacking else "passed", lacking)
        assert lacking or judged(stages[stage.name])


def judged(stage: StageResult) -> bool:
    """Whether it went through the gates that every stage does."""
    what = {check.what for check in stage.checks}
    return {"first update, scale", "epoch from zeros, parameters", "final parameters", "loss curve"} <= what


def test_a_finished_run_goes_on_with_its_stage_file_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stages=numpy", "--stage-file=my_stage.py", *SMALL, "--out=run"]) == 0
    assert main(["--resume=run"]) == 2
    assert "measured mine, which this version does not have; start anew, or give its --stage-file" in (
        capsys.readouterr().err
    )
    assert main(["--resume=run", "--stage-file=my_stage.py"]) == 0


def test_a_stage_that_does_not_take_the_problem_is_skipped_with_its_reason(here: Path) -> None:
    assert main(["--stages=numpy", "--stage-file=my_stage.py", *SMALL, "--hidden=8", "--out=run"]) == 0
    (mine,) = [stage for stage in load(here / "run").stages if stage.name == "mine"]
    assert (mine.status, mine.reason) == ("skipped", "trains softmax regression alone; leave --hidden out")


def test_a_defect_in_it_is_caught_as_in_any_other(here: Path) -> None:
    text = MY_STAGE.replace("self.problem.learning_rate / len(images)", "self.problem.learning_rate / 19")
    assert text != MY_STAGE
    (here / "my_stage.py").write_text(text)
    assert main(["--stages=numpy", "--stage-file=my_stage.py", *SMALL, "--out=run"]) == 1
    (mine,) = [stage for stage in load(here / "run").stages if stage.name == "mine"]
    assert mine.status == "failed"
    assert mine.reason is not None
    assert mine.reason.startswith("first update, weight[0]")


def test_every_example_is_on_the_page_and_has_under_40_lines_of_code() -> None:
    for path in EXAMPLES.glob("*.*"):
        if path.suffix == ".ipynb":
            continue  # it reads results, on a page of its own
        assert path.name in PAGE
        assert len([line for line in path.read_text().splitlines() if line.strip()]) < 40, path.name


@pytest.mark.parametrize("hidden", [(), (33,)], ids=str)
def test_cupy_s_product_in_the_step_is_the_oracle_s(hidden: tuple[int, ...]) -> None:
    stage = load_entry(f"{EXAMPLES}/cupy_gemm.py:STAGE").stage
    assert (stage.below, stage.changed) == ("async", "gemm: CupyGemm")
    assert stage.recipe is not None
    recipe = replace(RECIPE, gemm=stage.recipe.gemm)  # NumPy's arrays have the same operators

    def build(problem: Problem, train: Split) -> Trainer:
        return RecipeTrainer(recipe, problem, train, HostDevice())

    assert_trains(build, hidden)


@pytest.mark.torch
@pytest.mark.parametrize("hidden", [(), (17, 5, 9)], ids=str)
def test_the_gradient_by_hand_is_the_oracle_s(hidden: tuple[int, ...]) -> None:
    assert_trains(load_entry(f"{EXAMPLES}/torch_by_hand.py:STAGE").stage.build, hidden)


def assert_trains(build: Build, hidden: tuple[int, ...]) -> None:
    problem = Problem(inputs=49, classes=10, hidden=hidden, batch_size=16, metrics_every=1)
    split = random_split(3 * 16, 49, 10)
    assert_first_updates(build(problem, split), problem, split)
