"""x"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from stages.registry import load_all, load_entry, select
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


# The notebook that runs a ladder does so on this CPU; the one that reads results gives the recorded run's numbers.


NOTEBOOK = ROOT / "examples" / "ladder.ipynb"
READER = ROOT / "examples" / "read_results.ipynb"
FEW = "--batch-size=16 --epochs=1 --rounds=1 --repeats=1 --budget=1 --remeasure=0"


def test_its_defaults_are_stages_that_there_are() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    source = "".join(line for cell in cells for line in cell["source"])
    ((with_gpu, without),) = re.findall(r'ours = "(.+)" if has_gpu else "(.+)"', source)
    assert len(select(with_gpu.split(","), load_all(), has_gpu=True)) > 20
    assert len(select(without.split(","), load_all())) > 10


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The run's folder, and the cells with their outputs, of a copy that ran in a Python of its own."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    if not (ROOT / ".venv" / "bin" / "python").exists():
        pytest.skip("the notebook would set up .venv, which takes minutes")
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copy(NOTEBOOK, copy := folder / NOTEBOOK.name)
    with pytest.MonkeyPatch.context() as patched:
        data = write_files(folder / "data", quartet_arrays(400, 50, (6, 6), 4))
        for name, value in {
            "LADDER_OUT": folder / "run",
            "LADDER_STAGES": "numpy,cpu-blas,cpu-sparse-metrics",
            "LADDER_ARGS": FEW,
            "LADDER_DATA_DIR": data,
            "JUPYTER_RUNTIME_DIR": folder / "jupyter",
            "IPYTHONDIR": folder / "ipython",
        }.items():
            patched.setenv(name, str(value))
        book = nbformat.read(copy, as_version=4)
        where = {"metadata": {"path": str(NOTEBOOK.parent)}}
        nbclient.NotebookClient(book, kernel_name="python3", timeout=300, resources=where).execute()
    return folder / "run", [cell for cell in book.cells if cell.cell_type == "code"]


def test_it_draws_and_explains_the_ladder_that_it_ran(executed: tuple[Path, list[Any]]) -> None:
    folder, cells = executed
    stages = load(folder).stages
    assert {(stage.name, stage.status) for stage in stages} == {
        ("numpy", "passed"), ("cpu-blas", "passed"), ("cpu-sparse-metrics", "passed"),
    }  # fmt: skip
    shown = [one.get("data", {}) for cell in cells for one in cell.outputs]
    assert [data["image/svg+xml"].count("cpu-blas") > 0 for data in shown if "image/svg+xml" in data] == [True]
    tables = [data["text/markdown"] for data in shown if "text/markdown" in data]
    for stage in stages:
        assert stage.timing is not None
        marks = [bool(process.disturbed) for process in stage.processes]
        mark = f", {sum(marks)} of {len(marks)} disturbed" if any(marks) else ""
        assert re.search(rf"^{stage.name} \| .* \| {stage.timing.step_us:,.1f}{mark} \| ", tables[-1], re.MULTILINE)
    assert not [one for cell in cells for one in cell.outputs if "\x1b" in one.get("text", "")]  # no terminal's colours
    said = cells[-1].outputs[0]["text"]
    if "within noise" in tables[-1]:
        assert said.startswith("No step is larger than the noise")
    else:  # the only step, so the largest
        assert said.startswith("You guessed nothing, 1x. It is cpu-sparse-metrics, ")


def test_it_tells_which_stages_run_here(executed: tuple[Path, list[Any]]) -> None:
    _, cells = executed
    (table,) = [
        one.data["text/markdown"] for cell in cells if "list" in cell.source for one in cell.outputs if "data" in one
    ]
    stages = [entry.stage for entry in load_all().values()]
    lacking = Counter(reason for stage in stages if (reason := missing(stage.needs)))
    for stage in stages:
        assert (f"\n{stage.name} | " in table) is (missing(stage.needs) is None)
    for reason, count in lacking.items():
        assert f"\n{count} more | not here: {reason}" in table


def test_it_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")


def test_where_nothing_was_timed_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text('{"stages": [{"name": "numpy", "processes": []}]}')
    sources = {cell["id"]: "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"]}
    untimed = '{"stages": [{"name": "numpy", "step_us": null, "times_from": null, "times_from_is_noise": null}]}'
    names: dict[str, Any] = {
        "OUT": tmp_path, "json": json, "ladder": lambda *_: untimed, "rows": lambda *_: None, "Markdown": print,
    }  # fmt: skip
    for cell in ("code-9", "code-10", "code-12"):
        exec(sources[cell], names)
    told = capsys.readouterr().out
    assert told.startswith("Nothing was timed, so there is no picture.\nNo step is larger than the noise: ")


def test_a_command_that_fails_is_no_result() -> None:
    sources = {cell["id"]: "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"]}
    (shell,) = re.findall(r"^def shell.*?\n\n\n", sources["code-1"], re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"subprocess": subprocess, "ROOT": ROOT, "PLAIN": None}
    exec(shell, names)
    assert names["shell"]("sh", "-c", "echo told; exit 1", broken=(1,)) == "told\n"
    for end in ("exit 1", "exit 2", "kill -9 $$"):
        with pytest.raises(RuntimeError, match=r"status -?\d: told"):
            names["shell"]("sh", "-c", f"echo told; {end}")


def test_it_begins_with_a_checkout_and_asks_for_a_guess_before_it_runs() -> None:
    sources = ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"]]
    assert "# !git clone " in sources[1]
    guess, run = (
        [at for at, source in enumerate(sources) if begin in source] for begin in ("guess, times", 'ladder("run"')
    )
    assert guess[0] < run[0]
    assert "(lab/README.md)" in sources[0]


def _numbers(table: str) -> list[str]:
    return re.findall(r"\d+\.\d+", table)


def test_tables_of_the_reader_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(READER.parent)
    names: dict[str, Any] = {}
    for cell in json.loads(READER.read_text())["cells"]:
        if cell["cell_type"] == "code":
            *statements, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(statements, []), READER.name, "exec"), names)
            shown = eval(ast.unparse(last), names)
            kept = [output["data"]["text/plain"] for output in cell["outputs"] if "data" in output]
            assert [_numbers("".join(text)) for text in kept] == ([] if shown is None else [_numbers(str(shown))])
    stages = {stage.name: stage for stage in load(names["RUN"]).stages}
    times = {name: stage.timing for name, stage in stages.items()}
    for name, row in names["climb"].iterrows():
        own, parent = times[name], times.get(stages[name].below or "")
        assert own is not None
        assert row["us/step"] == pytest.approx(own.step_us)
        if parent is not None:
            assert row["speedup over parent"] == pytest.approx(parent.step_us / own.step_us)
    assert set(names["spread"].index) >= set(names["climb"].index)
    for name, row in names["spread"].loc[names["climb"].index].iterrows():
        own = times[name]
        assert own is not None
        assert row["median"] == pytest.approx(own.step_us)
        assert row["count"] == len(own.runs_s)
    for name, row in names["split"].iterrows():
        assert row.sum() == pytest.approx(next(p for p in stages[name].profiles if p.tool == "cupti").plain_step_us)
