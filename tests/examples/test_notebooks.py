"""The notebook that runs a ladder does so on this CPU; the one that reads results gives the recorded run's numbers."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ladder.machine.environment import missing
from ladder.records.run import load
from stages.registry import load_all, select
from tests.common.data.idx_writer import quartet_arrays, write_files

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "ladder.ipynb"
READER = ROOT / "examples" / "read_results.ipynb"
SMALL = "--batch-size=16 --epochs=1 --rounds=1 --repeats=1 --budget=1 --remeasure=0"


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
            "LADDER_ARGS": SMALL,
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
