"""Triton update: `fused-bias` in Triton: weight gradient, bias gradient and update in one kernel a layer.

Why: the weight gradient is the larger product of a training step, and the one that wants its own epilogue: the update
of weights and bias. This rung is the twin of `fused-bias`: same parent, same part, another language.

Change: update. A program takes a tile of weights, loads the old ones first, and sums with `tl.dot` over the whole
batch. One more row of programs updates the bias. Triton has no sums across a cluster, so a tile's batch is not divided.

Expect: for softmax regression the same time as `fused-bias`: 50 programs of 16 x 16 weights, each with 128 images to
sum. 784-256-10 is arithmetic, 26 million multiply-adds, and Triton's float32 `dot` loads each factor from shared memory
for few products: 1 us more.

Predict: on H100: 784-10, batch 128: 1 x of fused-bias; 784-256-10, batch 128: 0.9 x of fused-bias.

Found: it is a little faster than its twin in both networks. The `dot` was judged too badly: larger tiles load each
factor less often, and execute a quarter fewer instructions than ours. Sums of broadcast products were faster still, and
the checks refused them: Triton had made TF32 of them (docs/languages.md).
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from stages.engine.parts import blocks, float32
from stages.engine.recipe import Gemm, Update
from stages.engine.workspace import Array, Setup
from stages.languages.triton_launch import Config, Launch, fastest, load
from stages.tiles import skinny_gemm

# Inputs, outputs, images and warps.
TILES = (
    (8, 16, 32, 4), (8, 16, 64, 4), (8, 16, 128, 4), (16, 16, 32, 4), (16, 16, 64, 4),
    (16, 32, 32, 4), (32, 32, 32, 4), (32, 32, 64, 4), (32, 64, 32, 4), (64, 32, 32, 4), (64, 64, 32, 8),
)  # fmt: skip


def configs(outputs: int) -> list[Config]:
    """The configurations to try for a layer of so many outputs."""
    names = "BLOCK_INPUTS", "BLOCK_OUTPUTS", "BLOCK_BATCH"
    return [
        Config(tuple(zip(names, sizes, strict=True)), warps, 3)
        for *sizes, warps in TILES
        if (sizes[1] > 16) == (outputs > 16)
    ]


class TritonUpdate(Update):
    """Weights and bias updated by one Triton kernel a layer."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "triton")

    def __init__(self, setup: Setup, gemm: Gemm) -> None:  # noqa: ARG002
        self._setup = setup
        self._rate = float32(setup.problem.learning_rate)
        self._launches: dict[int, tuple[Launch, tuple[int, int]]] = {}

    def __call__(self, layer: int, inputs: Array) -> None:
        """Enqueue the update of one layer from its inputs (B, I) and doutputs[layer] (B, O)."""
        tensors = self._setup.tensors
        if layer not in self._launches:
            self._launches[layer] = self._choose(layer, inputs)
        kernel, grid = self._launches[layer]
        kernel(grid, inputs, tensors.doutputs[layer], tensors.weights[layer], tensors.biases[layer], self._rate)

    def _choose(self, layer: int, inputs: Array) -> tuple[Launch, tuple[int, int]]:
        """The fastest launch for a layer, timed on copies of its parameters."""
        tensors = self._setup.tensors
        doutput, weight, bias = tensors.doutputs[layer], tensors.weights[layer].copy(), tensors.biases[layer].copy()
        sizes = {"BATCH": inputs.shape[0], "INPUTS": inputs.shape[1], "OUTPUTS": doutput.shape[1]}
        candidates = [
            (
                load(self._setup, "triton_update", config, **sizes),
                (
                    blocks(sizes["INPUTS"], config["BLOCK_INPUTS"]) + 1,
                    blocks(sizes["OUTPUTS"], config["BLOCK_OUTPUTS"]),
                ),
            )
            for config in configs(sizes["OUTPUTS"])
        ]
        timed = [partial(kernel, grid, inputs, doutput, weight, bias, self._rate) for kernel, grid in candidates]
        return candidates[fastest(self._setup, f"update {[*sizes.values()]}", timed)]


STAGE = skinny_gemm.STAGE.climb(
    "triton-update", "Triton update", group="languages", words="fused-bias, written in Triton", update=TritonUpdate
)
