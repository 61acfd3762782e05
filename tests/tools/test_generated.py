"""What generators write is as committed, and a rung that is laid out is there at once."""

from __future__ import annotations

import copy
import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ladder.records.run import SCHEMA_VERSION, Results
from stages.registry import load_all
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, kernels_in
from tools import new_rung
from tools.generated import README, SCHEMAS, description, first_user, generated, page, schema, summary, tree

STAGES = load_all()


def test_what_repeats_the_code_is_as_committed() -> None:
    stale = [path.name for path, text in generated().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run python -m tools.generated"


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_has_one_row_with_its_parent_and_file(name: str) -> None:
    entry = STAGES[name]
    (row,) = [line for line in page(STAGES.values()).splitlines() if re.match(rf"\|[^|]*`{name}`", line)]
    assert f"({entry.source.partition(':')[0].removeprefix('stages.').replace('.', '/')}.py)" in row
    if entry.stage.below:
        assert f"| `{entry.stage.below}` |" in row


def test_the_tree_joins_chains_and_indents_forks() -> None:
    parents = {"a": None, "b": "a", "c": "b", "d": "c", "e": "b", "f": None}
    assert tree(parents) == ["a ─ b", "├─ c ─ d", "└─ e", "f"]


@pytest.mark.parametrize(
    "first_line", ["no colon.", "Name: no full stop", f"Name: {'x' * 90}."], ids=["colon", "full stop", "length"]
)
def test_a_malformed_first_line_is_refused(first_line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r1_wrong.py").write_text(f'"""{first_line}"""\n', encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "r1_wrong", raising=False)
    with pytest.raises(ValueError, match="must begin with 'Name: what changes"):
        description("r1_wrong")


def test_every_kernel_has_a_row() -> None:
    text = README.read_text()
    for kernel in kernels_in(KERNELS_FOLDER):
        assert f"| `{kernel.name}` | {summary(kernel)} |" in text


def test_a_summary_is_one_sentence() -> None:
    comment = ("add: a sum of", "0.5 and 1. Then more.", "Launch: any.")
    assert summary(Kernel("add", README, (), comment)) == "a sum of 0.5 and 1"
    assert all("Launch:" not in summary(kernel) for kernel in kernels_in(KERNELS_FOLDER))


@pytest.mark.parametrize(
    ("kernel", "stage"),
    [("gemm_naive", "naive"), ("bias_update", "fused-update"), ("cluster_mlp", "persistent-cluster")],
)
def test_the_first_user_is_the_rung_that_brings_the_kernel(kernel: str, stage: str) -> None:
    assert first_user(kernel) == stage


def test_a_kernel_that_no_stage_launches_is_an_error() -> None:
    with pytest.raises(ValueError, match="forgotten: no stage names it"):
        first_user("forgotten")


jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed; make test installs it")
ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "results" / "reference").glob("*/*/results.json.gz"))
VALIDATOR = jsonschema.Draft202012Validator(schema(Results, SCHEMA_VERSION))
OWN_MODELS = sorted((ROOT / "results" / "reference").glob("*/torch/*/torch.json"))


def test_the_page_names_today_s_version() -> None:
    assert f"schema version {SCHEMA_VERSION}" in (ROOT / "docs" / "results.md").read_text()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_runs_fit_it(path: Path) -> None:
    assert RECORDED
    VALIDATOR.validate(json.loads(gzip.decompress(path.read_bytes())))


def test_recorded_ladders_over_models_fit_theirs() -> None:
    validator = jsonschema.Draft202012Validator(schema(*SCHEMAS[ROOT / "docs" / "torch.schema.json"]))
    for path in OWN_MODELS:
        validator.validate(json.loads(path.read_bytes()))
        assert not validator.is_valid(json.loads(path.read_bytes()) | {"rungs": "none"})


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("schema_version",), SCHEMA_VERSION + 1),
        (("stages", 0, "status"), "unknown"),
        (("stages", 0, "processes", 0, "runs_s"), "1.0"),
        (("problem", "inputs"), None),
    ],
)
def test_other_files_do_not(where: tuple[str | int, ...], value: object) -> None:
    whole: Any = copy.deepcopy(json.loads(gzip.decompress(RECORDED[0].read_bytes())))
    inner = whole
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    assert not VALIDATOR.is_valid(whole)


# A rung that is laid out is there at once: it loads, stands below its parent, and changes one part.


SHOW = """
from stages.registry import load_all
import stages
import sys
names, mine = [*load_all()], load_all()[sys.argv[1]].stage
print(stages.__file__, mine.title, mine.below, mine.changed, mine.group, names[names.index(mine.name) - 1])
"""


@pytest.mark.parametrize(
    ("name", "below", "part", "shown"),
    [
        ("my-rung", "persistent-grid", "launch", "persistent-grid launch: MyRungLaunch beyond divided-hidden-fp16"),
        ("my-gemm", "cublas", "gemm", "cublas gemm: MyGemm beyond cuda-graph"),
        ("cpu-my-rung", "cpu-cores", "launch", "cpu-cores launch: CpuMyRungLaunch cpu cpu-wide-tiles"),
    ],
)
def test_a_rung_is_laid_out_below_its_parent(
    name: str,
    below: str,
    part: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=shutil.ignore_patterns("__pycache__", "kernels"))
    (tmp_path / "common").symlink_to(ROOT / "common")
    monkeypatch.setattr(new_rung, "ROOT", tmp_path)
    assert new_rung.main([name, "--from", below, "--part", part]) == 0
    file = tmp_path / capsys.readouterr().out.partition(":")[0]
    title = name.removeprefix("cpu-").replace("-", " ").capitalize()
    assert file.stem == title.lower().replace(" ", "_")
    told = subprocess.run([sys.executable, "-c", SHOW, name], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout == f"{tmp_path / 'stages/__init__.py'} {title} {shown}\n"
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F,I,E", "--line-length=120", file]
    )
    assert checked.returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["naive", "--from", "cublas"], "naive: a rung needs an id of its own"),
        (["My Rung", "--from", "cublas"], "My Rung: a rung needs an id of its own"),
        (["my-rung", "--from", "jax-scan"], "--from jax-scan: is no rung"),
        (["my-rung", "--from", "cubals"], "stage 'cubals': unknown; did you mean cublas?"),
    ],
)
def test_what_cannot_be_laid_out_is_told_in_one_line(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(new_rung, "ROOT", tmp_path)
    assert new_rung.main([*words, "--part", "gemm"]) == 2
    assert why in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
