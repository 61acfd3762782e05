"""PyTorch in a CUDA graph: a compiled step, and one captured graph for a whole epoch.

Why: for a network this small, the host's part of a step takes far longer than the GPU's. This is the strongest use of
PyTorch's own tools. A rung that beats only eager mode has beaten the host; this is the reference to beat.

Change: none; it is a reference, not a rung. Forward, loss, gradients and update are compiled as one function, several
steps at a time. A layer with few outputs is written as a sum of products, which the compiler fuses with its
neighbours. Every batch has a tensor of its own on the device, so the graph needs no copy; an epoch is one launch. All
of PyTorch's work uses one stream. Epochs with metrics have a graph of their own. Float32 is without TF32. The second
stage multiplies in bfloat16 (autocast, parameters in float32), on images kept in bfloat16, where they are exact.
`choices.json` can name another variant for a network and GPU.

Expect: at most 41 us per step for softmax regression on an H200 in float32 and 29 with bfloat16, 70 us with a hidden
layer of 256: some eight kernels a step, two or three of them products that cannot fill the chip.

Found: 784-10 takes about a fifth of the estimate, since the layer of ten outputs is a sum, which the compiler fuses
with its neighbours, and no product that leaves the chip idle. In batches of thousands sums lose to products. One stream
carries everything: kernels on a second one slow every node of a graph (docs/notebook/torch-graph-speeds.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from common.choice import may_search
from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.stage import Stage
from stages.references.choices import Rule, variant_for
from stages.references.torch_choices import launching_nothing, no_choice_kept, timed_in_graphs
from stages.references.torch_common import Batch, Evaluate, RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_step import (
    Linear,
    compile_steps,
    evaluation_steps,
    linear_or_sum,
    matrix_product,
    mixed,
    train_steps,
)

AUTOTUNE = {"mode": "max-autotune-no-cudagraphs"}
DESCENT = {"options": {"coordinate_descent_tuning": True}}
POINTWISE = {"options": {"max_autotune_pointwise": True, "coordinate_descent_tuning": True}}
LIBRARIES = {"options": {"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}}
COMBO = {"options": {"max_autotune": True, "coordinate_descent_tuning": True, "combo_kernels": True}}


@dataclass(frozen=True)
class Variant:
    """A way to write and compile the same epoch."""

    unroll: int = 8  # steps compiled together
    compiler: Mapping[str, Any] = field(default_factory=dict)  # arguments of torch.compile
    linear: Linear = linear_or_sum


DEFAULT = "default"  # no autotuning, no graphs of the compiler's own; measured on three small networks
BOTH = {
    "default": Variant(),
    "linear": Variant(linear=matrix_product),
    "unroll 1": Variant(unroll=1),
    "unroll 2": Variant(unroll=2),  # on an H200: 784-10 in 0.96 and 1.01 of the default's time, 784-256-10 in 1.15
    "unroll 1, coordinate descent": Variant(unroll=1, compiler=DESCENT),  # eight steps have too many kernels to time
    "unroll 2, coordinate descent": Variant(unroll=2, compiler=DESCENT),
    "unroll 1, pointwise autotuning": Variant(unroll=1, compiler=POINTWISE),
    "autotuning among libraries": Variant(compiler=LIBRARIES),
    "autotuning": Variant(compiler=AUTOTUNE),
    "autotuning, linear": Variant(compiler=AUTOTUNE, linear=matrix_product),
    "autotuning, combo kernels": Variant(compiler=COMBO),
}
VARIANTS = dict.fromkeys(("torch-graph", "torch-graph-amp"), BOTH)
RULE = Rule("unroll 1", "linear", "images", 1024)
# Whether to pad odd widths is timed while compiling, so in a process's turn: 13 s of 784-220-70-10 in batches of 72,
# for a gain of 1% in float32, and of none in AMP; nor did AMP gain in 784-300-100-10 and 784-1001-501-10, batch 128, of
# 34 and 165 million multiplications. So smaller steps go without.
UNPADDED, PADDED_FROM = {"options": {"shape_padding": False}}, 100_000_000


def compiled_epoch(setup: TorchSetup, *, amp: bool, variant: Variant) -> tuple[Callable[..., None], list[list[Batch]]]:
    """An epoch in compiled steps, launched one by one, or only some of its groups of batches; and all of them."""
    import torch

    steps = compile_steps(train_steps(setup, linear=variant.linear), variant.compiler)
    batches = setup.resident_batches(torch.bfloat16 if amp else torch.float32)
    whole = len(batches) - len(batches) % variant.unroll
    groups = [batches[first : first + variant.unroll] for first in range(0, whole, variant.unroll)]
    groups += [[batch] for batch in batches[whole:]]

    def epoch(due: bool, some: Iterable[list[Batch]] = groups) -> None:
        with mixed(setup, amp=amp):
            for group in some:
                steps(group, due)

    return epoch, groups


def prepare(setup: TorchSetup, *, amp: bool, variant: Variant = BOTH[DEFAULT]) -> RunEpoch:
    """Compile, warm up, and capture one graph without and one with totals."""
    epoch, groups = compiled_epoch(setup, amp=amp, variant=variant)
    sizes = {len(group): group for group in groups}
    with warnings.catch_warnings(), launching_nothing():  # before the first kernel that waits for its turn to be timed
        warnings.simplefilter("ignore")  # about the compiler's own choices
        for due in (False, True):
            epoch(due, sizes.values())
    graphs = {due: captured(partial(epoch, due)) for due in (False, True)}
    return partial(replay, graphs, groups)


def replay(graphs: Mapping[bool, Any], groups: Sequence[list[Batch]], due: bool) -> None:  # noqa: ARG001
    """Run an epoch. The arguments keep the batches alive: a graph stores addresses only."""
    graphs[due].replay()


def captured(run: Callable[[], None], watching: str = "global") -> Any:
    """Run once, then capture on the current stream; returns the graph.

    PyTorch's groups of ranks have threads that call CUDA meanwhile: `watching` "thread_local" allows that.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the compiler's own choices
        run()  # compiles and initialises libraries, which a capture forbids
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode=watching):
        run()
    return graph


def prepare_evaluation(setup: TorchSetup, test: Split, *, amp: bool) -> Evaluate:
    """Compile the forward pass for full batches and the rest, and capture it over all of them."""
    import torch

    steps = compile_steps(evaluation_steps(setup), {})
    batches = setup.resident_batches(torch.bfloat16 if amp else torch.float32, test)

    def evaluate() -> None:
        with mixed(setup, amp=amp):
            for batch in batches:
                steps([batch])

    graph = captured(evaluate)
    return partial(replay, {True: graph}, [batches], True)


def use_one_stream() -> None:
    """Make PyTorch use one capturable stream in this process, and time its kernels' block sizes in graphs.

    After a few kernels on each of two streams, every node of a graph is slower for the rest of the process.
    """
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_stream(_only_stream())
        timed_in_graphs()


@cache
def _only_stream() -> Any:
    import torch

    return torch.cuda.Stream()


def build(problem: Problem, train: Split, *, amp: bool, variant: Variant | None = None) -> Trainer:
    """A trainer whose epoch is one graph; without a `variant`, the one of `variant_for`."""
    use_one_stream()
    detail = ""
    if variant is None:
        stage = "torch-graph-amp" if amp else "torch-graph"
        name, detail = variant_for(stage, problem, VARIANTS[stage], RULE, DEFAULT)
        variant = VARIANTS[stage][name]
        if not may_search() and problem.multiplications < PADDED_FROM:
            variant = replace(variant, compiler=UNPADDED)
    trainer = TorchTrainer(
        problem, train, partial(prepare, amp=amp, variant=variant), partial(prepare_evaluation, amp=amp)
    )
    trainer.detail = detail or trainer.detail
    return trainer


FLOAT32 = Stage(
    "torch-graph",
    "PyTorch compiled, an epoch in a CUDA graph",
    "reference",
    "float32",
    ("torch-cuda",),
    partial(build, amp=False),
    compiles_within=no_choice_kept,
)
AMP = Stage(
    "torch-graph-amp",
    "PyTorch compiled, an epoch in a CUDA graph, AMP",
    "reference",
    "bfloat16",
    ("torch-cuda",),
    partial(build, amp=True),
    words="the same in mixed precision",
    compiles_within=no_choice_kept,
)
