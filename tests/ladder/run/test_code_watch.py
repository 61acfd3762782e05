"""A stage's hashes change with the code that it uses, and with nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ladder.records.run import load
from ladder.records.sources import sources_of
from ladder.run import code_watch
from ladder.run.code_watch import CodeWatch, hashes_of, keep_sources
from ladder.run.entries import all_entries
from stages.registry import load_all
from tests.ladder.harness import NUMPY, Watcher, prepare
from tests.reports import sample

NAIVE = "stages.classic.r1_naive:STAGE"
PLANTED = {".json": "planted\n", ".py": "planted = 1\n", ".cu": "int planted;\n", ".cpp": "int planted;\n"}
GRID = "stages.persistent.r1_persistent_grid:STAGE"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, to be changed."""
    for folder in ("stages", "common"):
        shutil.copytree(code_watch.ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_watch, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "source", "changed"),
    [
        ("stages/classic/r1_naive.py", NAIVE, ["sources"]),
        ("stages/classic/r1_naive.py", "stages.classic.r6_cuda_graph:STAGE", ["sources"]),  # a rung that imports it
        ("stages/classic/r1_naive.py", NUMPY, []),
        ("stages/classic/r3_cublas.py", NAIVE, []),
        ("common/cuda/gpu.py", NAIVE, ["sources"]),
        ("common/oracle.py", NAIVE, []),
        ("stages/kernels/plain/gemm.cu", NAIVE, ["kernels"]),
        ("stages/kernels/grid/grid.cuh", GRID, ["kernels"]),  # a header of its kernel
        ("stages/kernels/grid/grid.cuh", NAIVE, []),
        ("stages/references/choices.json", "stages.references.jax_scan_bf16:STAGE", ["sources"]),
        ("stages/references/choices.json", "stages.references.torch_graph:AMP", ["sources"]),
        ("stages/references/choices.json", "stages.references.torch_eager:STAGE", []),
        ("stages/references/choices.json", NAIVE, []),
        ("stages/kernels/tiles/tile_tf32.cu", "stages.tiles.r3_tf32:STAGE", ["kernels"]),
    ],
)
def test_changed_code_changes_the_hashes_of_the_stages_that_use_it(
    tree: Path, file: str, source: str, changed: list[str]
) -> None:
    before = hashes_of(source)
    with (tree / file).open("a") as text:
        text.write(PLANTED.get(Path(file).suffix, PLANTED[".cu"]))
    after = hashes_of(source)
    assert [name for name in ("sources", "kernels") if getattr(before, name) != getattr(after, name)] == changed


def test_a_copy_in_another_folder_has_the_same_hashes(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = hashes_of(NAIVE)
    monkeypatch.undo()
    assert hashes_of(NAIVE) == there
    assert re.fullmatch(r"[0-9a-f]{64}", there.sources)


@pytest.mark.parametrize("source", [NAIVE, GRID])
def test_a_move_a_comment_and_a_docstring_change_no_hash(tree: Path, source: str) -> None:
    before = hashes_of(source)
    naive, elsewhere = tree / "stages/classic/r1_naive.py", tree / "stages/classic/r1_plainest.py"
    naive.rename(elsewhere)
    kernels = tree / "stages" / "kernels"
    (kernels / "grid").rename(kernels / "whole")
    for file in [*(tree / "stages").rglob("*.py"), *kernels.rglob("*.cu*")]:
        text = file.read_text().replace("r1_naive", "r1_plainest").replace('"grid/', '"whole/')
        file.write_text(f'"""Another."""  # one\n{text}' if file.suffix == ".py" else f"// another\n{text}")
    assert hashes_of(source.replace("r1_naive", "r1_plainest")) == before


def test_every_stage_with_kernels_has_their_hash() -> None:
    without = [entry.stage for entry in load_all().values() if hashes_of(entry.source).kernels is None]
    assert all(stage.recipe is None for stage in without)  # references


def test_a_users_file_is_hashed_with_the_modules_beside_it(tmp_path: Path) -> None:
    module = NAIVE.partition(":")[0]
    for name, text in {
        "mine.py": f"from {module} import STAGE\nimport helper\nSOURCE = __file__.replace('.py', '.cpp')\n",
        "helper.py": "KERNEL = 'own.cu'\n",
        "mine.cpp": "int one();\n",
        "own.cu": "\n",
    }.items():
        (tmp_path / name).write_text(text)
    source = f"{tmp_path / 'mine.py'}:STAGE"
    seen = [hashes_of(source)]
    for name in ("mine.py", "helper.py", "mine.cpp", "own.cu"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + PLANTED[Path(name).suffix])
        seen.append(hashes_of(source))
    assert len(set(seen)) == len(seen)
    assert seen[0].kernels != hashes_of(NAIVE).kernels


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("stages/classic/r3_cublas.py", True),  # by its id
        ("stages/classic/r2_async_metrics.py", True),  # from which that one climbs
        ("stages/engine/recipe.py", True),  # the origin of Gemm
        ("common/trainer.py", True),
        ("stages/classic/r5_cudnn_softmax.py", False),
        ("stages/references/torch_common.py", False),  # other names of the public module
        ("stages/registry.py", False),
    ],
)
def test_a_user_s_file_follows_what_it_takes_from_the_public_module(
    tree: Path, tmp_path: Path, file: str, changed: bool
) -> None:
    ways = [tmp_path / f"{name}.py" for name in ("mine", "another")]
    for mine, call in zip(ways, ("rung('cublas')", "stages.rung('cublas')"), strict=True):
        climb = f"STAGE = {call}.climb('mine', 'Mine', gemm=Gemm)\n"
        mine.write_text(f"from stages import Gemm, EpochMetrics, rung\n{climb}")
    before = [hashes_of(f"{mine}:STAGE") for mine in ways]
    with (tree / file).open("a") as text:
        text.write(PLANTED[".py"])
    assert [hashes_of(f"{mine}:STAGE") != was for mine, was in zip(ways, before, strict=True)] == [changed] * 2


def test_results_have_the_hashes_of_every_stage(tmp_path: Path) -> None:
    prepare(tmp_path, NUMPY, NAIVE).run(Watcher())
    assert [stage.code for stage in load(tmp_path).stages] == [hashes_of(NUMPY), hashes_of(NAIVE)]


def test_a_watch_names_changed_files_and_no_comment_or_date(tree: Path) -> None:
    watch = CodeWatch(NAIVE)
    naive, kernel = tree / "stages/classic/r1_naive.py", tree / "stages/kernels/plain/gemm.cu"
    naive.touch()
    kernel.write_text("// a comment\n" + kernel.read_text())
    assert watch.changed() == []
    naive.write_text(naive.read_text() + "\nMORE = 1\n")
    assert watch.changed() == ["r1_naive.py"]
    kernel.unlink()
    naive.write_text("1 +")
    assert watch.changed() == ["gemm.cu", "r1_naive.py"]


def test_a_header_that_a_kernel_begins_to_include_counts(tree: Path) -> None:
    kernels = tree / "stages" / "kernels" / "plain"
    seen = [hashes_of(NAIVE)]
    for file, text in (("new.cuh", ""), ("gemm.cu", '#include "new.cuh"\n'), ("new.cuh", PLANTED[".cu"])):
        with (kernels / file).open("a") as added:
            added.write(text)
        seen.append(hashes_of(NAIVE))
    assert seen[1] == seen[0] != seen[3]


def test_later_points_of_a_study_have_the_code_of_their_time(tree: Path, tmp_path: Path) -> None:
    runs = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        runs.append(prepare(tmp_path / name, NUMPY).run(Watcher()).stages[0].code)
        with (tree / "stages" / "references" / "numpy_cpu.py").open("a") as text:
            text.write(PLANTED[".py"])
    assert runs[0] != runs[1]


PARENTS = {"cudnn-softmax", "sparse-metrics", "cublas", "async", "naive"}


def test_a_run_keeps_its_stages_and_the_rungs_below(tmp_path: Path) -> None:
    entries, _ = all_entries()
    keep_sources([entries["cuda-graph"]], entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages.keys() == {"cuda-graph", *PARENTS}
    assert found.stages["cuda-graph"][0] == "stages/classic/r6_cuda_graph.py"
    assert "class GraphEpoch" in found.files["stages/classic/r6_cuda_graph.py"]
    assert "stages/engine/parts.py" in found.stages["naive"]
    assert "stages/kernels/plain/gemm.cu" in found.stages["naive"]


def test_every_registered_stage_has_a_file(tmp_path: Path) -> None:
    entries, _ = all_entries()
    keep_sources(list(entries.values()), entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages.keys() == entries.keys()
    assert (tmp_path / "sources.json.gz").stat().st_size < 240_000


def test_a_stage_of_the_user_s_is_kept_by_its_name_alone(tmp_path: Path) -> None:
    own = tmp_path / "mine" / "my_stage.py"
    own.parent.mkdir()
    own.write_text(
        'from stages import rung\n\nKERNEL = "fast.cu"\n\n\nclass Mine(rung("cublas").recipe.metrics):\n'
        '    """Mine."""\n\n\nSTAGE = rung("cublas").climb("mine", "Mine", metrics=Mine)\n'
    )
    (own.parent / "fast.cu").write_text("// fast\n")
    (own.parent / "secret.py").write_text("TOKEN = 1\n")
    entries, _ = all_entries([own])
    keep_sources([entries["mine"]], entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages["mine"][:2] == ["my_stage.py", "fast.cu"]
    assert "secret.py" not in found.files
    assert str(tmp_path) not in "".join(found.files)
