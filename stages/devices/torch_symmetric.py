"""PyTorch's symmetric memory: its own kernel adds up gradients of all GPUs, in the graph of an epoch.

Why: NCCL takes 19 us for 0.8 MB. PyTorch has all-reduces that read and write other GPUs' memory from one kernel, and a
CUDA graph can hold them, which DDP's hooks do not allow.

Change: none; it is a reference, not a rung. Forward and backward pass are compiled as one function. One kernel copies
all gradients to memory that all GPUs have mapped, one adds them up there, and one updates. Up to 256 KB every GPU adds
up all (one-shot), beyond that its part of them (two-shot), as PyTorch chooses by itself. NVLink multicast is off.

Expect: `torch-graph` takes 451 us for 784-256-10 in batches of 8,192 on an H200; half of it, 12 for the sum and 5 for
two kernels more make 240. That is 1.9x of it, and a fifth of `torch-ddp`.

Found: it takes a sixth longer than expected, and a fifth of DDP's time at 8,192 images, since the host launches nothing
within an epoch. But the estimate was half of an untuned `torch-graph`. The tuned one takes less time on one GPU than
this on two (studies `two-gpus`, `batch-size`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from common.ranks import Group
from common.trainer import Trainer
from stages.devices.torch_ddp import join
from stages.engine.ranks import RanksTrainer
from stages.engine.stage import Stage
from stages.references.torch_common import Batch, RunEpoch, Tensor, TorchSetup, TorchTrainer
from stages.references.torch_graph import captured, replay, use_one_stream
from stages.references.torch_step import compile_steps, forward, linear_or_sum

ONE_SHOT_BYTES = 256 << 10
UNIT = 4  # floats: each tensor begins at a multiple, for wide loads
SumUp = Callable[[list[Tensor]], list[Tensor]]
"""This rank's tensors to the sums over all ranks, which the next call overwrites."""


def rank_gradients(setup: TorchSetup, share: float) -> Callable[[Tensor, Tensor, bool], list[Tensor]]:
    """The function from a batch to `share` times its gradients, not compiled; the flag adds to the totals."""
    import torch
    from torch.nn.functional import cross_entropy

    totals = setup.totals

    def loss_and_more(layers: list[tuple[Tensor, Tensor]], images: Tensor, labels: Tensor) -> tuple[Tensor, Any]:
        logits = forward(layers, images, linear_or_sum)
        loss = cross_entropy(logits, labels)
        return share * loss, (loss, logits)

    def gradients(images: Tensor, labels: Tensor, with_totals: bool) -> list[Tensor]:
        found, (loss, logits) = torch.func.grad(loss_and_more, has_aux=True)(setup.layers, images, labels)
        if with_totals:
            totals.add(loss, logits, labels)
        return [tensor for layer in found for tensor in layer]

    return gradients


def epoch_of(
    setup: TorchSetup, gradients: Callable[..., list[Tensor]], sum_up: SumUp, batches: list[Batch]
) -> RunEpoch:
    """An epoch of steps: this rank's gradients, the sums over all ranks, and the update by them."""
    import torch

    parameters, rate = [tensor for layer in setup.layers for tensor in layer], setup.problem.learning_rate

    def epoch(due: bool) -> None:
        for images, labels in batches:
            torch._foreach_add_(parameters, sum_up(gradients(images, labels, due)), alpha=-rate)

    return epoch


def symmetric_sum(setup: TorchSetup, group: Group) -> SumUp:
    """The sums by PyTorch's kernels; all trainers of a process share the memory, which other ranks have mapped."""
    import torch
    import torch.distributed._symmetric_memory as symmetric
    from torch import distributed

    shapes = [tensor.shape for layer in setup.layers for tensor in layer]
    sizes = [-(-shape.numel() // UNIT) * UNIT for shape in shapes]
    key, world = f"{sum(sizes)} symmetric floats", distributed.group.WORLD
    if key not in group.kept:
        group.kept[key] = symmetric.empty(sum(sizes), device=torch.device("cuda", group.rank))
        torch.cuda.synchronize()  # PyTorch 2.11 may still zero it, and another rank's first signal with it
        symmetric.rendezvous(group.kept[key], world)
    own, kernels = group.kept[key], torch.ops.symm_mem
    all_reduce = kernels.one_shot_all_reduce if own.nbytes <= ONE_SHOT_BYTES else kernels.two_shot_all_reduce_

    def parts(whole: Tensor) -> list[Tensor]:
        return [part[: shape.numel()].view(shape) for part, shape in zip(whole.split(sizes), shapes, strict=True)]

    sent = parts(own)

    def sum_up(gradients: list[Tensor]) -> list[Tensor]:
        torch._foreach_copy_(sent, gradients)
        return parts(all_reduce(own, "sum", world.group_name))

    return sum_up


def prepare(setup: TorchSetup, *, group: Group) -> RunEpoch:
    """Compile the passes, and capture one graph without and one with totals."""
    images = group.gather(setup.problem.batch_size)
    gradients = compile_steps(rank_gradients(setup, images[group.rank] / sum(images)), {})
    batches, sum_up = setup.resident_batches(), symmetric_sum(setup, group)
    epoch = epoch_of(setup, gradients, sum_up, batches)
    graphs = {due: captured(partial(epoch, due), "thread_local") for due in (False, True)}
    return partial(replay, graphs, [batches])


def build_on_rank(group: Group, problem: Problem, train: Split) -> Trainer:
    """A rank's trainer."""
    join(group)
    use_one_stream()
    return TorchTrainer(problem, train, partial(prepare, group=group))


STAGE = Stage(
    "torch-symmetric",
    "PyTorch compiled, symmetric memory",
    "reference",
    "float32",
    ("two-gpus", "torch-cuda"),
    partial(RanksTrainer, build_on_rank),
    words="PyTorch's kernel adds up, in a graph",
    takes_gpus=True,
)
