"""How a rung's kernels reach the GPU, and what the rung changes, in a few words."""

from __future__ import annotations

from typing import Literal

from ladder.records.run import StageResult

Regime = Literal["host", "graph", "one kernel", "CPU"]
HEADINGS: dict[Regime, str] = {
    "host": "The host launches every kernel",
    "graph": "One CUDA graph launches an epoch's kernels",
    "one kernel": "One kernel runs a whole epoch",
    "CPU": "On the CPU",
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
    "large-batch": ("graph", "float16 halves in memory, few kernels a step"),
    "large-batch-fp16": ("graph", "the same in float16"),
    "large-batch-dependent": ("graph", "two of its kernels start early"),
    "persistent-grid": ("one kernel", "on all multiprocessors"),
    "grid-bf16": ("one kernel", "the same in bfloat16"),
    "persistent-cluster": ("one kernel", "on 16 multiprocessors, weights in registers"),
    "cluster-fp16": ("one kernel", "the same in float16"),
    "cpu-loops": ("CPU", "one loop nest an operation"),
    "cpu-blas": ("CPU", "BLAS matrix products"),
    "cpu-sparse-metrics": ("CPU", "loss computed in every tenth epoch only"),
    "cpu-fused-head": ("CPU", "softmax, loss and gradient in one kernel"),
    "cpu-fused-update": ("CPU", "weight update inside its product"),
    "cpu-one-call": ("CPU", "one call from Python an epoch"),
    "cpu-tiles": ("CPU", "own products, made for ten columns"),
    "cpu-bytes": ("CPU", "images of one byte a pixel"),
    "cpu-cores": ("CPU", "all cores share a step"),
    "cpu-wide-tiles": ("CPU", "own products for wide layers too"),
    "cpu-resident": ("CPU", "weights stay in their core"),
}
REFERENCES_IN_WORDS = {
    "torch-dataloader": "PyTorch eager, with its data loader",
    "torch-compile": "PyTorch compiled, mixed precision",
    "torch-compile-cpu": "PyTorch compiled, on the CPU",
    "torch-graph": "PyTorch compiled, an epoch in a CUDA graph",
    "torch-graph-amp": "the same in mixed precision",
    "jax-scan-bf16": "the same in bfloat16",
}


def regime(stage: StageResult) -> Regime:
    """The regime of a stage: from its profile, or from its name without one; an unknown rung is taken as launched."""
    if stage.device == "cpu":
        return "CPU"
    profile = stage.profile
    if profile is None or not profile.kernels_per_step:
        return IN_WORDS.get(stage.name, ("host",))[0]
    if profile.kernels_per_step < 1:
        return "one kernel"
    return "host" if profile.launches_per_step >= 1 else "graph"


def change_in_words(stage: StageResult) -> str:
    """What the rung changes, in at most `MOST_LETTERS` letters; the title of a rung that is not known here."""
    return words_of(stage.name, stage.title)


def words_of(name: str, title: str) -> str:
    """The same of a stage that was not run, by its name and title."""
    return IN_WORDS[name][1] if name in IN_WORDS else REFERENCES_IN_WORDS.get(name, title)
