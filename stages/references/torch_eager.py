"""PyTorch eager: data on the device, no data loader, no `.item()` in the loop.

Why: a careful user writes this.

Change: none; it is a reference, not a rung. Batches lie on the device, gradients are set to None, SGD is plain (fused
on a GPU), TF32 is off. Loss and accuracy are added up on the device, in every tenth epoch only.

Expect: 230 us per step for softmax regression on an H200 and twice that with a hidden layer: the host dispatches some
thirty operators a step while the GPU waits.

Predict: on H200: 784-10, batch 128: 230 us; 784-256-10, batch 128: 460 us.

Found: it is slower than predicted, in 784-10 up to nearly three times: the GPU idles for about nine tenths of a step,
so that the time is the host's, and recordings differ by almost two times. Why the host took longer than expected is not
explained.
"""

from __future__ import annotations

from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.stage import Stage
from stages.references.torch_common import RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_threads import use_fastest_threads


def prepare(setup: TorchSetup) -> RunEpoch:
    """`nn.Linear` layers, `cross_entropy`, `torch.optim.SGD`."""
    import torch

    model, totals, batches = setup.model, setup.totals, setup.resident_batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=setup.problem.learning_rate, fused=setup.on_gpu)

    def run_epoch(due: bool) -> None:
        for images, labels in batches:
            optimizer.zero_grad(set_to_none=True)
            logits = model(images)
            loss = torch.nn.functional.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            if due:
                totals.add(loss.detach(), logits.detach(), labels)

    return run_epoch


def build(problem: Problem, train: Split) -> Trainer:
    """A trainer with the data on the device."""
    use_fastest_threads(problem, prepare)
    return TorchTrainer(problem, train, prepare)


STAGE = Stage("torch-eager", "PyTorch eager", "reference", "float32", ("torch",), build)
