"""PyTorch DDP: `DistributedDataParallel` and `torch.compile`, a process a GPU.

Why: PyTorch's documentation recommends it where a batch outgrows one GPU.

Change: none; it is a reference, not a rung. NCCL adds up gradients in buckets of 25 MB while the layers below go
backward, the compiler divides the step at these buckets, and PyTorch's fused SGD updates. The network's forward and
backward pass are compiled, not the update: an all-reduce stands between them. The host launches each step.

Expect: it gains nothing where a step takes less than the 300 us in which its host launches one, as in 784-256-10 in
batches of 8,192, and 1.8x at 65,536 images.

Found: as expected, the host's launches bind it: a step of 32,768 images takes hardly longer than one of 4,096 (study
`two-gpus`). So a graph is worth more than a second GPU. Where products are long, mixed precision counts instead: in a
trial of 784-4096x3-10 it made DDP several times as fast as our float32 rungs.
"""

from __future__ import annotations

import socket
import warnings
from functools import partial

from common.cuda.nccl import without_multicast
from common.data.dataset import Split
from common.problem import Problem
from common.ranks import Group
from common.trainer import Trainer
from stages.engine.ranks import RanksTrainer
from stages.engine.stage import Stage
from stages.references.torch_common import RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_step import mixed

WARM_UP = 3  # steps, in which the compiler and DDP settle


def join(group: Group) -> None:
    """Make this process one of PyTorch's ranks, on a GPU of its own."""
    import torch
    from torch import distributed

    torch.cuda.set_device(group.rank)
    if not distributed.is_initialized():
        without_multicast()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = group.gather(free.getsockname()[1])[0]
        where = f"tcp://127.0.0.1:{port}"
        device = torch.device("cuda", group.rank)
        distributed.init_process_group(
            "nccl", init_method=where, rank=group.rank, world_size=group.ranks, device_id=device
        )


def prepare(setup: TorchSetup, *, amp: bool, group: Group) -> RunEpoch:
    """Compile the passes, and run some steps without and with totals."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    images = group.gather(setup.problem.batch_size)
    scale = images[group.rank] * group.ranks / sum(images)  # DDP's mean over ranks becomes the mean over images
    model = DistributedDataParallel(setup.model, device_ids=[group.rank], gradient_as_bucket_view=True)
    compiled = torch.compile(model, dynamic=False)
    sgd = torch.optim.SGD(model.parameters(), lr=setup.problem.learning_rate, fused=True)
    batches = setup.resident_batches()

    def step(images: torch.Tensor, labels: torch.Tensor, due: bool) -> None:
        sgd.zero_grad(set_to_none=True)
        with mixed(setup, amp=amp):
            logits = compiled(images).float()
        loss = cross_entropy(logits, labels)
        (loss * scale).backward()
        sgd.step()
        if due:
            setup.totals.add(loss.detach(), logits.detach(), labels)

    def run_epoch(due: bool) -> None:
        for batch in batches:
            step(*batch, due)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the compiler's own choices
        for due in [*[False] * WARM_UP, True]:
            step(*batches[0], due)
    return run_epoch


def build_on_rank(group: Group, problem: Problem, train: Split, *, amp: bool) -> Trainer:
    """A rank's trainer."""
    join(group)
    return TorchTrainer(problem, train, partial(prepare, amp=amp, group=group))


def build(problem: Problem, train: Split, *, amp: bool) -> Trainer:
    """A trainer on all ranks."""
    return RanksTrainer(partial(build_on_rank, amp=amp), problem, train)


FLOAT32 = Stage(
    "torch-ddp",
    "PyTorch DDP, compiled",
    "reference",
    "float32",
    ("two-gpus", "torch-cuda"),
    partial(build, amp=False),
    takes_gpus=True,
)
AMP = Stage(
    "torch-ddp-amp",
    "PyTorch DDP, compiled, AMP",
    "reference",
    "bfloat16",
    ("two-gpus", "torch-cuda"),
    partial(build, amp=True),
    words="the same in mixed precision",
    takes_gpus=True,
)
