"""The ladder as a ladder: each rung is the one below with one choice changed. The public module, and Turing's rungs."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import stages
from common.cuda.compile import compile_cubin
from common.errors import UsageError
from common.vocabulary import ABLATIONS
from stages import Gemm, cpu_kernel, rung
from stages.classic import async_metrics, cublas, naive
from stages.engine import parts
from stages.engine.recipe import Choice, Recipe, changes
from stages.engine.stage import Doc, Stage
from stages.registry import SOURCES, load_all, select
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER
from tests.kernels.test_kernels_compile import supported
from tests.nvrtc import requires_nvrtc

ENTRIES = load_all()
SEVERAL = [name for name, entry in ENTRIES.items() if entry.stage.takes_gpus]
OF_ONE = {n: entry for n, entry in ENTRIES.items() if not entry.stage.is_fleet and n not in SEVERAL}
REFERENCES = [name for name, entry in OF_ONE.items() if entry.stage.group == "reference"]
RUNGS = [entry for entry in ENTRIES.values() if entry.stage.recipe is not None]


def test_choices_are_the_recipe_s_fields() -> None:
    assert get_type_hints(Choice) == get_type_hints(Recipe)
    assert {field.name for field in dataclasses.fields(Recipe)} == set(get_type_hints(Choice))


@pytest.mark.parametrize("entry", [e for e in RUNGS if e.stage.below], ids=lambda e: e.stage.name)
def test_a_rung_changes_one_choice_of_the_one_below(entry) -> None:  # type: ignore[no-untyped-def]
    below = ENTRIES[entry.stage.below].stage
    assert below.recipe is not None
    assert len(changes(below.recipe, entry.stage.recipe)) == 1
    assert entry.stage.changed.split(":")[0] in changes(below.recipe, entry.stage.recipe)


@pytest.mark.parametrize("entry", [e for e in RUNGS if e.stage.below], ids=lambda e: e.stage.name)
def test_a_rung_imports_no_rung_that_it_does_not_stand_on(entry) -> None:  # type: ignore[no-untyped-def]
    below, ladder = entry.stage.below, set()
    while below:
        ladder.add(below)
        below = ENTRIES[below].stage.below
    rungs = {e.source.split(":")[0]: e.stage.name for e in RUNGS}
    module = importlib.import_module(entry.source.split(":")[0])
    imported = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            imported |= {rungs[name] for name in names if name in rungs}
    assert entry.stage.below in imported
    cousins = {name for name in imported if ENTRIES[name].stage.place is not entry.stage.place}
    twins = {name for name in imported if ENTRIES[name].stage.changed == entry.stage.changed}
    assert imported - cousins - twins <= ladder  # or makes the same change elsewhere
    assert not cousins or entry.stage.group == "cpu"  # it may take the same part as a rung on the GPU


def test_a_rung_knows_how_its_weights_travel() -> None:
    known = {"fused-head": "gradients", "fused-update": "updated", "streamed": "streamed", "ring-planes": "planes"}
    known |= {"streaming-epoch": "planes", "large-batch": "gradients"}  # launches that multiply by themselves
    traits = {name: ENTRIES[name].stage.traits for name in known}
    assert {name: each and each.weights for name, each in traits.items()} == known


@pytest.mark.parametrize("entry", RUNGS, ids=lambda e: e.stage.name)
def test_a_rung_multiplies_in_its_precision_or_says_how_it_reaches_it(entry) -> None:  # type: ignore[no-untyped-def]
    ways = entry.stage.recipe.arithmetic
    assert ways
    for way in ways:
        exact = entry.stage.precision == "float32" and way.unit != "float32"
        assert exact or way.unit == entry.stage.precision
        assert (way.products > 1) == exact  # float32's class takes parts on tensor cores, rounded factors one product
        assert way.image_products is None or 1 <= way.image_products < way.products


def test_neighbours_of_the_classic_ladder_are_neighbours() -> None:
    classic = [entry.stage for entry in RUNGS if entry.stage.group == "ladder"]
    assert [stage.below for stage in classic] == [None, *(stage.name for stage in classic[:-1])]


@pytest.mark.parametrize("name", ["alloc-arena", "resident-f32"])
def test_what_the_ladder_does_is_among_its_ablations(name: str) -> None:
    assert ENTRIES[name].stage.recipe == ENTRIES["sparse-metrics"].stage.recipe


@pytest.mark.parametrize(("group", "choice"), [("memory", "memory"), ("data", "data")])
def test_ablations_of_a_group_differ_in_one_choice_from_the_ladder_s_rung(group: str, choice: str) -> None:
    classic = ENTRIES["sparse-metrics"].stage.recipe
    sides = [entry.stage.recipe for entry in RUNGS if entry.stage.group == group]
    assert classic is not None
    assert [set(changes(classic, side)) - {choice} for side in sides if side is not None] == [set()] * len(sides)


def test_climb_refuses_two_changes_and_none() -> None:
    with pytest.raises(TypeError, match="exactly one choice"):
        naive.STAGE.climb("two", "Two", gemm=cublas.CublasGemm, metrics=async_metrics.MetricsEveryEpoch)
    with pytest.raises(TypeError, match="exactly one choice"):
        naive.STAGE.climb("none", "None")
    with pytest.raises(TypeError, match="exactly one choice"):
        naive.STAGE.climb("same", "Same", gemm=parts.NaiveGemm)


def test_climb_refuses_a_part_without_its_base_class() -> None:
    class Duck:
        needs = ()

    with pytest.raises(TypeError, match=r"Duck must inherit from stages.Gemm"):
        naive.STAGE.climb("duck", "Duck", gemm=Duck)  # type: ignore[arg-type]


def test_climb_refuses_a_choice_that_is_none() -> None:
    with pytest.raises(TypeError, match="unexpected"):
        naive.STAGE.climb("typo", "Typo", gem=cublas.CublasGemm)  # type: ignore[call-arg]


def test_every_stage_says_why_what_and_what_it_expects() -> None:
    for entry in ENTRIES.values():
        assert min(len(text) for text in (entry.doc.why, entry.doc.change, entry.doc.expect)) > 10


def test_a_docstring_without_a_paragraph_is_refused() -> None:
    with pytest.raises(ValueError, match="expect"):
        Doc.parse("Title.\n\nWhy: because.\n\nChange: this.")


def test_two_stages_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two stages"):
        load_all([*SOURCES, SOURCES[0]])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("all", [n for n, e in OF_ONE.items() if e.stage.group not in ABLATIONS]),
        ("memory", ["alloc-cudamalloc", "alloc-async", "alloc-pool", "alloc-arena"]),
        ("data", ["pageable", "pinned", "pinned-overlap", "resident-f32", "resident-u8"]),
        ("languages", ["triton-head", "cute-head", "triton-update", "triton-skinny", "tinygrad-jit"]),
        ("devices", SEVERAL),
        ("jax-shard,devices", SEVERAL),
        ("tinygrad-jit..ddp-step", ["tinygrad-jit"]),
        ("torch-ddp,naive", ["naive", "torch-ddp"]),
        ("classic", [e.stage.name for e in RUNGS if e.stage.group == "ladder"]),
        ("references", REFERENCES),
        ("cublas,numpy", ["numpy", "cublas"]),
        ("naive..cublas", ["naive", "async", "cublas"]),
        ("references,naive", [*REFERENCES, "naive"]),
        ("numpy-stacked,naive", ["numpy-stacked", "naive"]),
    ],
)
def test_selection_is_in_ladder_order(wanted: str, expected: list[str]) -> None:
    assert [entry.stage.name for entry in select(wanted.split(","), ENTRIES)] == expected


def test_of_several_networks_groups_and_ranges_include_their_stages() -> None:
    fleets = ENTRIES.keys() - OF_ONE.keys() - {*SEVERAL}
    assert {"numpy-stacked", "cpu-fleet", "fleet-cluster"} <= fleets
    found = {networks: {e.stage.name for e in select(["all"], ENTRIES, networks=networks)} for networks in (1, 2)}
    assert found[2] - found[1] == fleets
    assert "cpu-fleet" in [e.stage.name for e in select(["cpu-bytes..cpu-cores"], ENTRIES, networks=2)]


def test_on_several_gpus_groups_and_ranges_include_the_stages_that_take_them() -> None:
    references = {"torch-ddp", "torch-ddp-amp", "torch-symmetric", "jax-shard"}
    assert {name for name in SEVERAL if ENTRIES[name].stage.group == "reference"} == references
    for word in ("all", "references"):
        found = {gpus: {e.stage.name for e in select([word], ENTRIES, gpus=gpus)} for gpus in (1, 2)}
        assert found[2] - found[1] == references
    assert [e.stage.name for e in select(["tinygrad-jit..ddp-step"], ENTRIES, gpus=2)] == ["tinygrad-jit", "ddp-step"]


def test_beside_a_gpu_the_cpus_rungs_are_selected_by_name_alone() -> None:
    on_cpu = {name for name, entry in OF_ONE.items() if entry.stage.group == "cpu"}
    everything = {entry.stage.name for entry in select(["all"], ENTRIES)}
    assert {entry.stage.name for entry in select(["all"], ENTRIES, has_gpu=True)} == everything - on_cpu
    assert {entry.stage.name for entry in select(["all", "cpu"], ENTRIES, has_gpu=True)} == everything


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("cubals", "stage 'cubals': unknown; did you mean cublas?"),
        ("zzz", "stage 'zzz': unknown; see `run_ladder.py list`"),
        ("cublas..naive", "stages cublas..naive: cublas comes after naive; write naive..cublas"),
        ("naive..", "stage '': unknown; see `run_ladder.py list`"),
    ],
)
def test_a_wrong_selection_says_what_to_do(wanted: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(wanted.split(","), ENTRIES)
    assert str(caught.value) == message


ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there_and_documented() -> None:
    for name in stages.__all__:
        assert getattr(stages, name).__doc__ or name in ("Array", "Group", "Precision"), name
    for name in ("Stage", "Trainer", "Params", "EpochMetrics", "Problem", "Split", "Gemm", "Setup", "Array", "rung"):
        assert name in stages.__all__
        assert f"`{name}`" in str(stages.__doc__) or f"{name}(" in str(stages.__doc__)


def test_importing_it_imports_no_gpu_library_and_no_rung() -> None:
    check = "import stages, sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"cupy", "cuda", "torch", "jax", "nvmath", "ladder", "reports"}
    assert not loaded & {entry.source.partition(":")[0] for entry in load_all().values()}


def test_a_rung_is_found_by_its_id() -> None:
    assert rung("cublas") is load_all()["cublas"].stage

    class Mine(Gemm):
        def __call__(self, *_: object, **__: object) -> None: ...

    mine = rung("cublas").climb("mine", "Mine", gemm=Mine)
    assert (mine.below, mine.changed, mine.precision, mine.needs) == ("cublas", "gemm: Mine", "float32", ("cuda",))


def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"stage 'cublass': .*did you mean cublas\?"):
        rung("cublass")


def test_kernels_of_one_s_own_need_one_module_more() -> None:
    for name in cpu_kernel.__all__:
        assert getattr(cpu_kernel, name).__doc__, name
        assert f"`{name}" in str(cpu_kernel.__doc__) or f"`@{name}(" in str(cpu_kernel.__doc__) or name == "part"


# Rungs that name no `sm_` run on Turing (sm_75), such as a T4: their kernels ask for no more.


TURING = 75
FOR_TURING = [
    entry_of.stage
    for entry_of in load_all().values()
    if entry_of.stage.recipe is not None and "cuda" in entry_of.stage.needs
]
ON_TURING = [stage for stage in FOR_TURING if not any(need.startswith("sm_") for need in stage.needs)]


def sources_of(stage: Stage) -> set[Path]:
    """The kernels' files that the modules of its parts name, and those of their base classes."""
    assert stage.recipe is not None
    names = {base.__module__ for part in stage.recipe.parts().values() for base in part.__mro__}
    texts = [inspect.getsource(sys.modules[name]) for name in names if name.startswith("stages.")]
    return {KERNELS_FOLDER / name for text in texts for name in re.findall(r'"(\w+/\w+\.cu)"', text)}


def test_a_t4_has_the_ladder_up_to_one_kernel_an_epoch() -> None:
    names = [stage.name for stage in ON_TURING]
    classic = ["naive", "async", "cublas", "sparse-metrics", "cudnn-softmax", "cuda-graph"]
    assert [name for name in names if name in {*classic, "fused-bias", "persistent-grid"}] == [
        *classic, "fused-bias", "persistent-grid",
    ]  # fmt: skip
    assert not {"tf32", "bf16", "fp16", "streamed", "last-layer", "persistent-cluster"} & {*names}


@pytest.mark.parametrize("stage", ON_TURING, ids=lambda stage: stage.name)
def test_no_kernel_of_it_needs_more(stage: Stage) -> None:
    assert (sources := sources_of(stage))
    assert {source.name for source in sources if TURING not in supported(source)} == set()


@requires_nvrtc
def test_tensor_cores_for_bfloat16_are_beyond_it() -> None:
    with pytest.raises(Exception, match="error"):
        compile_cubin(KERNELS_FOLDER / "tiles" / "tile_bf16.cu", f"sm_{TURING}")
