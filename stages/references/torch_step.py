"""The complete training step as one function for `torch.compile`.

The compiler sees forward, loss, gradients and update as one graph and fuses across them. `torch.func` computes
gradients inside that graph; `loss.backward()` would end it. A product with few columns is written as a sum, which
fuses with its neighbours; a matrix product would be a separate kernel that cannot fill the chip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from stages.references.torch_choices import timed_in_turn
from stages.references.torch_common import Batch, Tensor, TorchSetup

MAX_SUM_OUTPUTS = 16  # of a layer written as a sum
Linear = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Inputs (B, I), weight (O, I) and bias (O,) to outputs (B, O)."""
TrainSteps = Callable[[list[Batch], bool], None]
"""Train on these batches, in order; the flag adds to the totals."""
EvaluationSteps = Callable[[list[Batch]], None]
"""Add each image of these batches to the totals."""
Steps = TypeVar("Steps", bound=Callable[..., Any])


def linear_or_sum(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`torch.nn.functional.linear`, or the equivalent sum of products for a layer with few outputs."""
    import torch

    if weight.shape[0] > MAX_SUM_OUTPUTS:
        return torch.nn.functional.linear(inputs, weight, bias)
    # Autocast ignores elementwise products, so the cast is explicit: a bfloat16 stage multiplies in bfloat16.
    return (inputs[:, None, :] * weight.to(inputs.dtype)).sum(dim=2) + bias


def mixed(setup: TorchSetup, *, amp: bool) -> AbstractContextManager[Any]:
    """A context whose products are bfloat16 with `amp`, and float32 without.

    It is entered around compiled steps, not inside: PyTorch's cache of traced graphs takes none that enters autocast.
    """
    import torch

    # Autocast's cache would keep casts of parameters that change.
    return torch.autocast(setup.device.type, torch.bfloat16, cache_enabled=False) if amp else nullcontext()


def forward(layers: list[tuple[Tensor, Tensor]], images: Tensor, linear: Linear) -> Tensor:
    """Logits (B, C) of images (B, I), with ReLU between layers."""
    from torch.nn.functional import relu

    outputs = linear(images, *layers[0])
    for weight, bias in layers[1:]:
        outputs = linear(relu(outputs), weight, bias)
    return outputs


def evaluation_steps(setup: TorchSetup, *, linear: Linear = linear_or_sum) -> EvaluationSteps:
    """The forward pass of `train_steps`, not compiled."""
    from torch.nn.functional import cross_entropy

    totals, layers = setup.totals, setup.layers

    def steps(batches: list[Batch]) -> None:
        for images, labels in batches:
            logits = forward(layers, images, linear)
            totals.add(cross_entropy(logits, labels, reduction="sum"), logits, labels)

    return steps


def matrix_product(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`torch.nn.functional.linear` for every layer, even with few outputs."""
    import torch

    return torch.nn.functional.linear(inputs, weight, bias)


def train_steps(setup: TorchSetup, *, linear: Linear = linear_or_sum) -> TrainSteps:
    """The step over the set-up's parameters, not compiled; in `mixed`, it multiplies in bfloat16.

    Parameters stay float32 and are updated in place. Several batches a call let the compiler fuse one step's update
    with the next step's begin.
    """
    import torch
    from torch.nn.functional import cross_entropy

    rate, totals, layers = setup.problem.learning_rate, setup.totals, setup.layers

    def loss_and_logits(layers: list[tuple[Tensor, Tensor]], images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = forward(layers, images, linear)
        return cross_entropy(logits, labels), logits

    def steps(batches: list[Batch], with_totals: bool) -> None:
        for images, labels in batches:
            gradients, (loss, logits) = torch.func.grad_and_value(loss_and_logits, has_aux=True)(layers, images, labels)
            for parameters, layer_gradients in zip(layers, gradients, strict=True):
                for parameter, gradient in zip(parameters, layer_gradients, strict=True):
                    parameter.sub_(gradient, alpha=rate)
            if with_totals:
                totals.add(loss, logits, labels)

    return steps


def compile_steps(steps: Steps, compiler: Mapping[str, Any]) -> Steps:
    """Wrap in `torch.compile` with these arguments; compilation happens on the first call, for its shapes."""
    import torch

    if torch.cuda.is_available():
        timed_in_turn()
    # PyTorch stops compiling past a limit on the number of sizes; raise it.
    torch._dynamo.config.recompile_limit = 256
    torch._dynamo.config.accumulated_recompile_limit = 1024
    compiled: Steps = torch.compile(steps, fullgraph=True, dynamic=False, **compiler)
    return compiled
