"""What generators write is as committed: the tree of stages, the table of kernels, the schema, which fits every run."""

from __future__ import annotations

import copy
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ladder.records.run import SCHEMA_VERSION, Results
from stages.registry import load_all
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, kernels_in
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
