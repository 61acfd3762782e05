"""How a rung's kernels reach the GPU, and what the rung changes, in a few words."""

from __future__ import annotations

from typing import Literal

from ladder.records.run import StageResult

Regime = Literal["host", "graph", "one kernel"]
HEADINGS: dict[Regime, str] = {
    "host": "The host launches every kernel",
    "graph": "One CUDA graph launches an epoch's kernels",
    "one kernel": "One kernel runs a whole epoch",
}
MOST_LETTERS = 44  # of the words below: a figure has no room for more
# What a rung changes of the rung that it climbs from, short enough to stand beside it.
IN_WORDS: dict[str, tuple[Regime, str]] = {
    "naive": ("host", "one kernel an operation, loss read each step"),
    "async": ("host", "loss read once an epoch"),
    "cublas": ("host", "cuBLAS matrix products"),
    "sparse-metrics": ("host", "loss computed in every tenth epoch only"),
    "cudnn-softmax": ("host", "cuDNN softmax"),
    "cuda-graph": ("graph", "one launch an epoch"),
    "fused-head": ("graph", "softmax, loss and gradient in one kernel"),
    "fused-update": ("graph", "weight update inside its product"),
    "fused-epilogue": ("graph", "bias and ReLU inside the products"),
    "parallel-branches": ("graph", "updates beside the backward pass"),
    "skinny-gemm": ("graph", "own products, made for few columns"),
    "fused-bias": ("graph", "bias gradient as one more row of the product"),
    "dependent-launch": ("graph", "each kernel starts before the last one ends"),
    "tf32": ("graph", "tf32 tensor cores"),
    "bf16": ("graph", "bfloat16 tensor cores"),
    "fp16": ("graph", "float16 tensor cores"),
    "exact-u8": ("graph", "float32 results from tensor cores"),
    "streamed": ("graph", "weights read once for gradient and update"),
    "last-layer": ("graph", "last layer and softmax in one kernel"),
    "streamed-bf16": ("graph", "weights read once for gradient and update"),
    "last-layer-bf16": ("graph", "last layer and softmax in one kernel"),
    "persistent-grid": ("one kernel", "on all multiprocessors"),
    "grid-bf16": ("one kernel", "the same in bfloat16"),
    "persistent-cluster": ("one kernel", "on 16 multiprocessors, weights in registers"),
    "cluster-fp16": ("one kernel", "the same in float16"),
}


def regime(stage: StageResult) -> Regime:
    """The regime of a stage: from its profile, or from its name without one; an unknown rung is taken as launched."""
    profile = stage.profile
    if profile is None or not profile.kernels_per_step:
        return IN_WORDS.get(stage.name, ("host",))[0]
    if profile.kernels_per_step < 1:
        return "one kernel"
    return "host" if profile.launches_per_step >= 1 else "graph"


def change_in_words(stage: StageResult) -> str:
    """What the rung changes, in at most `MOST_LETTERS` letters; the title of a rung that is not known here."""
    return IN_WORDS.get(stage.name, ("", stage.title))[1]
