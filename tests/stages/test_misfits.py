"""What rungs refuse: problems, and on faked GPUs of every architecture what has no cluster or memory there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from stages.large_batch.large_batch import HalvesEpoch
from stages.large_batch.large_batch_wide import WideEpoch
from stages.persistent import (
    cluster_fp16,
    fleet_columns,
    fleet_columns_fp16,
    fleet_grid,
    grid_bf16,
    grid_pairs_bf16,
    persistent_cluster,
    persistent_grid,
)
from stages.persistent.cluster_ahead import AheadEpoch
from stages.persistent.cluster_ahead_fp16 import Float16Ahead
from stages.persistent.divided_batch import DividedBatch
from stages.persistent.divided_hidden_fp16 import Float16Hidden
from stages.persistent.grid_messages import MessagesEpoch
from stages.persistent.persistent_cluster import ClusterEpoch
from stages.persistent.persistent_grid import GridEpoch
from stages.persistent.stationary_epoch import StationaryEpoch
from stages.streamed import deferred_epoch, last_layer, last_layer_bf16, streamed
from stages.streamed.last_layer_head import LastLayerHead
from stages.streamed.streamed_ring import ExactRing
from stages.streamed.streaming_epoch import StreamingEpoch
from stages.tiles.tile_gemm import ProductSpec, TileGemm
from tests.ladder import gpus
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import RECIPE, HostDevice

SOFTMAX = Problem(inputs=784, classes=10, batch_size=128)
HIDDEN = replace(SOFTMAX, hidden=(256,))
MESSAGES = Problem(inputs=784, classes=10, hidden=(784,) * 4, batch_size=64)
BATCH = replace(SOFTMAX, batch_size=900)
DIVIDED = replace(HIDDEN, batch_size=512)
WIDE = Problem(inputs=784, classes=10, hidden=(2048,) * 3, batch_size=32)
LAST = replace(WIDE, hidden=(4096,))
RING = Problem(inputs=16, classes=10, hidden=(64,), batch_size=5)
FLEET = Problem(inputs=784, classes=10, hidden=(128,) * 3, batch_size=32, networks=2)

SEVENTEEN = "17 classes exceed the limit of 16."
ONE_LAYER, NO_LAYER = "Needs one hidden layer", "Needs at least one hidden layer."
TOO_MANY = " steps exceed the limit of 1,073,741,824 numbers."
IN_CLUSTER = "do not fit 16 multiprocessors with 227 KiB of shared memory each."
IN_8 = IN_CLUSTER.replace("16", "8")
# Of each part, or of a rung with the one that it leads to: a problem with changes, and why it does not fit, if so.
MISFITS: dict[Any, list[tuple[Problem, dict[str, Any], str]]] = {
    AheadEpoch: [
        (HIDDEN, {"batch_size": 1, "hidden": (10,), "steps": 469}, ""),
        (HIDDEN, {"hidden": (1024,), "steps": 469}, ""),
        (HIDDEN, {"hidden": ()}, f"{ONE_LAYER}; the network has 0."),
        (HIDDEN, {"hidden": (9, 9)}, f"{ONE_LAYER}; the network has 2."),
        (HIDDEN, {"hidden": (1025,)}, "1025 units exceed the limit of 1024."),
        (HIDDEN, {"batch_size": 129}, "Batch size 129 exceeds the limit of 128."),
        (HIDDEN, {"classes": 17}, SEVENTEEN),
        (HIDDEN, {"inputs": 1100}, "1100 inputs do not fit the shared memory of 4 blocks."),
        (HIDDEN, {"batch_size": 1, "steps": 60_000}, f"60,000{TOO_MANY}"),
    ],
    MessagesEpoch: [
        (MESSAGES, {"steps": 938}, ""),
        (MESSAGES, {"batch_size": 1, "hidden": (10,), "steps": 469}, ""),
        (MESSAGES, {"hidden": ()}, NO_LAYER),
        (MESSAGES, {"hidden": (300, 100), "batch_size": 100, "steps": 600}, ""),
        (MESSAGES, {"batch_size": 129}, "Batch size 129 exceeds the limit of 128."),
        (MESSAGES, {"classes": 17}, SEVENTEEN),
        (MESSAGES, {"hidden": (1025,) * 2}, "1,040 units or inputs exceed the limit of 1,024."),
        (MESSAGES, {"hidden": (784, 9) * 5},
         "Hidden layers 784,9,784,9,784,9,784,9,784,9 at batch size 64 do not fit 112 multiprocessors."),
        (MESSAGES, {"batch_size": 1, "steps": 60_000}, f"60,000{TOO_MANY}"),
    ],
    DividedBatch: [
        (BATCH, {"steps": 66}, ""),
        (BATCH, {"batch_size": 1, "inputs": 3, "steps": 1000}, ""),
        (BATCH, {"classes": 32, "steps": 66}, ""),
        (BATCH, {"hidden": (9,)}, "Needs a network without hidden layers."),
        (BATCH, {"batch_size": 6145}, "Batch size 6,145 exceeds the limit of 6,144."),
        (BATCH, {"classes": 47}, "784 inputs and 47 classes do not fit a multiprocessor."),
        (BATCH, {"batch_size": 1, "steps": 90_000}, f"90,000{TOO_MANY}"),
    ],
    Float16Hidden: [
        *((DIVIDED, {"hidden": hidden}, f"{ONE_LAYER}.") for hidden in ((), (9, 9))),
        (DIVIDED, {"hidden": (1025,)}, "1,025 hidden units exceed the limit of 1,024 for 10 classes."),
        (DIVIDED, {"hidden": (513,), "classes": 49}, "513 hidden units exceed the limit of 512 for 49 classes."),
        (DIVIDED, {"hidden": (683,), "classes": 48}, "683 hidden units exceed the limit of 682 for 48 classes."),
        (DIVIDED, {"hidden": (863,), "inputs": 255, "batch_size": 463}, ""),
        (DIVIDED, {"classes": 65}, "65 classes exceed the limit of 64."),
        (DIVIDED, {"batch_size": 2048}, "784 inputs and 256 units at batch size 2,048 do not fit 132 multiprocessors."),
        (DIVIDED, {"batch_size": 1, "hidden": (1,), "steps": 90_000}, f"90,000{TOO_MANY}"),
    ],
    StationaryEpoch: [
        (WIDE, {"steps": 1875}, ""),
        (WIDE, {"hidden": (1200,) * 4, "inputs": 785, "batch_size": 31, "classes": 16, "steps": 1875}, ""),
        *((WIDE, {"hidden": hidden}, "Needs at least 2 hidden layers, all of one size.")
          for hidden in ((2048,), (2048, 1024))),
        (WIDE, {"hidden": (2049,) * 2}, "2,049 hidden units exceed the limit of 2,048."),
        (WIDE, {"batch_size": 33}, "Batch size 33 exceeds the limit of 32."),
        (WIDE, {"classes": 17}, SEVENTEEN),
        (WIDE, {"hidden": (2048,) * 4}, "Hidden layers 2048,2048,2048,2048 do not fit 128 multiprocessors."),
        (WIDE, {"inputs": 2000}, "Hidden layers 2048,2048,2048 do not fit 128 multiprocessors."),
        (WIDE, {"batch_size": 1, "steps": 60_000}, f"60,000{TOO_MANY}"),
    ],
    StreamingEpoch: [
        *((WIDE, {"hidden": (units,) * depth, "batch_size": batch, "steps": 60_000 // batch}, "")
          for units, depth, batch in ((2048, 3, 32), (2048, 4, 64), (2048, 2, 32), (4096, 3, 32), (8192, 2, 32))),
        *((WIDE, {"hidden": hidden}, "Needs 2 to 4 hidden layers, all of one size.")
          for hidden in ((2048,) * 5, (2048,), (2048, 4096))),
        (WIDE, {"hidden": (1024,) * 3}, "1,024 hidden units are not a multiple of 2,048."),
        (WIDE, {"batch_size": 65}, "Batch size 65 exceeds the limit of 64."),
        (WIDE, {"classes": 17}, SEVENTEEN),
        (WIDE, {"inputs": 500}, "500 inputs are not a multiple of 16."),
        (WIDE, {"hidden": (8192,) * 3}, "Needs 236,272 bytes of shared memory a block; there are 232,448."),
        (WIDE, {"hidden": (4096,) * 4, "batch_size": 64},
         "Needs 294,640 bytes of shared memory a block; there are 232,448."),
        (WIDE, {"hidden": (10_240,) * 2}, "10,240 hidden units exceed the limit of 8,192."),
        (WIDE, {"hidden": (6144,) * 2, "batch_size": 64}, "6,144 hidden units exceed the limit of 4,096."),
        (WIDE, {"batch_size": 1, "steps": 60_000}, f"60,000{TOO_MANY}"),
    ],
    (deferred_epoch, "streaming-epoch"): [
        (WIDE, {"hidden": (8192,) * 2}, "Needs 264,432 bytes of shared memory a block; there are 232,448."),
    ],
    (persistent_cluster, "divided-batch"): [
        (SOFTMAX, {}, ""), (SOFTMAX, {"batch_size": 100}, ""), (SOFTMAX, {"inputs": 1023}, ""),
        (SOFTMAX, {"batch_size": 129}, "Batch size 129 exceeds the limit of 128."),
        (SOFTMAX, {"inputs": 1024}, "1024 inputs exceed the limit of 1023."),
        (SOFTMAX, {"classes": 17}, SEVENTEEN),
        (SOFTMAX, {"steps": 20_000}, f"20,000{TOO_MANY}"),
    ],
    (persistent_cluster, "persistent-grid"): [
        (HIDDEN, {}, ""), (HIDDEN, {"hidden": (33, 7, 5, 3), "batch_size": 1}, ""),
        (HIDDEN, {"hidden": (256,) * 3, "batch_size": 32}, ""),
        (HIDDEN, {"hidden": (256,) * 3, "batch_size": 64}, f"Hidden layers 256,256,256 at batch size 64 {IN_CLUSTER}"),
        (HIDDEN, {"hidden": (8,) * 5}, "5 hidden layers (8,8,8,8,8) exceed the limit of 4."),
        *((HIDDEN, {"hidden": (units,)}, f"Hidden layers {units} at batch size 128 {IN_CLUSTER}")
          for units in (384, 1024)),
        (HIDDEN, {"batch_size": 513}, "Batch size 513 exceeds the limit of 512."),
        (HIDDEN, {"classes": 65}, "65 classes exceed the limit of 64."),
        (HIDDEN, {"steps": 20_000}, f"20,000{TOO_MANY}"),
    ],
    (cluster_fp16, "persistent-cluster"): [(HIDDEN, {}, ""), (HIDDEN, {"hidden": (384,)}, ""), (SOFTMAX, {}, NO_LAYER)],
    (persistent_grid, "cuda-graph"): [
        (MESSAGES, {"steps": 468}, ""),
        (SOFTMAX, {"hidden": (50_000,)}, "A row of 50,000 and 10 units needs more than 64 KiB of shared memory."),
        (SOFTMAX, {"batch_size": 1 << 20, "steps": 2},
         "2 steps of 1,048,576 images exceed the limit of 1,073,741,824 numbers."),
    ],
    (fleet_grid, "fleet-graph"): [
        (MESSAGES, {"networks": 7, "steps": 468}, ""),
        (FLEET, {"hidden": (50_000,)}, "A row of 50,000 and 10 units needs more than 64 KiB of shared memory."),
    ],
    (grid_pairs_bf16, "grid-bf16"): [
        (SOFTMAX, {"inputs": 212, "classes": 7, "hidden": (1588, 30), "batch_size": 224, "steps": 200}, ""),
        (SOFTMAX, {}, NO_LAYER),
        (SOFTMAX, {"inputs": 413, "classes": 8, "hidden": (1040, 87, 688), "batch_size": 730},
         "Hidden layers 1040,87,688 at batch size 730 do not fit 132 multiprocessors."),
    ],
    (fleet_columns, "fleet-cluster"): [
        (FLEET, {}, ""),
        (FLEET, {"hidden": (), "batch_size": 100}, "Batch size 100 is not a multiple of 16."),
        (FLEET, {"hidden": (128,), "batch_size": 257}, "Batch size 257 exceeds the limit of 256."),
        (FLEET, {"hidden": (256, 256)}, f"Hidden layers 256,256 at batch size 32 {IN_8}"),
    ],
    (fleet_columns_fp16, "fleet-columns"): [
        *((FLEET, {"hidden": (units,) * depth, "batch_size": batch}, "")
          for units, depth, batch in ((128, 3, 32), (128, 4, 32), (256, 1, 32), (64, 1, 64))),
        (FLEET, {"hidden": (), "batch_size": 128}, NO_LAYER),
        (FLEET, {"hidden": (300, 300)}, f"Hidden layers 300,300 at batch size 32 {IN_8}"),
        (FLEET, {"hidden": (64,), "batch_size": 257}, "Batch size 257 exceeds the limit of 256."),
    ],
    ExactRing: [
        (RING, {"hidden": ()}, NO_LAYER),
        (RING, {"batch_size": 65}, "Batch size 65 exceeds the limit of 64."),
        (RING, {"inputs": 20}, "20 inputs are not a multiple of 16."),
        (RING, {"hidden": (64, 72)}, "72 hidden units are not a multiple of 64."),
        (RING, {"inputs": 784, "hidden": (64, 4096), "batch_size": 64}, ""),
    ],
    (last_layer, "streamed"): [
        (LAST, {}, ""),
        (LAST, {"hidden": ()}, NO_LAYER),
        (LAST, {"classes": 33}, "33 classes exceed the limit of 32."),
        (LAST, {"hidden": (16_388,)}, "Batch size 32 with 16,388 units before the classes needs 218,528 bytes a block; "
         "the limits are 229,376 bytes a block and 16,384 units."),
    ],
    LastLayerHead: [(LAST, {"hidden": (30,)}, "30 units before the classes are not a multiple of 4.")],
    HalvesEpoch: [
        (SOFTMAX, {}, NO_LAYER),
        (SOFTMAX, {"hidden": (8, 257)}, "257 hidden units a layer exceed the limit of 256."),
        (SOFTMAX, {"hidden": (32, 8) * 2}, ""),
        (SOFTMAX, {"hidden": (256,) * 3},
         "Needs 594,976 bytes of shared memory a block; no GPU has more than 232,448."),
        (SOFTMAX, {"hidden": (513,)}, "513 hidden units exceed the limit of 512."),
        (SOFTMAX, {"hidden": (512,), "classes": 17}, SEVENTEEN),
        (SOFTMAX, {"hidden": (512,), "classes": 16}, ""),
    ],
    WideEpoch: [
        (SOFTMAX, {}, NO_LAYER),
        (SOFTMAX, {"hidden": (3000, 20), "batch_size": 8192}, ""),
        (SOFTMAX, {"hidden": (5,), "batch_size": 8192, "steps": 1000},
         "1,000 steps of 8,192 images exceed the limit of 1,073,741,824 numbers."),
    ],
}  # fmt: skip
MISFITS[Float16Ahead] = MISFITS[AheadEpoch]
MISFITS[last_layer_bf16, "streamed-bf16"] = MISFITS[last_layer, "streamed"]


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
SM_90_NONE_OF_15 = FakeGpu(90, 227 * KIB, 15, clusters=0)
SM_100 = FakeGpu(100, 227 * KIB, 148, clusters=7)
SM_120 = FakeGpu(120, 99 * KIB, 170)

NO_CLUSTER = "This GPU cannot run a cluster of 16 blocks."
REFUSED = "This GPU refuses clusters of 16 blocks (CUDA_ERROR_INVALID_VALUE)."


def make(part: Any, gpu: FakeGpu, problem: Problem, recipe: Recipe = RECIPE) -> Any:
    """The part, made for this GPU."""
    setup = set_up(recipe, problem, random_split(2 * problem.batch_size, problem.inputs, problem.classes), gpu)
    return part(setup) if issubclass(part, LastLayerHead) else part(setup, None, None)


@pytest.mark.parametrize("part", MISFITS, ids=lambda part: part.__name__ if isinstance(part, type) else part[1])
def test_a_misfit_says_why_and_a_rung_which_other_may_do(part: Any) -> None:
    for problem, changed, reason in MISFITS[part]:
        rung, closest = (part[0].STAGE, f" Closest rung here: `{part[1]}`.") if isinstance(part, tuple) else (part, "")
        steps = changed.get("steps", 7)
        told = rung.misfit(replace(problem, **{name: to for name, to in changed.items() if name != "steps"}), steps)
        assert (told or "") == (reason and reason + closest)


@pytest.mark.parametrize("gpu", [SM_75, SM_80, SM_86, SM_89], ids=lambda gpu: f"sm_{gpu.capability}")
def test_clusters_need_a_newer_gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.show(monkeypatch, DeviceInfo("a GPU", divmod(gpu.capability, 10), 8 << 30, "0000:01:00.0"))
    for module in (persistent_cluster, cluster_fp16, last_layer, last_layer_bf16):
        assert "sm_90" in module.STAGE.needs
    told = missing(("sm_90",))
    assert told is not None
    assert told.startswith("needs sm_90 or newer, this GPU is ")


WARPGROUPS = "Needs the warpgroup products of an sm_90 GPU."
FEW = "Needs 128 multiprocessors; this GPU has 114."
SM_90_FEW = replace(SM_90, multiprocessors=114)


@pytest.mark.parametrize(
    ("part", "problem", "gpu", "reason"),
    [
        *((ClusterEpoch, problem, SM_90_NONE, NO_CLUSTER) for problem in (SOFTMAX, HIDDEN)),
        (ClusterEpoch, SOFTMAX, SM_120, "Needs 217,088 bytes of shared memory a block; this GPU has 101,376."),
        (ClusterEpoch, HIDDEN, SM_120, f"Hidden layers 256 at batch size 128 {IN_CLUSTER.replace('227', '99')}"),
        (ClusterEpoch, Problem(inputs=16, classes=10, hidden=(16,), batch_size=16), SM_120, REFUSED),
        (GridEpoch, HIDDEN, FakeGpu(90, 4 * KIB, 132),
         "No division of the network fits 132 blocks with 4 KiB of shared memory each."),
        (AheadEpoch, HIDDEN, SM_90_ONE, "Needs 5 clusters of 16 blocks at once; this GPU runs 1."),
        (AheadEpoch, HIDDEN, SM_90_NONE, NO_CLUSTER),
        (AheadEpoch, HIDDEN, SM_120, "Needs 206,336 bytes of shared memory a block; this GPU has 101,376."),
        (MessagesEpoch, MESSAGES, SM_80, "Needs 261,760 bytes of shared memory a block; this GPU has 166,912."),
        (MessagesEpoch, MESSAGES, SM_90_NONE_OF_15, "Needs 16 multiprocessors; this GPU has 15."),
        (MessagesEpoch, MESSAGES, SM_120, "Needs 216,448 bytes of shared memory a block; this GPU has 101,376."),
        (DividedBatch, replace(BATCH, batch_size=1100), SM_90_NONE, "Batch size 1,100 exceeds the limit of 768."),
        (DividedBatch, replace(BATCH, batch_size=2100), SM_120,
         "Needs 205,840 bytes of shared memory a block; this GPU has 101,376."),
        *((part, WIDE, gpu, reason) for part in (StationaryEpoch, StreamingEpoch)
          for gpu, reason in ((SM_80, WARPGROUPS), (SM_120, WARPGROUPS), (SM_90_FEW, FEW))),
        (LastLayerHead, LAST, SM_90_NONE, NO_CLUSTER),
        (LastLayerHead, replace(LAST, inputs=16, hidden=(8192,)), SM_120,
         "Needs 132,352 bytes of shared memory a block; this GPU has 101,376."),
        (LastLayerHead, replace(LAST, inputs=16, hidden=(256,)), SM_120, REFUSED),
    ],
    ids=str,
)  # fmt: skip
def test_a_gpu_with_too_little_room_is_told_so(part: Any, problem: Problem, gpu: FakeGpu, reason: str) -> None:
    assert make(part, SM_90, problem) is not None
    with pytest.raises(MisfitError, match=re.escape(reason)):
        make(part, gpu, problem)


@pytest.mark.parametrize("gpu", [SM_90, SM_90_ONE, SM_100], ids=str)
def test_a_part_is_made_where_a_cluster_fits(gpu: FakeGpu) -> None:
    for part, problem in ((LastLayerHead, LAST), (ClusterEpoch, SOFTMAX), (ClusterEpoch, HIDDEN)):
        assert make(part, gpu, problem) is not None
    assert make(Float16Hidden, SM_90, DIVIDED) is not None


def test_grams_are_made_beside_the_training_where_a_sixth_cluster_fits() -> None:
    grams = make(AheadEpoch, SM_90, HIDDEN)._grams
    assert (grams._clusters, grams._is_beside) == (1, True)


def test_products_run_before_the_training_where_one_cluster_fits() -> None:
    made = {gpu.clusters: make(ClusterEpoch, gpu, SOFTMAX)._train._grams for gpu in (SM_90, SM_90_ONE)}
    assert {at_once: (one._clusters, one._is_beside) for at_once, one in made.items()} == {6: (5, True), 1: (1, False)}


@pytest.mark.parametrize("gpu", [SM_75, SM_80, SM_86, SM_89, SM_90, SM_90_NONE, SM_100, SM_120], ids=str)
@pytest.mark.parametrize("module", [persistent_grid, grid_bf16], ids=lambda module: module.STAGE.name)
def test_the_grid_fits_every_gpu(module: Any, gpu: FakeGpu) -> None:
    for problem in (SOFTMAX, HIDDEN):
        make(module.STAGE.recipe.launch, gpu, problem)


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
