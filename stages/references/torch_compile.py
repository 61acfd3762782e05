"""PyTorch with `torch.compile` and automatic mixed precision, data on the device: the optimised script.

Why: it is what PyTorch's documentation tells one to do, and what is usually meant by optimised PyTorch.

Change: none; it is a reference, not a rung. The whole step is compiled, the update included, as the documentation
advises; products are in bfloat16 by autocast, which needs no gradient scaler, with parameters in float32, on images
that are kept in bfloat16, where they are exact. Its mode is the one for small networks, in which a CUDA graph of the
compiler's own hands over the step. The compiler runs while preparing.

Expect: 60 to 150 us a step for softmax regression on an H200: the kernels take 30, and the host has to check and launch
them each step.

Found: 72 to 76 us. It is all the host's time, so that autotuning, and sums of products in place of `linear`, which make
the kernels faster, make no difference that shows.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import chain
from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.stage import Stage
from stages.references.torch_choices import no_choice_kept
from stages.references.torch_common import Evaluate, RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_step import Linear, compile_steps, evaluation_steps, linear_or_sum, train_steps

COMPILER: Mapping[str, Any] = {"mode": "reduce-overhead"}  # measured with tools/tune_references.py


def prepare(setup: TorchSetup, *, compiler: Mapping[str, Any] = COMPILER, linear: Linear = linear_or_sum) -> RunEpoch:
    """Compile the step without and with totals."""
    import torch

    # Only then does the compiler's own CUDA graph update them in place.
    for tensor in (*chain(*setup.layers), setup.totals.loss_sum, setup.totals.correct):
        torch._dynamo.mark_static_address(tensor, guard=False)
    steps = compile_steps(train_steps(setup, amp=True, linear=linear), compiler)
    batches = setup.resident_batches(torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's, on choices of its own
        for due in (False, True):
            for _ in range(4):  # the compiler's own CUDA graphs warm up twice before they are recorded
                steps(batches[:1], due)

    def run_epoch(due: bool) -> None:
        for batch in batches:
            steps([batch], due)

    return run_epoch


def prepare_evaluation(setup: TorchSetup, test: Split) -> Evaluate:
    """Compile the forward pass, for full batches and for the rest."""
    import torch

    steps = compile_steps(evaluation_steps(setup, amp=True), COMPILER)
    batches = setup.resident_batches(torch.bfloat16, test)

    def evaluate() -> None:
        for batch in batches:
            steps([batch])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's, as above
        for _ in range(4):
            for batch in {len(labels): (images, labels) for images, labels in batches}.values():
                steps([batch])
    return evaluate


def build(problem: Problem, train: Split) -> Trainer:
    """A trainer with a compiled step."""
    return TorchTrainer(problem, train, prepare, prepare_evaluation)


STAGE = Stage(
    "torch-compile",
    "PyTorch compiled, AMP",
    "reference",
    "bfloat16",
    ("torch-cuda",),
    build,
    compiles_within=no_choice_kept,
)
