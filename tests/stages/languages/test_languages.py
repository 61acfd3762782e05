"""The rungs in Triton and in CuTe DSL: every configuration against the oracle, and compiled for each GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stages.languages
from common.cuda.cute_code import CuteCode
from common.cuda.epilogue import Fusion, mask_shape
from common.problem import Problem
from ladder.machine import environment
from ladder.machine.environment import missing
from ladder.profile.kernel_kinds import kind_of
from stages.classic.cuda_graph import GraphEpoch
from stages.engine.recipe import Recipe
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Setup
from stages.fusion.fused_epilogue import FusedEpilogue
from stages.fusion.head_kernel import lanes
from stages.languages import cute_head, triton_head
from stages.languages.cute_head import SHARED_BYTES, STAGE, CuteHead
from stages.languages.triton_head import TritonHead
from stages.languages.triton_products import MOST_PROGRAMS, MOST_SHARES, TritonProducts, configs
from stages.languages.triton_skinny import TritonGemm
from stages.languages.triton_update import TritonUpdate
from stages.registry import load_all
from tests.seeds import SEED
from tests.stages.engine.test_step import assert_first_updates, assert_validates, random_split
from tests.stages.numpy_parts import RECIPE, HostDevice
from tests.stages.tiles.test_tile_gemm import ChosenBefore, use_library

NO_TRITON = "Triton is not installed"
HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason=NO_TRITON)
needs_interpreter = pytest.mark.skipif(
    not HAS_TRITON or importlib.util.find_spec("torch") is None, reason="Triton's interpreter needs Triton and PyTorch"
)
ROOT = Path(__file__).parents[3]
KERNELS = Path(stages.languages.__file__).parent / "triton_kernels.py"
UNIT = 2.0**-24
IN_GRAPH = replace(RECIPE, launch=GraphEpoch)
RECIPES = {
    "head": replace(IN_GRAPH, head=TritonHead),
    "update": replace(IN_GRAPH, update=TritonUpdate),
    "skinny": replace(IN_GRAPH, gemm=TritonGemm, epilogue=FusedEpilogue),
}


def load_kernels(monkeypatch: pytest.MonkeyPatch, *, interpreted: bool) -> ModuleType:
    """The kernels' file anew, as parts will find it: `triton.jit` decides while it decorates how a kernel runs."""
    monkeypatch.setenv("TRITON_INTERPRET", "1" if interpreted else "0")
    spec = importlib.util.spec_from_file_location("stages.languages.triton_kernels", KERNELS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(stages.languages, "triton_kernels", module, raising=False)
    return module


class InterpretedDevice(HostDevice):
    """NumPy's memory, and Triton kernels that its interpreter executes, program by program."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.chosen = ChosenBefore(place)
        self.is_captured = False

    def trials(self, subject: str) -> ChosenBefore:
        assert not self.is_captured, "a capture may not have another one in it"
        return self.chosen

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.is_captured = True
            enqueue()
            self.is_captured = False

        return replay

    def kernel(self, source: Path, name: str, **how: Any) -> Callable[..., None]:
        def refuse(*_: Any) -> None:
            raise AssertionError(f"{name} is a CUDA kernel")

        return refuse

    def triton(self, function: Any, constants: dict[str, int], warps: int, stages: int) -> Callable[..., None]:
        import torch

        def launch(grid: int | tuple[int, ...], *args: Any) -> None:
            passed = [torch.from_numpy(a) if isinstance(a, np.ndarray) else float(a) for a in args]
            function[grid if isinstance(grid, tuple) else (grid,)](*passed, **constants)

        return launch


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = load_kernels(monkeypatch, interpreted=True)
    tl = kernels.tl  # the interpreter has no CUDA library; its own functions are NumPy's
    monkeypatch.setattr(kernels, "libdevice", SimpleNamespace(exp=lambda x: tl.exp(x), log=lambda x: tl.log(x)))
    use_library(monkeypatch)


@needs_interpreter
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize(("hidden", "batch"), [((), 37), ((19,), 1), ((18, 8), 7)], ids=str)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.usefixtures("interpreter")
def test_first_updates_are_the_oracle_s(recipe: Recipe, hidden: tuple[int, ...], batch: int, place: int) -> None:
    device = InterpretedDevice(place)
    problem = Problem(inputs=20, classes=10, hidden=hidden, batch_size=batch, metrics_every=2)
    split = random_split(2 * batch, problem.inputs, problem.classes)
    trainer = RecipeTrainer(recipe, problem, split, device)
    for run, epoch in enumerate((1, 0)):
        assert_first_updates(trainer, problem, split, run=run, epoch=epoch)
    assert len(device.chosen.purposes) == len(set(device.chosen.purposes)) > 0
    assert_validates(trainer, problem, random_split(batch + 3, 20, 10, seed=1))


@needs_interpreter
@pytest.mark.parametrize(("m", "n", "k"), [(17, 36, 33), (2, 9, 3)])
@pytest.mark.parametrize(
    ("kind", "trans_a", "trans_b"),
    [(None, True, False), ("bias", False, False), ("relu_bias", False, False), ("relu_backward", False, True)],
)
@pytest.mark.usefixtures("interpreter")
def test_every_configuration_gives_the_product_with_its_fusion_and_always_the_same(
    kind: Any, m: int, n: int, k: int, trans_a: bool, trans_b: bool
) -> None:
    random = np.random.default_rng(SEED)
    setup: Any = type("Setup", (), {"device": InterpretedDevice(0), "kernel": Setup.kernel})()
    products = TritonProducts(setup)
    a: Any = random.standard_normal((k, m) if trans_a else (m, k), np.float32)
    b: Any = random.standard_normal((n, k) if trans_b else (k, n), np.float32)
    before, bias = random.standard_normal((m, n), np.float32), random.standard_normal(n, np.float32)
    passed, beta = random.random((m, n)) < 0.5, 1.0 if kind is None else 0.0
    exact = -0.5 * ((a.T if trans_a else a).astype(np.float64) @ (b.T if trans_b else b)) + beta * before
    exact = {"relu_backward": np.where(passed, exact, 0)}.get(kind, exact if kind is None else exact + bias)
    for config in products.cuts(before, k):
        mask = np.zeros(mask_shape(m, n), np.uint8)
        if kind == "relu_backward":
            bits = np.packbits(passed, axis=1, bitorder="little")
            mask[:, : bits.shape[1]] = bits
        for _ in range(2):  # the second finds the arrivals as the first left them
            out = before.copy()
            fusion = None if kind is None else Fusion(kind, bias, mask)
            products(config, a, b, out, trans_a, trans_b, -0.5, beta, fusion)
            expected = np.maximum(exact, 0) if kind == "relu_bias" else exact
            assert np.abs(out - expected).max() < (2 * k + 8) * UNIT * 8 * np.sqrt(k), config
        if kind == "relu_bias":
            assert (np.unpackbits(mask, axis=1, bitorder="little")[:, :n] == (out > 0)).all()


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (128, 10, 784), (784, 256, 128), (128, 256, 10), (32, 4096, 4096)]
)
def test_every_share_of_a_product_has_something_to_sum(m: int, n: int, k: int) -> None:
    found = configs(m, n, k)
    assert len(found) == len(set(found)) > 0
    for config in found:
        assert (config["SPLIT_K"] - 1) * config["BLOCK_K"] < k
        assert config["SPLIT_K"] <= MOST_SHARES
        assert config["SPLIT_K"] == 1 or -(-m // config["BLOCK_M"]) * -(-n // config["BLOCK_N"]) <= MOST_PROGRAMS


@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (7, 3), (128, 10), (60000, 10), (32, 4096)])
def test_a_head_s_program_holds_whole_rows(rows: int, classes: int) -> None:
    for with_totals in (False, True):
        found = triton_head.configs(rows, classes, with_totals)
        assert found
        assert all(classes <= config["BLOCK_CLASSES"] < 2 * classes for config in found)


def test_a_head_refuses_rows_that_no_program_holds() -> None:
    assert not TritonHead.misfit(Problem(inputs=4, classes=4096), 1)
    assert TritonHead.misfit(Problem(inputs=4, classes=5000), 1) == "Takes up to 4,096 classes, not 5,000."


def test_without_triton_they_are_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(environment.NEEDS, "cuda", ((), ()))
    monkeypatch.setitem(environment.NEEDS, "cublas", ((), ()))
    rungs = [e.stage for e in load_all().values() if e.stage.name.startswith("triton-")]
    assert len(rungs) == 3
    assert {missing(stage.needs) for stage in rungs} == {NO_TRITON}


def test_their_kernels_are_counted_with_the_operation_that_they_do() -> None:
    assert kind_of("triton_softmax_xent") == "softmax"
    assert kind_of("triton_update") == kind_of("triton_product") == "gemm"


@needs_triton
@pytest.mark.parametrize("capability", [75, 90])
def test_every_configuration_compiles_without_a_gpu_and_without_tf32(capability: int, tmp_path: Path) -> None:
    """In a process of its own: the interpreter leaves its marks on Triton. Triton makes TF32 of some float32 code."""
    command = [sys.executable, "-m", "tests.stages.languages.triton_compiles", str(capability)]
    environment_of_it = {**os.environ, "TRITON_INTERPRET": "0", "LADDER_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment_of_it, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["name"] for one in compiled} == {"triton_softmax_xent", "triton_update", "triton_product"}
    for one in compiled:
        assert one["shared"] <= 48 << 10, one
        assert not one["has_tf32"], one
    assert list((tmp_path / "triton").iterdir())


# The head in CuTe DSL: compiled for each GPU where the DSL is installed, kept on disk, and launched as its twin.


NO_CUTE = "CuTe DSL is not installed"
COMPILES = """
import json, sys
from stages.languages.cute_head import head_code
for shape in ((128, 10, 256, False), (139, 10, 1024, True), (7, 3, 32, True), (5, 100, 256, False)):
    print(json.dumps([len(head_code(*shape, int(sys.argv[1])).cubin), "cutlass" in sys.modules]))
"""


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason=NO_CUTE)
@pytest.mark.parametrize("capability", [80, 90])
def test_it_compiles_without_a_gpu_and_once(capability: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMPILES, str(capability)]
    for again in (False, True):
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "LADDER_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(size > 4000 for size, _ in told)
        assert {imported for _, imported in told} == {not again}


class LoadingDevice:
    """A device that notes the launches of loaded code."""

    capability = 90

    def __init__(self) -> None:
        self.launched: list[tuple[str, int, int, int]] = []

    def loaded(self, cubin: bytes, name: str, shared_bytes: int) -> Callable[..., None]:
        return lambda grid, threads, *tensors: self.launched.append((name, shared_bytes, grid, threads))


@pytest.mark.parametrize(("rows", "grid", "most"), [(128, 4, 1024), (31, 1, 256), (1, 1, 32), (2000, 63, 1024)])
def test_every_row_has_its_lanes(rows: int, grid: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int, bool]] = []

    def code(rows: int, classes: int, threads: int, with_totals: bool, capability: int) -> CuteCode:
        asked.append((rows, classes, threads, with_totals))
        return CuteCode(b"", f"totals {with_totals}")

    monkeypatch.setattr(cute_head, "head_code", code)
    tensors = type("Tensors", (), {name: np.empty((rows, 10)) for name in ("logits", "dlogits", "totals")})
    device: Any = LoadingDevice()
    head = CuteHead(Setup(Problem(inputs=4, classes=10, batch_size=rows), device, tensors))  # type: ignore[arg-type]
    head(np.empty(rows), False)
    head(np.empty(rows), True)
    assert device.launched == [("totals False", 0, grid, 256), ("totals True", SHARED_BYTES, 1, most)]
    assert asked == [(rows, 10, 256, False), (rows, 10, most, True)]
    assert grid * 256 >= rows * lanes(10)


def test_without_the_dsl_it_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for need in set(STAGE.needs) - {"cute"}:
        monkeypatch.setitem(environment.NEEDS, need, ((), ()))
    assert missing(STAGE.needs) == NO_CUTE
