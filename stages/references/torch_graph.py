"""PyTorch as fast as it goes: a compiled step, and the whole epoch captured in one CUDA graph.

Why: it is the strongest thing that PyTorch's own tools give for a network this small, where the host's part of a step
takes far longer than the GPU's. A rung that beats eager mode alone has beaten the host; this row is the one to beat.

Change: none; it is a reference, not a rung. Forward, loss, gradients and update are compiled as one function, a few
steps at a time; the product of a layer with few outputs is written as a sum of products, which the compiler fuses with
its neighbours; every batch is on the device in a tensor of its own, so the graph needs no copy; an epoch is one launch.
All of PyTorch's work is on one stream, also what is none of an epoch's. Epochs with metrics have a graph of their own.
Float32 without TF32; the second row multiplies in bfloat16 (autocast, with parameters in float32), on images that are
kept in bfloat16, where they are exact.

Expect: for softmax regression on an H200 41 us a step or less in float32 and 29 with bfloat16, 70 us with a hidden
layer of 256: some eight kernels a step, two or three of them products that cannot fill the chip.

Found: 10.5 us in float32 and 9.8 with bfloat16 for softmax regression, a quarter of what was expected, and 34.9 and
23.1 with the hidden layer. As a matrix product, the layer of 10 outputs made that 18 to 33 us with autotuning, as luck
would have it, and 36.5 without; as a sum of products autotuning took 13.6 and four times as long to prepare, so there
is none. What the compiler fuses, it does not round to bfloat16 in between: softmax regression is as exact in the
second row as in the first. With three hidden layers of 128 and a batch of 32 it is 67.1 us in float32; whether
autotuning, which was not done preparing after 90 s, would choose better for matrix products so small has not been
measured. It was seen at two speeds once, 10.0 and 11.7 us for softmax regression in float32: with parameters
loaded on the default stream, and graphs captured on another, each node took 0.3 us longer after the first run. On one
stream it stays fast; docs/notes.md has both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.stage import Stage
from stages.references.torch_choices import no_choice_kept
from stages.references.torch_common import Batch, Evaluate, RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_step import Linear, compile_steps, evaluation_steps, linear_or_sum, train_steps

UNROLL = 8  # steps compiled together; measured with tools/tune_references.py
COMPILER: Mapping[str, Any] = {}  # its default mode: neither autotuning nor graphs of its own; measured likewise


def prepare(
    setup: TorchSetup,
    *,
    amp: bool,
    unroll: int = UNROLL,
    compiler: Mapping[str, Any] = COMPILER,
    linear: Linear = linear_or_sum,
) -> RunEpoch:
    """Compile, warm up, and capture one graph without and one with totals."""
    import torch

    steps = compile_steps(train_steps(setup, amp=amp, linear=linear), compiler)
    batches = setup.resident_batches(torch.bfloat16 if amp else torch.float32)
    whole = len(batches) - len(batches) % unroll
    groups = [batches[first : first + unroll] for first in range(0, whole, unroll)]
    groups += [[batch] for batch in batches[whole:]]

    def epoch(due: bool) -> None:
        for group in groups:
            steps(group, due)

    graphs = {due: captured(partial(epoch, due)) for due in (False, True)}
    return partial(_replay, graphs, groups)


def _replay(graphs: Mapping[bool, Any], groups: Sequence[list[Batch]], due: bool) -> None:  # noqa: ARG001
    """Run an epoch; the groups are here to be kept alive, since a graph knows addresses only."""
    graphs[due].replay()


def captured(run: Callable[[], None]) -> Any:
    """A graph of what is run on the current stream."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's, on choices of its own
        run()  # compiles, and makes whatever libraries make when first called: none of it can be captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        run()
    return graph


def prepare_evaluation(setup: TorchSetup, test: Split, *, amp: bool) -> Evaluate:
    """Compile the forward pass, for full batches and for the rest, and capture it over all of them."""
    import torch

    steps = compile_steps(evaluation_steps(setup, amp=amp), COMPILER)
    batches = setup.resident_batches(torch.bfloat16 if amp else torch.float32, test)

    def evaluate() -> None:
        for batch in batches:
            steps([batch])

    graph = captured(evaluate)
    return partial(_replay, {True: graph}, [batches], True)


def use_one_stream() -> None:
    """Have this process launch all that is PyTorch's on one stream, which a graph can be captured on.

    Once there were a few kernels on each of two streams, every node of a graph takes longer, for good.
    """
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_stream(_only_stream())


@cache
def _only_stream() -> Any:
    import torch

    return torch.cuda.Stream()


def build(problem: Problem, train: Split, *, amp: bool) -> Trainer:
    """A trainer whose epoch is one graph."""
    use_one_stream()
    return TorchTrainer(problem, train, partial(prepare, amp=amp), partial(prepare_evaluation, amp=amp))


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
    compiles_within=no_choice_kept,
)
