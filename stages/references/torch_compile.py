"""PyTorch compiled: `torch.compile` with automatic mixed precision, data on the device.

Why: PyTorch's documentation recommends it, and "optimised PyTorch" usually means this.

Change: none; it is a reference, not a rung. The whole step is compiled, including the update, as the documentation
advises. Autocast multiplies in bfloat16, which needs no gradient scaler. Parameters stay float32; images are kept in
bfloat16, where they are exact. The mode is the one for small networks: the compiler's own CUDA graph launches the
step. Compilation happens during preparation.

Expect: 60 to 150 us per step for softmax regression on an H200: the kernels take 30, and the host checks and launches
them in every step.

Predict: on H200: 784-10, batch 128: 60 to 150 us.

Found: as predicted, the host binds: in 784-10 the GPU runs kernels for a tenth to a sixth of a step, and idles while
the host checks and launches. So autotuning, and sums of products in place of `linear`, make the kernels faster without
a measurable gain. It pays where kernels take longer than the host needs for a launch.
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
from stages.references.torch_step import Linear, compile_steps, evaluation_steps, linear_or_sum, mixed, train_steps

COMPILER: Mapping[str, Any] = {"mode": "reduce-overhead"}


def prepare(setup: TorchSetup, *, compiler: Mapping[str, Any] = COMPILER, linear: Linear = linear_or_sum) -> RunEpoch:
    """Compile the step without and with totals."""
    import torch

    # Lets the compiler's own CUDA graph update them in place.
    for tensor in (*chain(*setup.layers), setup.totals.loss_sum, setup.totals.correct):
        torch._dynamo.mark_static_address(tensor, guard=False)
    steps = compile_steps(train_steps(setup, linear=linear), compiler)
    batches = setup.resident_batches(torch.bfloat16)
    with warnings.catch_warnings(), mixed(setup, amp=True):
        warnings.simplefilter("ignore")  # about the compiler's own choices
        for due in (False, True):
            for _ in range(4):  # the compiler's CUDA graphs warm up twice before recording
                steps(batches[:1], due)

    def run_epoch(due: bool) -> None:
        with mixed(setup, amp=True):
            for batch in batches:
                steps([batch], due)

    return run_epoch


def prepare_evaluation(setup: TorchSetup, test: Split) -> Evaluate:
    """Compile the forward pass, for full batches and for the rest."""
    import torch

    steps = compile_steps(evaluation_steps(setup), COMPILER)
    batches = setup.resident_batches(torch.bfloat16, test)

    def evaluate() -> None:
        with mixed(setup, amp=True):
            for batch in batches:
                steps([batch])

    with warnings.catch_warnings(), mixed(setup, amp=True):
        warnings.simplefilter("ignore")  # as above
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
    words="PyTorch compiled, mixed precision",
    compiles_within=no_choice_kept,
)
