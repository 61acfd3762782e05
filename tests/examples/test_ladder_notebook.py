"""The notebook that runs a ladder does so on this CPU, from its first cell to its last, and is kept without outputs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ladder.records.run import load
from tests.common.data.idx_writer import quartet_arrays, write_files

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "ladder.ipynb"
SMALL = "--batch-size=16 --epochs=1 --rounds=1 --repeats=1 --budget=1 --remeasure=0"


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
        assert re.search(rf"^{stage.name} \| .* \| {stage.timing.step_us:,.1f} \| ", tables[-1], re.MULTILINE)
    assert not [one for cell in cells for one in cell.outputs if "\x1b" in one.get("text", "")]  # no terminal's colours
    assert "cpu-sparse-metrics" in cells[-1].outputs[0]["text"]  # the only step, so the largest


def test_it_tells_which_stages_run_here(executed: tuple[Path, list[Any]]) -> None:
    _, cells = executed
    (table,) = [
        one.data["text/markdown"] for cell in cells if "list" in cell.source for one in cell.outputs if "data" in one
    ]
    assert re.search(r"^numpy \| .*\| yes$", table, re.MULTILINE)
    assert re.search(r"^persistent-cluster \| cuda, cublas, cudnn, sm_90 \| ", table, re.MULTILINE)


def test_it_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
