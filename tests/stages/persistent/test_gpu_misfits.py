"""On faked GPUs of every architecture, a rung that asks for clusters or shared memory fits or says why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cuda.driver import DeviceInfo
from common.cuda.epilogue import Fusion
from common.errors import MisfitError
from common.problem import Problem
from ladder.machine.environment import missing
from stages.engine.recipe import Recipe
from stages.engine.step import set_up
from stages.persistent import cluster_fp16, grid_bf16, persistent_cluster, persistent_grid
from stages.persistent.persistent_cluster import ClusterEpoch
from stages.persistent.persistent_grid import GridEpoch
from stages.streamed import last_layer, last_layer_bf16, streamed
from stages.streamed.last_layer_head import LastLayerHead
from stages.tiles.tile_gemm import ProductSpec, TileGemm
from tests.ladder import gpus
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import RECIPE, HostDevice

SOFTMAX = Problem(inputs=784, classes=10, batch_size=128)
HIDDEN = Problem(inputs=784, classes=10, hidden=(256,), batch_size=128)


@dataclass
class FakeGpu(HostDevice):
    """Properties of a GPU, and kernels that load if the GPU allows their shape; none runs."""

    capability: int = field()
    block_shared_bytes: int  # opt-in maximum, from the CUDA programming guide
    multiprocessors: int
    clusters: int | None = None  # of 16 blocks, at once; None if the GPU refuses the size
    l2_bytes: int = 48 << 20

    def __post_init__(self) -> None:
        super().__init__()
        self.has_clusters = self.capability >= 90

    def zero(self, array: Any) -> None:
        pass

    def kernel(
        self, source: Path, name: str, cluster: int | None = None, shared_bytes: int = 0, **how: Any
    ) -> Callable[..., None]:
        assert shared_bytes <= self.block_shared_bytes, "to be seen before it is asked for"
        if (cluster or 1) > 8 and self.clusters is None:
            raise MisfitError("This GPU refuses clusters of 16 blocks (CUDA_ERROR_INVALID_VALUE).")

        def launch(*arguments: Any) -> None:
            raise AssertionError("nothing is launched while a part is made")

        launch.clusters_at_once = lambda threads: self.clusters  # type: ignore[attr-defined]
        return launch


KIB = 1 << 10
SM_75 = FakeGpu(75, 64 * KIB, 40)
SM_80 = FakeGpu(80, 163 * KIB, 108)
SM_86 = FakeGpu(86, 99 * KIB, 84)
SM_89 = FakeGpu(89, 99 * KIB, 128)
SM_90 = FakeGpu(90, 227 * KIB, 132, clusters=6)
SM_90_ONE = FakeGpu(90, 227 * KIB, 26, clusters=1)
SM_90_NONE = FakeGpu(90, 227 * KIB, 16, clusters=0)
SM_100 = FakeGpu(100, 227 * KIB, 148, clusters=7)
SM_120 = FakeGpu(120, 99 * KIB, 170)

NO_CLUSTER = "This GPU cannot run a cluster of 16 blocks."
REFUSED = "This GPU refuses clusters of 16 blocks (CUDA_ERROR_INVALID_VALUE)."


def make(part: Any, gpu: FakeGpu, problem: Problem, recipe: Recipe = RECIPE) -> Any:
    """The part, made for this GPU."""
    setup = set_up(recipe, problem, random_split(2 * problem.batch_size, problem.inputs, problem.classes), gpu)
    return part(setup) if issubclass(part, LastLayerHead) else part(setup, None, None)


@pytest.mark.parametrize("gpu", [SM_75, SM_80, SM_86, SM_89], ids=lambda gpu: f"sm_{gpu.capability}")
def test_clusters_need_a_newer_gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.show(monkeypatch, DeviceInfo("a GPU", divmod(gpu.capability, 10), 8 << 30, "0000:01:00.0"))
    for module in (persistent_cluster, cluster_fp16, last_layer, last_layer_bf16):
        assert "sm_90" in module.STAGE.needs
    told = missing(("sm_90",))
    assert told is not None
    assert told.startswith("needs sm_90 or newer, this GPU is ")


@pytest.mark.parametrize("problem", [SOFTMAX, HIDDEN], ids=["softmax", "hidden"])
@pytest.mark.parametrize("gpu", [SM_90, SM_90_ONE, SM_100], ids=["sm_90", "sm_90 one", "sm_100"])
def test_a_cluster_is_made_where_one_fits(gpu: FakeGpu, problem: Problem) -> None:
    assert make(ClusterEpoch, gpu, problem) is not None


@pytest.mark.parametrize(
    ("gpu", "problem", "reason"),
    [
        (SM_90_NONE, SOFTMAX, NO_CLUSTER),
        (SM_90_NONE, HIDDEN, NO_CLUSTER),
        (SM_120, SOFTMAX, "Needs 217,088 bytes of shared memory a block; this GPU has 101,376."),
        (
            SM_120,
            HIDDEN,
            "Hidden layers 256 at batch size 128 do not fit 16 multiprocessors with 99 KiB of shared memory each.",
        ),
        (SM_120, Problem(inputs=16, classes=10, hidden=(16,), batch_size=16), REFUSED),
    ],
    ids=["no cluster", "no cluster, hidden", "little memory", "little memory, hidden", "refused"],
)
def test_without_a_cluster_the_stage_is_skipped_with_the_reason(gpu: FakeGpu, problem: Problem, reason: str) -> None:
    with pytest.raises(MisfitError) as told:
        make(ClusterEpoch, gpu, problem)
    assert str(told.value) == reason


def test_products_run_before_the_training_where_one_cluster_fits() -> None:
    made = {gpu.clusters: make(ClusterEpoch, gpu, SOFTMAX)._train._grams for gpu in (SM_90, SM_90_ONE)}
    assert {at_once: (one._clusters, one._is_beside) for at_once, one in made.items()} == {6: (5, True), 1: (1, False)}


@pytest.mark.parametrize("gpu", [SM_75, SM_80, SM_86, SM_89, SM_90, SM_90_NONE, SM_100, SM_120], ids=str)
@pytest.mark.parametrize("module", [persistent_grid, grid_bf16], ids=lambda module: module.STAGE.name)
def test_the_grid_fits_every_gpu(module: Any, gpu: FakeGpu) -> None:
    for problem in (SOFTMAX, HIDDEN):
        make(module.STAGE.recipe.launch, gpu, problem)


def test_a_division_that_does_not_fit_is_refused() -> None:
    tiny = FakeGpu(90, 4 * KIB, 132)
    with pytest.raises(MisfitError, match=r"^No division .* 132 blocks with 4 KiB .* each\.$"):
        make(GridEpoch, tiny, HIDDEN)


@pytest.mark.parametrize(
    ("gpu", "width", "reason"),
    [
        (SM_90, 4096, ""),
        (SM_90_ONE, 4096, ""),
        (SM_100, 4096, ""),
        (SM_90_NONE, 4096, NO_CLUSTER),
        (SM_120, 8192, "Needs 132,352 bytes of shared memory a block; this GPU has 101,376."),
        (SM_120, 256, REFUSED),
    ],
    ids=str,
)
def test_the_last_layer_s_cluster(gpu: FakeGpu, width: int, reason: str) -> None:
    problem = Problem(inputs=16, classes=10, hidden=(width,), batch_size=32)
    if not reason:
        assert make(LastLayerHead, gpu, problem) is not None
        return
    with pytest.raises(MisfitError) as told:
        make(LastLayerHead, gpu, problem)
    assert str(told.value) == reason


@pytest.mark.parametrize(
    ("gpu", "forward", "back"),
    [(SM_75, False, []), (SM_86, False, [1]), (SM_80, True, [1, 2]), (SM_90, True, [1, 2]), (SM_120, False, [1])],
    ids=str,
)
def test_streamed_kernels_are_candidates_only_where_their_memory_fits(
    gpu: FakeGpu, forward: bool, back: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TileGemm, "__init__", lambda self, setup: setattr(self, "_made", ""))
    monkeypatch.setattr(FakeGpu, "trials", lambda self, subject, are_cold: None, raising=False)
    problem = Problem(inputs=64, classes=10, hidden=(64,), batch_size=32)
    gemm = make_gemm(gpu, problem)
    images, weights = np.empty((32, 64), np.float32), np.empty((64, 64), np.float32)
    spec = ProductSpec(False, False, 1.0, 0.0, Fusion("bias", bias=weights[0]))
    assert bool(gemm.forward_candidates(images, weights, spec)) is forward
    assert sorted({groups for _, groups in gemm._backward_splits(images, 64)}) == back


def make_gemm(gpu: FakeGpu, problem: Problem) -> Any:
    """The streamed gemm, made for this GPU without its library."""
    return streamed.ExactStreamed(set_up(RECIPE, problem, random_split(64, problem.inputs, 10), gpu))
