"""A stage's hashes of this project's files change with the code that it uses, and with nothing else."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ladder.records.run import StageCode, load
from ladder.records.source_walk import Project
from ladder.records.sources import sources_of
from ladder.run import code_watch
from ladder.run.code_watch import CodeWatch, Disk, hashes_of, keep_sources
from ladder.run.entries import all_entries
from stages.engine.stage import GPU
from stages.registry import load_all
from tests.ladder.harness import NUMPY, Watcher, prepare
from tests.reports import sample

NAIVE = "stages.classic.naive:STAGE"
GRAPH, GRID = "stages.classic.cuda_graph:STAGE", "stages.persistent.persistent_grid:STAGE"
TILES = "stages.tiles.tf32:STAGE"
JAX, TORCH = "stages.references.jax_scan_bf16:STAGE", "stages.references.torch_graph:AMP"
CPU = "stages.cpu.loops:STAGE"
SOME = NUMPY, NAIVE, CPU, GRAPH, GRID, TILES, JAX, TORCH
Hashes = dict[str, StageCode]


@pytest.fixture(scope="module")
def before() -> Hashes:
    """The hashes of some stages of the sources as they are."""
    return hashes()


def hashes() -> Hashes:
    project = Project(Disk())
    return {source: hashes_of(source, project) for source in SOME}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, to be changed."""
    for folder in ("stages", "common", "ladder/measure"):
        shutil.copytree(code_watch.ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_watch, "ROOT", tmp_path)
    return tmp_path


NAIVE_FILE, STAGE_FILE, TIMER = "stages/classic/naive.py", "stages/engine/stage.py", "ladder/measure/timing.py"
LAYER, ON_GPU = "stages/kernels/plain/layer.cu", (NAIVE, GRAPH, GRID, TILES)


@pytest.mark.parametrize(
    ("file", "old", "new", "part", "stages"),
    [
        (NAIVE_FILE, "self.read()", "self.read(), 1", "sources", (NAIVE, CPU)),
        (NAIVE_FILE, "data=ResidentFloat32", "data=None", "sources", ON_GPU),
        (NAIVE_FILE, "a kernel per operation", "eight kernels", "", ()),
        ("stages/classic/cublas.py", "Matmul(", "Matmul(1, ", "sources", (GRAPH, GRID)),
        ("common/cuda/gpu.py", "graph.upload", "graph.load", "sources", (GRAPH, GRID, TILES)),
        ("common/oracle.py", "copy(self)", "self", "", ()),
        (STAGE_FILE, "is_fleet: bool = False", "is_fleet: bool = False\n    other: int = 1", "", ()),
        ("stages/kernels/plain/gemm.cu", "sum +=", "sum -=", "kernels", (NAIVE,)),
        (LAYER, "output[i] < 0.0f", "output[i] <= 0.0f", "kernels", ON_GPU),
        (LAYER, "constexpr", 'extern "C" __global__ void another() {}\nconstexpr', "", ()),
        ("stages/cpu/kernels/layer.py", "max(out[at], 0)", "max(out[at], 1)", "sources", (CPU,)),
        ("stages/kernels/grid/grid.cuh", "sizeof layers", "sizeof(layers)", "kernels", (GRID,)),  # its kernel's header
        ("stages/references/choices.json", "jax-scan", "jax-scans", "sources", (JAX, TORCH)),
        (TIMER, "ended - begin", "ended - loading", "timer", SOME),
        (TIMER, "    ended: float = 0.0", "    ended: float = 0.0\n    other: int = 1", "", ()),
    ],
)
def test_changed_code_changes_the_hashes_of_the_stages_that_use_it(
    before: Hashes, tree: Path, file: str, old: str, new: str, part: str, stages: Sequence[str]
) -> None:
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new, 1))
    after, parts = hashes(), ("sources", "kernels", "timer")
    seen = {
        source: " ".join(part for part in parts if getattr(before[source], part) != getattr(after[source], part))
        for source in SOME
    }
    assert {source: changed for source, changed in seen.items() if changed} == dict.fromkeys(stages, part)


def test_a_copy_in_another_folder_has_the_same_hashes(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = hashes_of(NAIVE)
    monkeypatch.undo()
    assert hashes_of(NAIVE) == there
    assert re.fullmatch(r"[0-9a-f]{64}", there.sources)


@pytest.mark.parametrize("source", [GRAPH, GRID])
def test_a_move_a_comment_and_a_docstring_change_no_hash(tree: Path, source: str) -> None:
    before = hashes_of(source)
    (tree / "stages/classic/cuda_graph.py").rename(tree / "stages/classic/whole_graph.py")
    kernels = tree / "stages" / "kernels"
    (kernels / "grid").rename(kernels / "whole")
    for file in [*(tree / "stages").rglob("*.py"), *kernels.rglob("*.cu*")]:
        text = re.sub(r"\bcuda_graph\b", "whole_graph", file.read_text()).replace('"grid/', '"whole/')
        file.write_text(f'"""Another."""  # one\n{text}' if file.suffix == ".py" else f"// another\n{text}")
    assert hashes_of(source.replace("cuda_graph", "whole_graph")) == before


def test_every_stage_with_kernels_has_their_hash() -> None:
    project = Project(Disk())
    without = [entry.stage for entry in load_all().values() if hashes_of(entry.source, project).kernels is None]
    assert all(stage.recipe is None or stage.place is not GPU for stage in without)


def test_a_users_file_is_hashed_with_the_modules_beside_it(tmp_path: Path) -> None:
    texts = {
        "mine.py": "from helper import KERNEL\nSOURCE = __file__.replace('.py', '.cpp')\n"
        "def build(problem, train): return SOURCE, KERNEL\nSTAGE = Stage('mine', 'Mine', build=build)\n",
        "helper.py": "KERNEL = 'own.cu'\n",
        "mine.cpp": "int one();\n",
        "own.cu": "__global__ void own() {}\n",
        "beside.py": "",
    }
    planted = {
        "mine.py": "SOURCE += '1'\n",
        "helper.py": "KERNEL += '1'\n",
        "mine.cpp": "int two();\n",
        "own.cu": "int two;\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    source = f"{tmp_path / 'mine.py'}:STAGE"
    seen = [hashes_of(source)]
    for name, text in planted.items():
        (tmp_path / name).write_text(texts[name] + text)
        seen.append(hashes_of(source))
    assert len(set(seen)) == len(seen)
    (tmp_path / "beside.py").write_text("print()")
    assert hashes_of(source) == seen[-1]


@pytest.mark.parametrize(
    ("file", "old", "changed"),
    [
        ("stages/classic/async_metrics.py", "MetricsEveryEpoch", True),  # of the rung below cublas
        ("stages/engine/recipe.py", "def flush", True),  # of Gemm
        ("stages/classic/cublas.py", "Matmul", False),  # the part that it replaces
        ("stages/references/torch_common.py", "TorchTrainer", False),  # another name of the public module
        ("stages/registry.py", "likeness", False),
    ],
)
def test_a_user_s_file_follows_what_it_takes_from_the_public_module(
    tree: Path, tmp_path: Path, file: str, old: str, changed: bool
) -> None:
    ways = [tmp_path / f"{name}.py" for name in ("mine", "another")]
    for mine, call in zip(ways, ("rung('cublas')", "stages.rung('cublas')"), strict=True):
        climb = f"STAGE = {call}.climb('mine', 'Mine', gemm=Mine)\n"
        mine.write_text(f"from stages import Gemm, rung\n\nclass Mine(Gemm): ...\n{climb}")
    before = [hashes_of(f"{mine}:STAGE") for mine in ways]
    (tree / file).write_text((tree / file).read_text().replace(old, f"{old}_"))
    assert [hashes_of(f"{mine}:STAGE") != was for mine, was in zip(ways, before, strict=True)] == [changed] * 2


def test_results_have_the_hashes_of_every_stage(tmp_path: Path) -> None:
    prepare(tmp_path, NUMPY, NAIVE).run(Watcher())
    assert [stage.code for stage in load(tmp_path).stages] == [hashes_of(NUMPY), hashes_of(NAIVE)]


def test_a_watch_names_the_files_that_were_written_once_code_has_changed(tree: Path) -> None:
    watch = CodeWatch(NAIVE)
    naive, kernel = tree / "stages/classic/naive.py", tree / "stages/kernels/plain/gemm.cu"
    naive.touch()
    kernel.write_text("// a comment\n" + kernel.read_text())
    assert watch.changed() == []
    naive.write_text(naive.read_text() + "\nMORE = 1\n")
    assert watch.changed() == []
    naive.write_text(naive.read_text() + "\nMetricsEveryStep.due = None\n")
    assert watch.changed() == ["gemm.cu", "naive.py"]
    kernel.unlink()
    naive.write_text("1 +")
    assert watch.changed() == ["gemm.cu", "naive.py"]


def test_a_header_that_a_kernel_begins_to_include_counts(tree: Path) -> None:
    kernels = tree / "stages" / "kernels" / "plain"
    seen, watch = [hashes_of(NAIVE)], CodeWatch(NAIVE)
    for file, text in (("gemm.cu", '#include "new.cuh"\n'), ("new.cuh", ""), ("new.cuh", "#define sum other\n")):
        with (kernels / file).open("a") as added:
            added.write(text)
        seen.append(hashes_of(NAIVE))
    assert seen[2] == seen[1] == seen[0] != seen[3]
    assert watch.changed() == ["gemm.cu"]


def test_later_points_of_a_study_have_the_code_of_their_time(tree: Path, tmp_path: Path) -> None:
    runs = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        runs.append(prepare(tmp_path / name, NUMPY).run(Watcher()).stages[0].code)
        file = tree / "stages" / "references" / "numpy_cpu.py"
        file.write_text(f"{file.read_text()}\nprint()\n")
    assert runs[0] != runs[1]


PARENTS = {"cudnn-softmax", "sparse-metrics", "cublas", "async", "naive"}


def test_a_run_keeps_its_stages_and_the_rungs_below(tmp_path: Path) -> None:
    entries, _ = all_entries()
    keep_sources([entries["cuda-graph"]], entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages.keys() == {"cuda-graph", *PARENTS}
    assert found.stages["cuda-graph"][0] == "stages/classic/cuda_graph.py"
    assert "class GraphEpoch" in found.files["stages/classic/cuda_graph.py"]
    assert "stages/engine/parts.py" in found.stages["naive"]
    assert "stages/kernels/plain/gemm.cu" in found.stages["naive"]


def test_every_registered_stage_has_a_file(tmp_path: Path) -> None:
    entries, _ = all_entries()
    keep_sources(list(entries.values()), entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages.keys() == entries.keys()
    assert (tmp_path / "sources.json.gz").stat().st_size < 2_900 * len(entries)


def test_a_stage_of_the_user_s_is_kept_by_its_name_alone(tmp_path: Path) -> None:
    own = tmp_path / "mine" / "my_stage.py"
    own.parent.mkdir()
    own.write_text(
        'from stages import rung\n\nKERNEL = "fast.cu"\n\n\nclass Mine(rung("cublas").recipe.metrics):\n'
        "    def __init__(self, setup):\n        setup.load(KERNEL)\n\n\n"
        'STAGE = rung("cublas").climb("mine", "Mine", metrics=Mine)\n'
    )
    (own.parent / "fast.cu").write_text("// fast\n")
    (own.parent / "secret.py").write_text("TOKEN = 1\n")
    entries, _ = all_entries([own])
    keep_sources([entries["mine"]], entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages["mine"][0] == "my_stage.py"
    assert "fast.cu" in found.stages["mine"]
    assert "secret.py" not in found.files
    assert str(tmp_path) not in "".join(found.files)


def test_the_way_in_which_a_file_is_saved_changes_no_hash(tmp_path: Path) -> None:
    text = "from helper import é\nSTAGE = Stage('ï', é)\n"
    found = set()
    for at, (mark, encoding, end) in enumerate(
        [("", "utf-8", "\n"), ("", "utf-8-sig", "\r\n"), ("# -*- coding: latin-1 -*-\n", "latin-1", "\n")]
    ):
        (folder := tmp_path / str(at)).mkdir()
        (folder / "mine.py").write_bytes(f"{mark}{text}".replace("\n", end).encode(encoding))
        (folder / "helper.py").write_bytes(f"{mark}def é(): return 'ï'\n".replace("\n", end).encode(encoding))
        found.add(hashes_of(f"{folder}/mine.py:STAGE"))
    assert len(found) == 1
