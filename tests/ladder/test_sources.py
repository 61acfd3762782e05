"""A stage's hashes change with what it is made of, and with nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ladder import sources
from ladder.results import StageCode, load
from ladder.sources import code_of
from stages.registry import SOURCES
from tests.ladder.harness import NUMPY, Watcher, prepare

NAIVE = "stages.naive:STAGE"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of our sources to change."""
    for folder in ("stages", "common"):
        shutil.copytree(sources.ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "KERNELS", tmp_path / "stages" / "kernels")
    return tmp_path


def fresh(source: str) -> StageCode:
    for cached in (code_of, sources._read, sources._digest):
        cached.cache_clear()
    return code_of(source)


@pytest.fixture(autouse=True)
def forget() -> None:
    fresh(NUMPY)


@pytest.mark.parametrize(
    ("file", "source", "changed"),
    [
        ("stages/naive.py", NAIVE, ["sources"]),
        ("stages/naive.py", "stages.cuda_graph:STAGE", ["sources"]),  # which climbs from it
        ("stages/naive.py", NUMPY, []),
        ("stages/cublas.py", NAIVE, []),
        ("common/cuda/gpu.py", NAIVE, ["sources"]),
        ("common/oracle.py", NAIVE, []),
        ("stages/kernels/gemm.cu", NAIVE, ["kernels"]),
        ("stages/kernels/grid.cuh", "stages.persistent_grid:STAGE", ["kernels"]),  # which its kernel includes
        ("stages/kernels/grid.cuh", NAIVE, []),
        ("stages/kernels/tile_tf32.cu", "stages.tf32:STAGE", ["kernels"]),
    ],
)
def test_what_a_stage_is_made_of_is_in_its_hashes(tree: Path, file: str, source: str, changed: list[str]) -> None:
    before = fresh(source)
    with (tree / file).open("a") as text:
        text.write("\n")
    after = fresh(source)
    assert [name for name in ("sources", "kernels") if getattr(before, name) != getattr(after, name)] == changed


def test_a_tree_somewhere_else_has_the_same_hashes(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = fresh(NAIVE)
    monkeypatch.undo()
    assert fresh(NAIVE) == there
    assert re.fullmatch(r"[0-9a-f]{64}", there.sources)


def test_every_stage_with_kernels_has_their_hash() -> None:
    without = [source for source in SOURCES if code_of(source).kernels is None]
    assert all(source.startswith("stages.references.") for source in without)


def test_a_user_s_file_counts_with_what_lies_beside_it(tmp_path: Path) -> None:
    for name, text in {
        "mine.py": "from stages.naive import STAGE\nimport helper\nSOURCE = __file__.replace('.py', '.cpp')\n",
        "helper.py": "KERNEL = 'own.cu'\n",
        "mine.cpp": "int one();\n",
        "own.cu": "\n",
    }.items():
        (tmp_path / name).write_text(text)
    source = f"{tmp_path / 'mine.py'}:STAGE"
    seen = [fresh(source)]
    for name in ("mine.py", "helper.py", "mine.cpp", "own.cu"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n")
        seen.append(fresh(source))
    assert len(set(seen)) == len(seen)
    assert seen[0].kernels != fresh(NAIVE).kernels


def test_results_have_the_hashes_of_every_stage(tmp_path: Path) -> None:
    prepare(tmp_path, NUMPY, NAIVE).run(Watcher())
    assert [stage.code for stage in load(tmp_path).stages] == [code_of(NUMPY), code_of(NAIVE)]
